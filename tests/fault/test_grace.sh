#!/usr/bin/env bash
# A signal bounds by run.grace what is not a step: an evaluation is dropped, the state before it saved, and it is done
# again after resuming; before the first step there is nothing to save, and the process ends. The results are those of
# the run that nobody disturbed.
. "${SOURCE:?}/tests/small_run.sh" || exit

small_data "$work"
config=$(small_config "$work")
job=(train.max_steps=9 train.global_batch=8 eval.every="3 steps" eval.best=loss checkpoint.every="100 steps" run.grace=0s)

same() { # a run and the undisturbed one
    cmp "$work/runs/$1/result.json" "$work/runs/$2/result.json" || fail "$1: other results"
    cmp "$work/runs/$1/checkpoints/best.json" "$work/runs/$2/checkpoints/best.json" || fail "$1: another best"
    [ "$(hash "$work/runs/$1")" = "$(hash "$work/runs/$2")" ] || fail "$1: other weights"
    cmp <(evaluations "$1") <(evaluations "$2") || fail "$1: other evaluations"
    cmp <(history "$1") <(history "$2") || fail "$1: the checkpoint knows other evaluations"
}
history() { grep -o '"history":.*"best_value":[^,]*' "$work/runs/$1/checkpoints/step-00000009/state.json"; }
evaluations() { sed -n '/"eval"/{s/,"time".*//;p}' "$work/runs/$1/metrics.jsonl"; }
end() { # exit code, what
    local rc=0
    wait $pid || rc=$?
    [ $rc = "$1" ] || fail "$2: exit $rc, not $1"
}

takes_signals() { grep -qs signals "/proc/$1/task/"*/comm; }
all_take_signals() { # the two ranks of $pid
    local p list
    list=$(children $pid 2>/dev/null) || return 1
    read -ra pids <<<"$list"
    [ ${#pids[@]} = 2 ] || return 1
    for p in "${pids[@]}"; do takes_signals "$p" || return 1; done
}

train "${job[@]}" run.name=calm
# 1 to 3: validation, the last of them at the end; 4: the test split
for n in 1 2 3 4; do
    run=dropped$n
    DTRAIN_FAILPOINT=evaluate:$n:stop "$DTRAIN" "$config" "${job[@]}" run.name=$run >/dev/null 2>"$work/log" &
    pid=$!
    wait_until have_stopped 0
    kill -TERM $pid
    wait_until is_pending TERM $pid
    kill -CONT $pid
    end 75 "SIGTERM in evaluation $n"
    grep -q 'evaluation outlasted run.grace' "$work/log" || fail "$run: does not say that it dropped an evaluation"
    [ "$(grep -c '"eval"' "$work/runs/$run/metrics.jsonl")" = $((n - 1)) ] || fail "$run: not $((n - 1)) evaluations"
    [ -d "$work/runs/$run/checkpoints/step-0000000$((n < 4 ? 3 * n : 9))" ] || fail "$run: nothing was saved"
    train "${job[@]}" run.name=$run
    same $run calm
done
echo "an evaluation is dropped and done again"

# a start that hangs, at a fresh run and at one that is resumed
exits 75 '' "$DTRAIN" "$config" "${job[@]}" run.name=resumed run.stop_at=5
before=$(hash "$work/runs/resumed")
for run in fresh resumed; do
    DTRAIN_FAILPOINT=io:3:hang "$DTRAIN" "$config" "${job[@]}" run.name=$run >/dev/null 2>"$work/log" &
    pid=$!
    wait_until takes_signals $pid
    kill -TERM $pid
    end 75 "SIGTERM while $run starts"
    grep -q 'stopped by SIGTERM with nothing to save' "$work/log" || fail "$run: no word about the start"
done
[ "$(hash "$work/runs/resumed")" = "$before" ] || fail "the checkpoint is another one now"
for run in fresh resumed; do
    train "${job[@]}" run.name=$run
    same $run calm
done
# the config is not read yet
mkfifo "$work/slow"
exec 7<>"$work/slow"
"$DTRAIN" - <"$work/slow" >/dev/null 2>"$work/log" &
pid=$!
wait_until takes_signals $pid
kill -USR1 $pid
end 75 "SIGUSR1 while the config is read"
exec 7>&-
echo "a start that hangs ends with 75"

if have_mpi; then
    train_on 2 "${job[@]}" run.name=calm2
    DTRAIN_FAILPOINT=evaluate:2:stop "${ranks[@]}" 2 "$DTRAIN" "$config" "${job[@]}" run.name=two >/dev/null 2>"$work/log" &
    pid=$!
    wait_until have_stopped 2
    kill -TERM "${stopped[1]}" # one of them: all agree
    wait_until is_pending TERM "${stopped[1]}"
    kill -CONT "${stopped[@]}"
    end 75 "SIGTERM to one of two ranks in an evaluation"
    train_on 2 "${job[@]}" run.name=two
    same two calm2
    DTRAIN_FAILPOINT=io:3:hang "${ranks[@]}" 2 "$DTRAIN" "$config" "${job[@]}" run.name=start2 >/dev/null 2>"$work/log" &
    pid=$!
    wait_until all_take_signals
    wait_until test -d "$work/runs/start2" # MPI has started: mpirun itself may hang where a rank ends in the midst of that
    kill -USR1 $pid
    end 75 "SIGUSR1 while two ranks start"
    echo "the same on two ranks"
fi
