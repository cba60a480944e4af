#!/usr/bin/env bash
# Quotas and limits of cgroups, v2 and v1, as a container sees them: cores, threads, and what check says of the memory.
# The files lie where the kernel shows a cgroup namespace's root, in a mount namespace of the test's own.
. "${SOURCE:?}/tests/small_run.sh" || exit
unshare --mount --cgroup true 2>/dev/null || { echo "skipped: mount and cgroup namespaces need root"; exit 77; }
sanitized && { echo "skipped: a sanitizer's own memory"; exit 77; }

small_data "$work"
config=$(small_config "$work")
cat >"$work/inside" <<'SH'
mount -t tmpfs none /sys/fs/cgroup
cd /sys/fs/cgroup
case $1 in
    v2)
        echo "$2" >cpu.max
        echo "$3" >memory.max
        echo 0 >memory.current
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
    grep -q '1 replica of 1 thread' "$work/out" || fail "$version: $(grep step: "$work/out")"
    rc=0
    inside $version "100000 100000" 20971520 "$DTRAIN" check "$config" >"$work/out" 2>"$work/log" || rc=$?
    [ $rc = 2 ] || fail "$version: 20 MiB are enough for check: exit $rc"
    grep -q 'does not fit the memory of this host or container: .* of 20.0 MiB' "$work/log" || fail "$version: no verdict"
    echo "$version: seen"
done
