#!/usr/bin/env bash
# train.precision: fp16, emulated on the CPU: a step whose gradient is beyond fp16 is skipped and halves the loss scale;
# 2,000 finite steps double it; stopped anywhere, and on two ranks, the run has the same bits.
. "${SOURCE:?}/tests/small_run.sh" || exit
py make "$work/set.tar"
new_config "small, reproducible: elastic" <<YAML
    x: {kind: vector, size: [4]}
    cls: {kind: class}
model: {name: mlp, hidden: 8}
train:
  epochs: 100000
  max_steps: 60
  global_batch: 16
  micro_batch: 8
  precision: fp16
  targets: {cls: {loss: cross_entropy}}
  optimizer: {name: adamw, lr: 1.0e-3}
  schedule: {name: constant}
YAML
train
py check_scales "$work/runs/small/metrics.jsonl" || fail "scales"
grep -q 'overflowed in fp16 and was skipped' "$work/log" || fail "nothing about the skipped step"
train run.name=fp32 train.precision=fp32
[ "$(hash "$work/runs/small")" != "$(hash "$work/runs/fp32")" ] || fail "nothing was rounded"

# -- the gradient of a step has 11 bits: the second step's is in the momentum, scaled by a power of two
train run.name=once train.max_steps=2 'train.optimizer={name: sgd, lr: 1.0e-3, momentum: 0.9, weight_decay: 0}'
py check_bits "$work"/runs/once/checkpoints/step-00000002/optimizer.safetensors || fail "a gradient has more bits than fp16"

# -- the first step is skipped: a run that was stopped behind the second goes on with its scale and count
scaler() { grep -o '"scaler":{[^}]*}' "$work/runs/$1/checkpoints/step-00000060/state.json"; }
for at in 2 30; do
    exits 75 '' "$DTRAIN" "$config" run.name="stopped$at" run.stop_at=$at
    train run.name="stopped$at"
    [ "$(hash "$work/runs/small")" = "$(hash "$work/runs/stopped$at")" ] || fail "other bits when stopped at $at"
    [ "$(scaler small)" = "$(scaler "stopped$at")" ] || fail "another scale or count when stopped at $at"
done
if have_mpi; then
    train_on 2 run.name=two
    [ "$(hash "$work/runs/small")" = "$(hash "$work/runs/two")" ] || fail "other bits on two ranks"
fi

# -- it grows again
train run.name=long train.max_steps=2100 train.optimizer.lr=1.0e-9
py check_growth "$work/runs/long/metrics.jsonl" || fail "the scale does not grow"
echo passed
