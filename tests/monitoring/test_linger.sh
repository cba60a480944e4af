#!/usr/bin/env bash
# metrics.linger: after the last save any signal ends it, and the exit code stays the run's.
. "${SOURCE:?}/tests/small_run.sh" || exit
small_data "$work"
config=$(small_config "$work")
port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
job=("$DTRAIN" "$config" train.max_steps=6 "metrics.sinks=[jsonl, prometheus]" metrics.linger=300 "metrics.listen=127.0.0.1:$port")
is_gone() { ! kill -0 $pid 2>/dev/null; }
ends() { # CODE: with it, soon
    for _ in $(seq 600); do is_gone && break || sleep 0.1; done
    is_gone || fail "a signal does not end metrics.linger"
    rc=0
    wait $pid || rc=$?
    [ $rc = "$1" ] || fail "exit $rc, not $1"
}
says_end() { grep -qs '"kind":"end"' "$work/runs/$1/metrics.jsonl"; }

for signal in TERM INT USR1 HUP; do
    "${job[@]}" run.name=$signal >"$work/out" 2>"$work/log" &
    pid=$!
    wait_until says_end $signal
    sleep 0.3
    ! is_gone || fail "no linger"
    kill -$signal $pid
    ends 0
    [ -e "$work/runs/$signal/result.json" ] || fail "$signal: no results"
done

# the signal that stopped the run is not the one that ends its linger, also where both are a SIGINT
DTRAIN_FAILPOINT=step:1:nap "${job[@]}" run.name=stopped train.max_steps=100000 train.epochs=100000 >"$work/out" 2>"$work/log" &
pid=$!
wait_for_step stopped
kill -INT $pid
wait_until says_end stopped
sleep 1
! is_gone || fail "the signal that stopped the run ends its linger"
kill -INT $pid
ends 75
