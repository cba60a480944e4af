#!/usr/bin/env bash
# A process computes in replicas, one a thread: with run.reproducible=elastic two replicas, and three that share
# the micro-batches unevenly, give the weights of one. ThreadSanitizer watches this run: replicas, loader,
# checkpoint thread and sinks at work together.
. "${SOURCE:?}/tests/small_run.sh" || exit

small_data "$work"
config=$(small_config "$work")
for replicas in 1 2 3; do
    train run.reproducible=elastic device.threads=$replicas run.name=replicas$replicas train.max_steps="${STEPS:-20}" \
        eval.every="5 steps" checkpoint.every="3 steps" data.workers=2
    grep -qE "\b$replicas worker groups? of 1 thread" "$work/log" || fail "not $replicas replicas"
    got=$(hash "$work/runs/replicas$replicas")
    echo "$replicas replicas: $got"
    [ "${want:=$got}" = "$got" ] || fail "$replicas replicas give other weights"
done

# threads and replicas are free when a run goes on, too
common=(run.reproducible=elastic run.name=moved train.max_steps="${STEPS:-20}" eval.every="5 steps")
exits 75 '' "$DTRAIN" "$config" "${common[@]}" device.threads=3 run.stop_at=7
train "${common[@]}" device.threads=2 device.replicas=2
[ "$(hash "$work/runs/moved")" = "$want" ] || fail "other replicas after resuming give other weights"
echo "3 replicas, then 2: $want"

if have_mpi; then # from its directory, whose config.yaml has the numbers of the training: others on another number of ranks
    exits 75 '' "$DTRAIN" "$config" run.name=ranks device.threads=auto train.max_steps=4 run.stop_at=2
    exits 0 '' "${ranks[@]}" 2 "$DTRAIN" "$work/runs/ranks" run.stop_at=
    exits 0 '' "$DTRAIN" ckpt show "$work/runs/ranks"
fi

# eval resolves its threads anew: those of a run are of the machine and the ranks that it was trained on
n=$(($(nproc) + 1))
threads_of() { # WORD …: how many threads dtrain eval has
    DTRAIN_FAILPOINT=evaluate:1:stop "$DTRAIN" eval "$work/runs/many" "$@" >"$work/out" 2>"$work/log" &
    pid=$!
    wait_until have_stopped 0
    ls "/proc/$pid/task" | wc -l
    kill -CONT "$pid"
    wait "$pid" || fail "eval"
}
train device.threads=$n data.workers=$n run.name=many train.max_steps=2
own=$(threads_of) given=$(threads_of device.threads=$n)
[ "$own" -lt "$given" ] || fail "eval takes the run's threads: $own of them, $given if they are given"
