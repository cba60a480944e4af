#!/usr/bin/env bash
# train.early_stop, and a finished run that goes on longer: with the bits of the run that was as long from the start.
. "$SOURCE/tests/small_run.sh"
small_data "$work" 6 4
config=$(small_config "$work")
last_step() { ls "$work/runs/$1/checkpoints" | sed -n 's/^step-0*//p' | sort -n | tail -1; }

# -- with next to no rate nothing improves by min_delta: two evaluations after the first end the run
stop=(eval.every='2 steps' train.max_steps=20 train.optimizer.lr=1e-6 train.optimizer.weight_decay=0 eval.best=loss
      train.early_stop.patience=2 train.early_stop.min_delta=0.01)
train run.name=a "${stop[@]}"
[ "$(last_step a)" = 6 ] || fail "ended at step $(last_step a), not 6"
grep -q 'train.early_stop: loss has not improved since step 2$' "$work/log" || fail "no line about the early end"
grep -q '"split":"test"' "$work/runs/a/result.json" || fail "no test after an early end"
cp "$work/out" "$work/first"
train run.name=a "${stop[@]}"
grep -q 'is finished: 6 steps' "$work/log" || fail "a run that ended early goes on"
cmp "$work/first" "$work/out" || fail "other results when run again"

# -- a warm-up that is longer than the run
exits 0 'train.schedule.warmup: 30 steps, and the run has 6: the learning rate ends at 0.0002' \
    "$DTRAIN" check "$config" train.max_steps=6 train.schedule.warmup='30 steps' train.optimizer.lr=1e-3
exits 0 '' "$DTRAIN" check "$config" train.max_steps=6 train.schedule.warmup='6 steps'
! grep warmup "$work/log" || fail "a warm-up of the run's length is warned of"

# -- with more steps it does not resume either, and says why; with more patience it does
constant=(train.schedule.name=constant train.schedule.warmup=0)
train run.name=g "${stop[@]}" "${constant[@]}"
! grep -q 'does not resume' "$work/log" || fail "the first end is a refusal"
train run.name=g "${stop[@]}" "${constant[@]}" train.max_steps=30
grep -q 'ended this run at step 6, as loss had not improved since step 2: it does not resume' "$work/log" ||
    fail "no reason why a run that ended early does not resume"
train run.name=g "${stop[@]}" "${constant[@]}" train.max_steps=30 train.early_stop.patience=3 run.resume=force
[ "$(last_step g)" = 8 ] || fail "with more patience it ended at step $(last_step g), not 8"

# -- stopped in between, it ends where the undisturbed one did
exits 75 '' "$DTRAIN" "$config" run.name=b "${stop[@]}" run.stop_at=5
train run.name=b "${stop[@]}"
[ "$(last_step b)" = 6 ] || fail "a resumed run ended at step $(last_step b), not 6"
[ "$(hash "$work/runs/a")" = "$(hash "$work/runs/b")" ] || fail "other weights after a resume"

# -- run.stop_at again, or a lower one, does no step; a higher one goes on to it
exits 75 '' "$DTRAIN" "$config" run.name=again "${stop[@]}" run.stop_at=4
for at in 4 3; do
    exits 75 "run.stop_at=$at: 4 steps are done" "$DTRAIN" "$config" run.name=again "${stop[@]}" run.stop_at=$at
    [ "$(last_step again)" = 4 ] || fail "run.stop_at=$at again: at step $(last_step again)"
done
exits 75 '' "$DTRAIN" "$config" run.name=again "${stop[@]}" run.stop_at=5
[ "$(last_step again)" = 5 ] || fail "a higher run.stop_at: at step $(last_step again), not 5"

# -- without a validation split there is nothing to follow
exits 2 'train.early_stop follows evaluations' "$DTRAIN" "$config" run.name=c "${stop[@]}" data.split.val=0

# -- longer: the same command with more steps, where the past would have been the same
long=(train.schedule.name=constant "train.schedule.warmup=2 steps")
train run.name=d "${long[@]}" train.max_steps=12
train run.name=e "${long[@]}" train.max_steps=6
train run.name=e "${long[@]}" train.max_steps=12
grep -q 'train.max_steps was 6 and is 12 now: the run continues' "$work/log" || fail "no line about the longer run"
[ "$(last_step e)" = 12 ] || fail "the longer run ended at step $(last_step e)"
[ "$(hash "$work/runs/d")" = "$(hash "$work/runs/e")" ] || fail "a run that was extended has other weights"
train run.name=e "${long[@]}" train.max_steps=12
grep -q 'is finished: 12 steps' "$work/log" || fail "the longer run is not finished"

# -- under a cosine the past would have been another one
train run.name=f train.max_steps=6
exits 2 'other learning rates' "$DTRAIN" "$config" run.name=f train.max_steps=12
train run.name=f train.max_steps=12 run.resume=force
[ "$(last_step f)" = 12 ] || fail "forced, it ended at step $(last_step f)"
echo passed
