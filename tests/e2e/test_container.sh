#!/usr/bin/env bash
# Quotas and limits of cgroups, v2 and v1, as a container sees them: cores, threads, and what check says of the memory.
# The files lie where the kernel shows a cgroup namespace's root, in a mount namespace of the test's own. Then the same in
# real cgroups, where the kernel has v1: and a data cache that would not fit stays so small that nobody is killed.
. "${SOURCE:?}/tests/small_run.sh" || exit
unshare --mount --cgroup true 2>/dev/null || { echo "skipped: mount and cgroup namespaces need root"; exit 77; }
sanitized && { echo "skipped: a sanitizer's own memory"; exit 77; }

small_data "$work"
config=$(small_config "$work" 6 large)
# what timing chooses has weights packed in other sizes
sed -i 's/^device: .*/device: {kind: cpu, threads: 1, time_engines: false}/' "$config"
cat >"$work/inside" <<'SH'
mount -t tmpfs none /sys/fs/cgroup
cd /sys/fs/cgroup
case $1 in
    v2)
        echo "$2" >cpu.max
        echo "$3" >memory.max
        echo 0 >memory.current
        printf 'low 0\noom 3\noom_kill 2\n' >memory.events
        printf 'inactive_file 0\nactive_file 0\n' >memory.stat ;;
    v1)
        mkdir cpu memory
        echo "${2% *}" >cpu/cpu.cfs_quota_us
        echo "${2#* }" >cpu/cpu.cfs_period_us
        echo "$3" >memory/memory.limit_in_bytes
        echo 0 >memory/memory.usage_in_bytes
        printf 'total_inactive_file 0\ntotal_active_file 0\n' >memory/memory.stat ;;
esac
cd "$OLDPWD"
shift 3
exec "$@"
SH
inside() { unshare --mount --cgroup bash "$work/inside" "$@"; } # v1|v2, quota and period, bytes, command
lists() { grep -q "^[0-9]*:.*\b$1\b" /proc/self/cgroup; }

for version in v2 v1; do
    if [ $version = v1 ]; then lists cpu && lists memory || continue; fi
    [ $version = v1 ] || grep -q '^0::' /proc/self/cgroup || continue
    inside $version "100000 100000" 8589934592 "$DTRAIN" info >"$work/out"
    grep -q '^cores  *1 usable' "$work/out" || fail "$version: quota of one core: $(grep cores "$work/out")"
    inside $version "100000 100000" 8589934592 "$DTRAIN" check "$config" device.threads=auto >"$work/out" 2>"$work/log" ||
        fail "$version: check: $?"
    grep -q '1 worker group of 1 thread' "$work/out" || fail "$version: $(grep step: "$work/out")"
    rc=0
    inside $version "100000 100000" 20971520 "$DTRAIN" check "$config" >"$work/out" 2>"$work/log" || rc=$?
    [ $rc = 2 ] || fail "$version: 20 MiB are enough for check: exit $rc"
    grep -q 'does not fit the memory of this host or container: .* of 20.0 MiB' "$work/log" || fail "$version: no verdict"
    echo "$version: seen"
done

# ---- as many replicas as have room
mib() { "$DTRAIN" check "$config" device.threads=2 "$@" 2>/dev/null | awk '/ MiB$/ && !/ decoding/ {sum += $(NF - 1)} END {print int(sum + 1)}'; }
two=$(mib) one=$(mib device.replicas=1)
[ "$one" -lt "$two" ] || fail "two replicas take $two MiB, one $one"
bytes=$(((one + two) / 2 << 20))
inside v2 "200000 100000" $bytes "$DTRAIN" "$config" device.threads=2 train.max_steps=2 run.name=room >"$work/out" 2>"$work/log" ||
    fail "two replicas have no room, one would: exit $?"
grep -q 'device.replicas: auto: 1 of 2 threads: 2 would' "$work/log" || fail "nothing said"
grep -A9 '^device:' "$work"/runs/room/config.yaml | grep 'replicas: 1$' >/dev/null || fail "not kept"
exits 2 'does not fit' inside v2 "200000 100000" $bytes "$DTRAIN" "$config" device.threads=2 device.replicas=2
"$DTRAIN" "$config" device.threads=2 train.max_steps=4 run.name=room run.resume=force >/dev/null 2>"$work/log" || fail "exit $?"
if have_mpi; then
    inside v2 "200000 100000" $((2 * bytes)) mpirun --oversubscribe --bind-to none -np 2 "$DTRAIN" "$config" device.threads=2 \
        train.max_steps=2 run.name=ranks >"$work/out" 2>"$work/log" || fail "ranks: exit $?"
    grep -q 'device.replicas: auto: 1 of 2 threads: 2 would' "$work/log" || fail "ranks: nothing said"
fi
two=$(mib run.reproducible=elastic) one=$(mib run.reproducible=elastic device.replicas=1)
inside v2 "200000 100000" $(((one + two) / 2 << 20)) "$DTRAIN" check "$config" device.threads=2 run.reproducible=elastic >"$work/out" 2>"$work/log" ||
    fail "elastic: exit $?"
grep -q '1 worker group of 1 thread' "$work/out" || fail "elastic: $(grep step: "$work/out")"
# both open: the largest micro-batch of as many replicas as have room
least() { mib train.micro_batch=1 "$@"; }
two=$(least) one=$(least device.replicas=1)
[ "$one" -lt "$two" ] || fail "micro-batches of 1: two replicas take $two MiB, one $one"
"$DTRAIN" check "$config" device.threads=2 train.micro_batch=auto train.memory=$(((one + two) / 2))MiB >"$work/out" 2>"$work/log" ||
    fail "micro-batch and replicas: exit $?"
grep -q '1 worker group of 2 threads' "$work/out" || fail "micro-batch and replicas: $(grep step: "$work/out")"
# what train.ema takes counts
plain=$(mib) ema=$(mib train.ema=0.9)
[ "$plain" -lt "$ema" ] || fail "train.ema takes $ema MiB, without it $plain"
exits 2 'EMA of the weights' inside v2 "200000 100000" $(((ema - 2) << 20)) "$DTRAIN" check "$config" device.threads=2 \
    device.replicas=2 train.ema=0.9
echo "replicas: as many as have room"

# ---- a batch script whose ranks are killed prints what the kernel counts, the limit and what lowers the need
mkdir "$work/slurm"
cat >"$work/slurm/mpirun" <<'SH' # its rank is killed: in the folder that stands for cgroups, or by the kernel
#!/bin/sh
if [ -w /sys/fs/cgroup/memory.events ]; then echo oom_kill 5 >/sys/fs/cgroup/memory.events; else head -c 200m /dev/zero | tail >/dev/null; fi
exit 137
SH
for program in srun squeue scontrol; do ln -s /bin/true "$work/slurm/$program"; done
chmod +x "$work/slurm/mpirun"
"$DTRAIN" launch slurm --print "$config" >"$work/job.sbatch" 2>"$work/log" || fail "launch slurm: exit $?"
killed() { # EVENTS, command: of a job
    exits 137 "$1" "${@:2}" env "PATH=$work/slurm:$PATH" SLURM_JOB_ID=7 SLURM_JOB_NAME=x bash "$work/job.sbatch"
    grep -q 'lower train.micro_batch .*--mem' "$work/log" || fail "no advice where a rank was killed: $(cat "$work/log")"
}
killed '^/sys/fs/cgroup/: .*oom_kill 3 since the start, limit 8589934592$' inside v2 "100000 100000" 8589934592

# ---- real ones
cpu=/sys/fs/cgroup/cpu/dt$$ memory=/sys/fs/cgroup/memory/dt$$
remove_groups() {
    rmdir "$cpu" "$memory" 2>/dev/null || true
    clean_up
}
trap remove_groups EXIT
mkdir "$cpu" "$memory" 2>/dev/null && [ -e "$memory/memory.limit_in_bytes" ] || { echo "skipped: no cgroups of v1 to make here"; exit 77; }
confined() { # command
    bash -c 'for group in "$1" "$2"; do echo $$ >"$group/cgroup.procs" || exit; done; shift 2; exec "$@"' - "$cpu" "$memory" "$@"
}
echo 100000 >"$cpu/cpu.cfs_period_us"
echo 100000 >"$cpu/cpu.cfs_quota_us"
echo $((96 << 20)) >"$memory/memory.limit_in_bytes"
confined "$DTRAIN" info >"$work/out"
grep -q '^cores  *1 usable' "$work/out" || fail "real quota of one core: $(grep cores "$work/out")"
"$DTRAIN" synth biometric "$work/large-raw" --subjects 12 2>/dev/null
"$DTRAIN" pack "$work/large-raw" "$work/large.lmdb" >/dev/null 2>&1
cat >"$work/large.yaml" <<YAML
run: {name: large, dir: $work/runs}
device: {kind: cpu, threads: 1}
data:
  path: $work/large.lmdb
  cache_form: decoded
  workers: 1
  fields:
    iris:    {kind: image, channels: 3, size: [480, 640]}
    subject: {kind: class, classes: 12}
model: {name: resnet, depth: 18}
train: {global_batch: 4, micro_batch: 1}
YAML
echo $((60 << 20)) >"$memory/memory.limit_in_bytes"
exits 137 'a rank needs about .* share of .* is 60 MiB: .*train.micro_batch' \
    confined "$DTRAIN" launch local "$config" device.replicas=1 run.name=oom
grep -q 'the kernel killed a process for want of memory: oom_kill 1 of .* was 0 .*; the limit is 60 MiB.*train.micro_batch' "$work/log" ||
    fail "the supervisor does not say what killed the rank: $(cat "$work/log")"
killed "^$memory: .*oom_kill 1 since the start, limit 62914560\$" confined
echo $((96 << 20)) >"$memory/memory.limit_in_bytes"
fill() { confined "$DTRAIN" data bench "$work/large.yaml" --seconds 2 "$@" >"$work/out" 2>"$work/log"; }
fill data.cache=ram || fail "a cache of $(grep -o 'cache ram.*' "$work/log") killed the process: exit $?"
grep -q 'at most 105.5 MiB for 105.5 MiB' "$work/log" || fail "$(grep cache "$work/log")"
! fill data.cache=ram data.cache_size=1G 2>/dev/null || fail "all of it fits: this test shows nothing"
echo "a cache of 105 MiB in a group of 96 MiB: ends well"
