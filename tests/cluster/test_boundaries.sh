#!/usr/bin/env bash
# Collectives on hosts of several ranks, evenly spread and not: sums have the promised bits, and each element crosses a
# host's boundary once, however many ranks a host has, counted where it leaves. A rank that hangs is named, not those that
# wait for it. A rank whose heartbeats wait behind data on a slow link is not lost.
. "${SOURCE:?}/tests/small_run.sh" || exit
. "$SOURCE/tests/cluster/hosts.sh"
need_hosts
program=$BUILD/test_comm_mpi
mib=16
sent() { on "$1" sed -n 's/^ *eth0://p' /proc/net/dev | awk '{print $9}'; }

carries() { # MODE HUNDREDTHS: all hosts together send so many hundredths of the buffer, and at most a tenth more
    local before after i
    before=0 after=0
    for i in $(seq "$n_hosts"); do before=$((before + $(sent "$i"))); done
    hosts_job $((2 * n_hosts)) "$program" "$1" $((mib << 18))
    ends_within 300
    [ $rc = 0 ] || fail "$1 on $n_hosts hosts: exit $rc"
    for i in $(seq "$n_hosts"); do after=$((after + $(sent "$i"))); done
    local hundredths=$(((after - before) * 100 / (mib << 20)))
    echo "$1: $n_hosts hosts of 2 ranks send $hundredths hundredths of the buffer"
    [ $hundredths -ge "$2" ] && [ $hundredths -le $(($2 * 11 / 10)) ] || fail "$1: not $2"
}

make_hosts 3
for np in 5 6; do
    hosts_job $np "$program" all
    ends_within 300
    [ $rc = 0 ] || fail "$np ranks: exit $rc"
    grep -x "all collectives agree on $np ranks of 3 hosts" "$work/out" || fail "$np ranks: no word"
done
carries reduce 400 # 2 (H - 1) / H of each host
carries broadcast 200

hosts_job 6 bash -c 'ulimit -n 66; exec "$0" "$@"' "$program" all
ends_within 120
[ $rc = 2 ] && grep -q '6 ranks on 3 hosts need up to 68 file descriptors' "$work/log" || fail "descriptors: exit $rc"

# rank 4, on host2, lives but comes to no collective; ranks of other hosts wait for rank 1 of host2, which waits for rank 4
cat >"$work/rank" <<'SH'
#!/bin/sh
[ "$OMPI_COMM_WORLD_RANK" != 4 ] || export DTRAIN_FAILPOINT=step:3:hang
exec "$@"
SH
chmod +x "$work/rank"
small_data "$work"
config=$(small_config "$work")
hosts_job 6 "$work/rank" "$DTRAIN" "$config" train.global_batch=12 train.max_steps=12 comm.timeout=15s run.dir="$work/own"
ends_within 120
[ $rc = 240 ] || fail "a rank hangs: exit $rc"
grep "did not take part" "$work/log"
! grep "did not take part" "$work/log" | grep -v "rank 4 on host2 did not" || fail "another rank is blamed"

# resumed with the ranks on two of the hosts: the same number of ranks, and other bits
own=("$config" train.global_batch=12 train.max_steps=12 run.dir="$work/own" run.name=spread)
hosts_job 6 "$DTRAIN" "${own[@]}" run.stop_at=4
ends_within 120
[ $rc = 75 ] || fail "run.stop_at: exit $rc"
n_hosts=2
hosts_job 6 "$DTRAIN" "${own[@]}"
n_hosts=3
ends_within 120
[ $rc = 0 ] && grep -q 'spread over hosts in another way' "$work/log" || fail "ranks on other hosts: exit $rc"

# 1 Mbit/s and gradients of 5 MB: heartbeats wait behind them for longer than comm.timeout; what arrives counts as well
n_hosts=2
config=$(small_config "$work" 6 large)
both_stopped() { [ -n "$(sleepers 1)" ] && [ -n "$(sleepers 2)" ]; }
hosts_options=(--mca oob_tcp_keepalive_probes 60) # mpirun's own wait behind data, too
DTRAIN_FAILPOINT=step:2:stop hosts_job 2 "$DTRAIN" "$config" train.global_batch=32 train.max_steps=3 comm.timeout=20s \
    run.dir="$work/own" run.name=slow
wait_until both_stopped
link_queue=1s slow_links 1mbit 2
kill -CONT $(sleepers 1) $(sleepers 2)
ends_within 200
slow_links "" 2
[ $rc = 0 ] || fail "a slow link: exit $rc"
