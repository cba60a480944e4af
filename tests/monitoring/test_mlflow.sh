#!/usr/bin/env bash
# The mlflow sink: on a server that is one in name (test_mlflow.py) and hangs, closes, answers 500 or is slow; through
# kills; and on the real one, where there is one: .cache/mlflow-venv (python3 -m venv, pip install mlflow), or MLFLOW.
. "${SOURCE:?}/tests/small_run.sh" || exit
[ -e "$BUILD/dtrain_http.so" ] || { echo "skipped: built without libcurl"; exit 77; }
small_data "$work"
config=$(small_config "$work")
"$python" "$SOURCE/tests/call.py" "$this_test" serve "$work" >/dev/null 2>&1 &
wait_port() { local i; for i in $(seq 500); do [ -s "$work/port" ] && return; sleep 0.05; done; fail "no server"; }
wait_port
uri=http://127.0.0.1:$(cat "$work/port")
job=("$DTRAIN" "$config" "metrics.sinks=[jsonl, mlflow]" "metrics.mlflow.uri=$uri" "metrics.every=1 steps"
     "metrics.mlflow.experiment=bob's \"exp\" 猫" train.global_batch=4)
mode() { echo "$1" >"$work/mode"; }

refused "needs jsonl too" "metrics.sinks=[mlflow]" "metrics.mlflow.uri=$uri"
refused "expected the tracking server's URL" "metrics.sinks=[jsonl, mlflow]"
refused "a name and a password in a path would stand in logs" "metrics.sinks=[jsonl, mlflow]" metrics.mlflow.uri=http://me:secret@host
refused "the parameter token in a path" "metrics.sinks=[jsonl, mlflow]" 'metrics.mlflow.uri=http://host/?token=secret'
refused "has a query in it" "metrics.sinks=[jsonl, mlflow]" 'metrics.mlflow.uri=http://host/?a=1'

mode ok
export MLFLOW_TRACKING_TOKEN=mlflow-secret
exits 0 '' "${job[@]}" run.name=well
py check_whole "$work" well 40 || fail "what the server has of a run"
py add_odd_names "$work" well
mode full
exits 0 'MLflow has not got all of this run' "${job[@]}" run.name=well
mode ok
exits 0 'is finished' "${job[@]}" run.name=well
py check_odd "$work" well || fail "names that MLflow refuses"
! grep -rqs mlflow-secret "$work/runs" "$work/log" || fail "the token is written"

# a name and a password of MLflow's own file go before the token, as with its client
mkdir "$work/.mlflow"
printf '[other]\nmlflow_tracking_password = wrong\n[mlflow]\nmlflow_tracking_username = me\nmlflow_tracking_password=%s \n' \
    "$(printf 'p%.0s' {1..300})" >"$work/.mlflow/credentials"
exits 0 '' env HOME="$work" MLFLOW_TRACKING_TOKEN=old "${job[@]}" run.name=file
py check_whole "$work" file 40 || fail "credentials of ~/.mlflow"

# the server is away in one way or another: every step is done, and the same command sends what is missing
for way in 500 gone400 gone404 close hang; do
    n=40
    [ $way != 500 ] || n=250 # whose lines are more than a request takes
    mode $way
    exits 0 'MLflow has not got all of this run' "${job[@]}" run.name=$way train.max_steps=$n
    [ "$(grep -c '"kind":"step"' "$work/runs/$way/metrics.jsonl")" = $n ] || fail "$way: not all steps"
    mode ok
    exits 0 'is finished' "${job[@]}" run.name=$way train.max_steps=$n
    py check_whole "$work" $way $n || fail "$way: what came later"
done
# what is done without an answer is not done twice
mode deaf
exits 0 '' "${job[@]}" run.name=deaf
mode ok
exits 0 'is finished' "${job[@]}" run.name=deaf
py check_whole "$work" deaf 40 || fail "a server that answers nothing"

# a run that is stopped from outside does not wait for a server that hangs
mode ok
DTRAIN_FAILPOINT=step:1:nap "${job[@]}" run.name=stopped train.max_steps=100000 train.epochs=100000 2>"$work/log" &
pid=$!
wait_until test -e "$work/runs/stopped/mlflow.json"
mode hang
sleep 1.5 # a request begins each second
rc=0
kill -TERM $pid
wait $pid || rc=$?
[ $rc = 75 ] && grep -q 'no answer yet (1 attempt' "$work/log" || fail "exit $rc, or it waited for an answer"
mode slow
exits 0 '' "${job[@]}" run.name=slow
mode ok
exits 0 '' "${job[@]}" run.name=slow
py check_whole "$work" slow 40 || fail "slow"

# files that the server does not answer, or refuses for now: a signal ends the wait for them, and a line names them
for way in stuck busy; do
    mode $way
    rm -f "$work/put"
    "${job[@]}" run.name=$way 2>"$work/log" &
    pid=$!
    wait_until test -e "$work/put"
    kill -TERM $pid
    rc=0
    wait $pid || rc=$?
    [ $rc = 0 ] && grep -q 'has not got all of this run (config.yaml, result.json.* the same command' "$work/log" ||
        fail "$way: exit $rc, or what is missing is not named"
    mode ok
    exits 0 'is finished' "${job[@]}" run.name=$way
    py check_whole "$work" $way 40 || fail "$way: files that came later"
done

# a file that the server refuses for good is named, the others are sent, and the same command does not send it again
mode large
exits 0 'has not got all of this run (model.safetensors): the server refuses the rest' "${job[@]}" run.name=large
exits 0 'is finished' "${job[@]}" run.name=large
py check_refused "$work" large || fail "files beside the refused one"
mode ok

# so are params
mode picky
exits 0 'has not got all of this run (params): the server refuses the rest' "${job[@]}" run.name=picky
py check_picky "$work" picky || fail "params beside the refused ones"
mode ok

# the other rank waits at the end for as long as the files take, which is longer than comm.timeout
if have_mpi; then
    mode files
    exits 0 '' "${ranks[@]}" 2 "${job[@]}" run.name=ranks comm.timeout=9
    py check_whole "$work" ranks 40 || fail "files that took long"
    mode ok
fi

# killed, and gone on with: one run there, and no step twice
for at in 7 9 5; do
    rc=0
    DTRAIN_FAILPOINT=step:$at:kill "${job[@]}" run.name=killed "checkpoint.every=4 steps" 2>>"$work/log" || rc=$?
    [ $rc = 137 ] || fail "exit $rc"
done
exits 0 '' "${job[@]}" run.name=killed "checkpoint.every=4 steps"
py check_whole "$work" killed 40 || fail "killed"

# gone on with for longer; and anew, where there was no checkpoint
exits 0 '' "${job[@]}" run.name=killed "checkpoint.every=4 steps" train.max_steps=50 run.resume=force
py check_longer "$work" killed || fail "a run that was made longer"
DTRAIN_FAILPOINT=step:1:nap "${job[@]}" run.name=anew train.optimizer.lr=0.1 train.max_steps=100000 2>>"$work/log" &
pid=$!
has_params() { grep -q 'train.optimizer.lr' "$work"/anew.r*.json 2>/dev/null; }
wait_until has_params
kill -KILL $pid
wait $pid || true
exits 0 '' "${job[@]}" run.name=anew
py check_anew "$work" anew || fail "what began anew"

mlflow=${MLFLOW:-$SOURCE/.cache/mlflow-venv/bin/mlflow}
[ -x "$mlflow" ] || { echo "without the real server: no $mlflow"; exit 0; }
port=$(py free_port)
uri=http://127.0.0.1:$port
"$mlflow" server --host 127.0.0.1 --port "$port" --workers 1 --backend-store-uri "sqlite:///$work/mlflow.db" \
    --artifacts-destination "$work/artifacts" >"$work/mlflow.log" 2>&1 &
pid=$!
wait_until curl -sf "$uri/health"
job[3]=metrics.mlflow.uri=$uri
curl -sf "$uri/api/2.0/mlflow/experiments/create" -H 'Content-Type: application/json' \
    -d '{"name": "bob'"'"'s \"exp\" 猫"}' >/dev/null || fail "no experiment"
exits 75 '' "${job[@]}" run.name=real run.stop_at=15 "eval.every=10 steps"
exits 0 '' "${job[@]}" run.name=real "eval.every=10 steps"
py add_odd_names "$work" real
exits 0 'is finished' "${job[@]}" run.name=real "eval.every=10 steps"
py check_real "$uri" "$work" || fail "what MLflow has"
