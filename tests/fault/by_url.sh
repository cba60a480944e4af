# Source this for a set by URL: 120 photographs in the two shards $local_set, and $config, which trains on them.
#   serve WORD …   a server (range_server.py, with these options) as $pid; the set by its URL is $url
. "$SOURCE/tests/small_run.sh" || exit
[ -e "$BUILD/dtrain_http.so" ] || { echo "skipped: built without libcurl"; exit 77; }
local_set=$work/bucket/set-{000000..000001}.tar config=$work/small.yaml
"$DTRAIN" synth photos "$work/raw" --n 120 2>/dev/null
"$DTRAIN" pack "$work/raw" "$local_set" >/dev/null 2>&1
cat >"$config" <<YAML
run: {dir: $work/runs, seed: 5}
device: {kind: cpu, threads: 1}
data:
  path: $local_set
  fields: {image: {kind: image, source: jpg, channels: 3, size: [16, 16]}, label: {kind: class}}
model: {name: resnet, depth: 10, width: 4}
train: {epochs: 2, global_batch: 8, micro_batch: 4, precision: fp32}
YAML
serve() {
    "$python" "$SOURCE/tests/fault/range_server.py" "$work/bucket" "$work/port" "$@" &
    pid=$!
    wait_until test -e "$work/port"
    url="http://127.0.0.1:$(cat "$work/port")/${local_set##*/}"
}
