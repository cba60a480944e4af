#!/usr/bin/env bash
# train.optimizer.name: adafactor: trains, keeps rows and columns instead of elements, and has the same bits after a stop,
# on two threads and on two ranks. Its steps are those of torch in tests/golden.
. "${SOURCE:?}/tests/small_run.sh" || exit
small_data "$work" 6 4
config=$(small_config "$work" 6 large)
keys=(run.reproducible=elastic train.max_steps=12 train.optimizer.name=adafactor train.optimizer.lr=0.02 train.clip_norm=null
      train.clip_value=1 train.ema=0.9)
optimizer() { wc -c <"$work/runs/$1/checkpoints/step-00000012/optimizer.safetensors"; }

train run.name=whole "${keys[@]}"
py check_loss "$work/runs/whole/metrics.jsonl" || fail "the loss did not fall"
grep -aq 'variance_column' "$work"/runs/whole/checkpoints/step-00000012/optimizer.safetensors || fail "no columns in the checkpoint"
train run.name=adamw run.reproducible=elastic train.max_steps=12 train.optimizer.lr=1e-30
[ $((10 * $(optimizer whole))) -lt "$(optimizer adamw)" ] || fail "$(optimizer whole) bytes beside AdamW's $(optimizer adamw)"
exits 75 '' "$DTRAIN" "$config" run.name=stopped "${keys[@]}" run.stop_at=5
train run.name=stopped "${keys[@]}"
train run.name=threads "${keys[@]}" device.threads=2
if have_mpi; then
    train_on 2 run.name=two "${keys[@]}"
fi
for run in stopped threads two; do
    [ ! -d "$work/runs/$run" ] || [ "$(hash "$work/runs/$run")" = "$(hash "$work/runs/whole")" ] || fail "$run: other weights"
done
exits 2 'beta1' "$DTRAIN" "$config" run.name=bad "${keys[@]}" train.optimizer.beta1=0.9
echo passed
