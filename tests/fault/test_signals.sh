#!/usr/bin/env bash
# SIGTERM, SIGINT and SIGUSR1 to a rank, SIGUSR1 to mpirun: the step is finished, the state saved, exit
# 75; the same command again goes on and ends with the undisturbed run's weights.
. "$SOURCE/tests/small_run.sh"

small_data "$work"
config=$(small_config "$work")
common=(train.max_steps=400 checkpoint.every="100000 steps")
"$DTRAIN" "$config" "${common[@]}" run.name=calm >/dev/null 2>"$work/log" || { cat "$work/log"; exit 1; }
want=$(hash "$work/runs/calm")

wait_for_step() { # run: until its metrics show a step
    for _ in $(seq 100); do
        grep -q '"step":[0-9]' "$work/runs/$1/metrics.jsonl" 2>/dev/null && return
        sleep 0.05
    done
}

for signal in TERM INT USR1; do
    "$DTRAIN" "$config" "${common[@]}" run.name=$signal >/dev/null 2>"$work/log" &
    pid=$!
    wait_for_step $signal
    # background jobs of a script ignore SIGINT from the terminal, not from kill
    kill -$signal $pid
    rc=0; wait $pid || rc=$?
    [ $rc = 75 ] || { cat "$work/log"; echo "FAILED: SIG$signal gave exit $rc, not 75"; exit 1; }
    "$DTRAIN" "$config" "${common[@]}" run.name=$signal >/dev/null 2>"$work/log" || { cat "$work/log"; exit 1; }
    [ "$(hash "$work/runs/$signal")" = "$want" ] || { echo "FAILED: SIG$signal: other weights after resuming"; exit 1; }
    echo "SIG$signal: exit 75, resumed to the same weights"
done

if command -v mpirun >/dev/null && [ -e "$BUILD/dtrain_mpi.so" ]; then
    mpirun --oversubscribe --bind-to none -np 2 "$DTRAIN" "$config" "${common[@]}" run.name=mpirun >/dev/null 2>"$work/log" &
    pid=$!
    wait_for_step mpirun
    kill -USR1 $pid
    rc=0; wait $pid || rc=$?
    [ $rc = 75 ] || { cat "$work/log"; echo "FAILED: SIGUSR1 to mpirun gave exit $rc, not 75"; exit 1; }
    echo "SIGUSR1 to mpirun: exit 75"
fi
