#!/usr/bin/env bash
# data.fields.*.mirror: numbers change sign where data.augment flips their image, and only there: the loss of the first
# step is that of the targets computed here, for angles with a mean and for the columns of a rotation.
. "${SOURCE:?}/tests/small_run.sh" || exit
py make "$work/set.tar"
new_config still <<YAML
    image: {kind: image, source: bmp, channels: 3, size: [8, 8]}
    pose: {kind: vector, source: [yaw, pitch, roll], normalize: {mean: [5, 1, -2], std: [30, 16, 12]}, mirror: [-1, 1, -1]}
  augment: {image: [{flip: {axis: horizontal, p: 0}}]}
model: {name: layers, layers: [global_pool]} # predicts the same in training
train: {max_steps: 1, global_batch: 16, micro_batch: 16, precision: fp32, loss: mse, optimizer: {name: sgd, lr: 1.0e-30}}
YAML
loss() { py value "$work/runs/$1/metrics.jsonl" 'next(r["loss"] for r in rows if "loss" in r)'; }
train
train run.name=flipped 'data.augment.image=[{flip: {axis: horizontal, p: 1}}]'
train run.name=twice 'data.augment.image=[{flip: {axis: horizontal, p: 1}}, {flip: {axis: horizontal, p: 1}}]'
train run.name=upside 'data.augment.image=[{flip: {axis: vertical, p: 1}}]'
six='data.fields.pose={kind: vector, source: six, size: 6, mirror: [1, -1, -1, -1, 1, 1], normalize: {mean: [0], std: [1]}}'
train run.name=six "$six"
train run.name=six_flipped "$six" 'data.augment.image=[{flip: {axis: horizontal, p: 1}}]'
[ "$(loss twice)" = "$(loss still)" ] && [ "$(loss upside)" = "$(loss still)" ] || fail "mirrored without need"
[ "$(loss flipped)" != "$(loss still)" ] && [ "$(loss six)" != "$(loss six_flipped)" ] || fail "not mirrored"
for run in flipped six_flipped; do
    "$DTRAIN" predict "$work/runs/$run" "$work/set.tar" --which latest -o "$work/$run.jsonl" 2>"$work/log" || fail predict
done
py check_targets "$work" "$(loss flipped)" "$(loss six_flipped)" || fail "other targets"
refused 'mirror has 2 factors, field pose has 3 numbers' 'data.fields.pose.mirror=[-1, 1]'
refused "'2' is neither 1 nor -1" 'data.fields.pose.mirror=[2, 1, 1]'
exits 2 'field pose changes sign with the image' "$DTRAIN" predict "$work/runs/flipped" "$work/set.tar" --which latest \
    --tta flip -o "$work/x.jsonl"
echo passed
