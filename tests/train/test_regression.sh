#!/usr/bin/env bash
# Numbers as targets: a network learns the position of a bright square from small pictures, with the
# target normalised; mae and rmse come back in its own units and agree with each other. The same target
# from two columns of the catalog (one of numbers, one of whole numbers as text) gives the same weights.
. "${SOURCE:?}/tests/small_run.sh" || exit

py make "$work/set.tar"
new_config numbers <<YAML
    image: {kind: image, source: bmp, channels: 3, size: [24, 24], normalize: {mean: [0.1], std: [0.2]}}
    where: {kind: vector, size: [2], normalize: {mean: [195, -47.5], std: [58, 29]}}
  split: {unit: record, val: 0.1, test: 0.2}
model: {name: resnet, depth: 10, width: 8}
train:
  epochs: 60
  global_batch: 16
  micro_batch: 8
  precision: fp32
  loss: smooth_l1
  optimizer: {name: adamw, lr: 3.0e-3}
  schedule: {name: cosine, warmup: 5%}
eval: {every: 30 epochs, metrics: [loss, mae, rmse], best: mae}
YAML
steps=${STEPS:-1000}
train train.max_steps=$((steps < 600 ? 40 : 600))
py check "$work/runs/numbers/metrics.jsonl" "$work/out" "$steps" || fail "wrong errors"
train train.max_steps=12 run.name=member
train train.max_steps=12 run.name=columns 'data.fields.where={kind: vector, source: [x, y], normalize: {mean: [195, -47.5], std: [58, 29]}}'
[ "$(hash "$work/runs/member")" = "$(hash "$work/runs/columns")" ] || fail "a target from columns trains differently from one in a member"
# normalize: auto is the training part's mean and deviation, answered once: the same run with the numbers is the same;
# a run that goes on, from its config too, and an evaluation take them; without it a warning has the line
auto='data.fields.where={kind: vector, source: [x, y], normalize: auto}'
exits 75 '' "$DTRAIN" "$config" train.max_steps=12 run.name=auto "$auto" run.stop_at=6
train train.max_steps=12 run.name=auto "$auto"
py check_moments "$work/runs/auto" "$work/set.tar" "$DTRAIN" || fail "normalize: auto: $(grep normalize "$work/runs/auto/config.yaml")"
moments=$(py moments "$work/runs/auto/config.yaml")
train train.max_steps=12 run.name=given "data.fields.where={kind: vector, source: [x, y], normalize: $moments}"
[ "$(hash "$work/runs/auto")" = "$(hash "$work/runs/given")" ] || fail "normalize: auto and its answer train differently"
train train.max_steps=12 run.name=auto_member 'data.fields.where={kind: vector, size: 2, normalize: auto}'
py check_moments "$work/runs/auto_member" "$work/set.tar" "$DTRAIN" || fail "normalize: auto of a member"
[ "$(hash "$work/runs/auto")" = "$(hash "$work/runs/auto_member")" ] || fail "normalize: auto of a member trains differently"
exits 0 "finished" "$DTRAIN" "$work/runs/auto"
exits 0 '' "$DTRAIN" eval "$work/runs/auto"
exits 0 "add  normalize: auto" "$DTRAIN" "$config" run.name=far train.max_steps=1 'data.fields.where={kind: vector, source: [x, y], normalize: null}'
exits 0 "add  normalize: auto" "$DTRAIN" check "$config" 'data.fields.where={kind: vector, source: [x, y], normalize: null}'
exits 2 "auto is for numbers" "$DTRAIN" check "$config" data.fields.image.normalize=auto
# a vector of one column, whose size nobody says: trained, used without its values, checked without the data
one='data.fields.where={kind: vector, source: x, size: null, normalize: {mean: [195], std: [58]}}'
train train.max_steps=2 run.name=one "$one"
"$DTRAIN" predict "$work/runs/one" "$work/set.tar" >"$work/out" 2>"$work/log" || fail "predict: one column"
exits 0 "checked without the data" "$DTRAIN" check "$config" "$one" data.path="$work/none.tar"
"$DTRAIN" eval "$work/runs/numbers" >"$work/out" 2>"$work/log" || fail "eval"
grep -q '"mae"' "$work/out" || fail "eval prints no mae"
echo "numbers learned; mae and rmse in their own units"
