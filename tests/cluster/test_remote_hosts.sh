#!/usr/bin/env bash
# Two runs, each with two ranks on every host, read a set by URL: each host fetches each byte once, counted at the server by
# the host's address, and the weights are those of the local set. Minutes, on HOSTS=4 hosts: with FULL=1.
. "${SOURCE:?}/tests/small_run.sh" || exit
. "$SOURCE/tests/cluster/hosts.sh"
[ "${FULL:-}" = 1 ] || { echo "skipped: takes minutes; FULL=1 does"; exit 77; }
[ -e "$BUILD/dtrain_http.so" ] || { echo "skipped: built without libcurl"; exit 77; }
need_hosts
n=${HOSTS:-4}
"$DTRAIN" synth photos "$work/raw" --n 120 2>/dev/null
"$DTRAIN" pack "$work/raw" "$work/bucket/set-{000000..000001}.tar" >/dev/null 2>&1
size=$(cat "$work"/bucket/set-*.tar | wc -c)
cat >"$work/small.yaml" <<YAML
run: {dir: $work/runs, seed: 5}
device: {kind: cpu, threads: 1}
data:
  path: $work/bucket/set-{000000..000001}.tar
  cache_dir: $work/own/cache
  fields: {image: {kind: image, source: jpg, channels: 3, size: [16, 16]}, label: {kind: class}}
model: {name: resnet, depth: 10, width: 4}
train: {epochs: 3, global_batch: 16, micro_batch: 2, precision: fp32}
YAML
make_hosts "$n"
on 1 "$python" "$SOURCE/tests/fault/range_server.py" "$work/bucket" "$work/port" --bytes "$work/bytes" --address 10.77.0.1 &
pid=$!
wait_until test -e "$work/port"
url="http://10.77.0.1:$(cat "$work/port")/set-{000000..000001}.tar"
job() { hosts_job $((2 * n)) "$DTRAIN" "$work/small.yaml" run.name="$1" "${@:2}"; }
for run in "local" "a data.path=$url" "b data.path=$url"; do
    job $run
    ends_within 600
    [ $rc = 0 ] || fail "$run: exit $rc"
    [ "$(hash "$work/runs/${run%% *}")" = "$(hash "$work/runs/local")" ] || fail "other weights of $run"
done
for i in $(seq "$n"); do
    got=$(cat "$work/bytes.10.77.0.$i")
    echo "host$i got $got bytes of $size"
    # beyond the set, the beginnings of both shards in each of four processes, and their ends
    [ "$got" -ge $((size / 2)) ] && [ "$got" -le $((size + 4 * 2 * 8192 + 2 * 12288)) ] || fail "host$i got $got of $size bytes"
done
