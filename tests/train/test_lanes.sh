#!/usr/bin/env bash
# A process computes in lanes, one a thread: with run.reproducible=elastic two lanes, and three that share
# the leaves unevenly, give the weights of one. ThreadSanitizer watches this run: lanes, loader,
# checkpoint thread and sinks at work together.
. "${SOURCE:?}/tests/small_run.sh" || exit

small_data "$work"
config=$(small_config "$work")
for lanes in 1 2 3; do
    train run.reproducible=elastic device.threads=$lanes run.name=lanes$lanes train.max_steps="${STEPS:-20}" \
        eval.every="5 steps" checkpoint.every="3 steps" data.workers=2
    grep -qE "\b$lanes lanes? of 1 thread" "$work/log" || fail "not $lanes lanes"
    got=$(hash "$work/runs/lanes$lanes")
    echo "$lanes lanes: $got"
    [ "${want:=$got}" = "$got" ] || fail "$lanes lanes give other weights"
done

# threads and lanes are free when a run goes on, too
common=(run.reproducible=elastic run.name=moved train.max_steps="${STEPS:-20}" eval.every="5 steps")
rc=0
"$DTRAIN" "$config" "${common[@]}" device.threads=3 run.stop_at=7 >/dev/null 2>"$work/log" || rc=$?
[ $rc = 75 ] || fail "exit $rc, not 75, at run.stop_at"
train "${common[@]}" device.threads=2 device.lanes=2
[ "$(hash "$work/runs/moved")" = "$want" ] || fail "other lanes after resuming give other weights"
echo "3 lanes, then 2: $want"
