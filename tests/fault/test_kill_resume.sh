#!/usr/bin/env bash
# SIGKILL at counted points, resuming each time: weights, moments and the metrics of every step equal those of the
# run that nobody disturbed (run.reproducible=resume, the default). A point is a call that touches a file ("io": the
# run's own files and checkpoints, "ckpt": those of a checkpoint alone) or the end of a step: what a killed process
# leaves behind is what its calls so far have made of the disk, so each state of it is reached by a point, and by the
# same on any machine. KILLS, STEPS and SEED set how many, how long and which points; FULL=1 means many.
. "${SOURCE:?}/tests/small_run.sh" || exit

small_data "$work"
config=$(small_config "$work")
steps=${STEPS:-${FULL:+500}}
steps=${steps:-60}
kills=${KILLS:-${FULL:+30}}
kills=${kills:-9}
RANDOM=${SEED:-12}
sinks="terminal, jsonl, tensorboard, prometheus, report"
if [ -e "$BUILD/dtrain_http.so" ]; then # mlflow's server is one in name
    export MLFLOW_TRACKING_TOKEN=mlflow-secret
    mlflow=("$python" "$SOURCE/tests/call.py" "$SOURCE/tests/monitoring/test_mlflow")
    "${mlflow[@]}" serve "$work" >/dev/null 2>&1 &
    for ((i = 0; i < 500; i++)); do [ -s "$work/port" ] && break || sleep 0.05; done
    [ -s "$work/port" ] || fail "no server"
    echo ok >"$work/mode"
    sinks+=", mlflow"
fi
common=(train.global_batch=4 train.max_steps="$steps" checkpoint.every="7 steps" eval.every="30 steps"
        "metrics.sinks=[$sinks]" "metrics.every=1 steps" ${mlflow:+metrics.mlflow.uri="http://127.0.0.1:$(cat "$work/port")"})

train "${common[@]}" run.name=calm

newest_step() { # of the run that is being killed; 0: no checkpoint
    local all=$work/runs/killed/checkpoints
    [ ! -d "$all" ] || find "$all" -maxdepth 1 -name 'step-*' -printf '%f\n' | sed 's/^step-0*//' | sort -n | tail -1
}

# A life makes twice its fair share of the steps that are left at most, so that the last one finishes the run. A save
# makes some 40 calls, seven steps behind another.
points=(step ckpt io)
for ((n = 0; n < kills; n++)); do
    at=$(newest_step)
    share=$((2 * (steps - ${at:-0}) / (kills - n + 1)))
    point=${points[n % 3]}
    limit=$((share > 7 ? 9 * share : 60))
    [ "$point" != step ] || limit=$share
    visit=$((1 + RANDOM % (limit > 1 ? limit : 1)))
    rc=0
    DTRAIN_FAILPOINT=$point:$visit:kill "$DTRAIN" "$config" "${common[@]}" run.name=killed >/dev/null 2>"$work/log" || rc=$?
    echo "kill $n: $point $visit, from step ${at:-0}"
    [ $rc = 137 ] || fail "exit $rc, not 137, at $point:$visit"
done 2>"$work/killed" # bash says of each that it was killed
train "${common[@]}" run.name=killed
py compare "$work/runs/calm" "$work/runs/killed"
[ -z "${mlflow:-}" ] || "${mlflow[@]}" check_whole "$work" killed "$steps" || fail "what the server has of the killed run"
