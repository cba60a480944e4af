#!/usr/bin/env bash
# Power cuts on a real file system: ext4 in a file, shut down by its ioctl at counted calls of a run and mounted again;
# then the same command resumes. No acknowledged checkpoint is lost, and weights, results and metrics are those of the
# undisturbed run. tests/sim cuts at every call of a disk of its own; here a kernel's is cut. CUTS and SEED set how many
# and where. Needs root and loop devices.
. "${SOURCE:?}/tests/small_run.sh" || exit
export PATH=$PATH:/usr/sbin
disk=$work/disk
mount_disk() { mount -o loop "$work/image" "$disk" 2>/dev/null; }
trap 'tail -5 "$work/killed" >&2 2>/dev/null || true; umount "$disk" 2>/dev/null || true; clean_up' EXIT
mkdir "$disk"
truncate -s 512M "$work/image"
mkfs.ext4 -q "$work/image" 2>/dev/null && mount_disk || { echo "skipped: cannot mount a file as a disk"; exit 77; }

small_data "$work"
config=$(small_config "$work")
common=(train.max_steps=24 eval.every="4 steps" checkpoint.every="5 steps" metrics.sinks=[jsonl])
cuts=${CUTS:-${FULL:+40}}
cuts=${cuts:-8}
RANDOM=${SEED:-7}
train "${common[@]}"

again() { # another test's namespace may hold the mount for a moment
    for ((try = 0; try < 100; try++)); do "$@" && return || sleep 0.2; done
    fail "not in 20 seconds: $*"
}
steps() { ls "$disk/small/checkpoints" 2>/dev/null | sed -n 's/^step-0*//p' | sort -n; }

for ((n = 0; n < cuts; n++)); do
    visit=$((20 + RANDOM % 60)) # a save makes about 40 calls
    DTRAIN_FAILPOINT=io:$visit:stop "$DTRAIN" "$config" "${common[@]}" run.dir="$disk" >/dev/null 2>"$work/log" &
    pid=$!
    wait_until have_stopped 0
    sure=$(steps | tail -2 | head -n -1) # the newest but one was acknowledged before the next was begun
    py cut_power "$disk" # without writing the journal back
    kill -KILL $pid
    wait $pid 2>/dev/null || true
    again umount "$disk"
    again mount_disk
    newest=$(steps | tail -1)
    echo "cut $n: at call $visit, step ${newest:-0} is there"
    [ "${newest:-0}" -ge "${sure:-0}" ] || fail "step $sure was acknowledged, the newest is ${newest:-none}"
done 2>"$work/killed" # bash says of each that it was killed
train "${common[@]}" run.dir="$disk"
for file in checkpoints/step-00000024/{model,optimizer}.safetensors result.json; do
    cmp "$disk/small/$file" "$work/runs/small/$file" || fail "other $file than undisturbed"
done
# other kinds of lines say when and how fast, and what happened to this run
lines() { sed -n '/"kind":"\(step\|eval\)"/{s/,"\(samples_per_s\|time\)".*//;p}' "$1/small/metrics.jsonl"; }
diff <(lines "$work/runs") <(lines "$disk") || fail "other metrics than undisturbed"
echo "weights, results and metrics are equal"
