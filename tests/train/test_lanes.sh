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
