#!/usr/bin/env bash
# Several targets on one trunk: the quadrant of a bright square (a class), whether it is red (0 or 1) and where it is
# (numbers), each with its head, loss and metrics. Evaluations have "quadrant.accuracy" and the like, and "loss" is the
# weighted sum. Without train.targets the fields that could be meant are named, with the place. Shares of classes that
# are none end the run. Any number of ranks gives the same weights.
. "${SOURCE:?}/tests/small_run.sh" || exit

py make "$work/set.tar"
new_config targets <<YAML
    image: {kind: image, source: bmp, channels: 3, size: [24, 24], normalize: {mean: [0.1], std: [0.2]}}
    quadrant: {kind: class, classes: 4}
    red: {kind: real}
    where: {kind: vector, source: [x, y], size: [2], normalize: {mean: [9.5], std: [5.8]}}
  split: {unit: record, val: 0.1, test: 0.2}
model: {name: resnet, depth: 10, width: 8}
train:
  epochs: 60
  global_batch: 16
  micro_batch: 8
  precision: fp32
  targets:
    quadrant: {label_smoothing: 0.05}
    red: {loss: bce, weight: 0.5}
    where: {loss: smooth_l1, weight: 2}
  optimizer: {name: adamw, lr: 3.0e-3}
  schedule: {name: cosine, warmup: 5%}
eval: {every: 30 epochs}
YAML
steps=${STEPS:-1000}

# what is refused
refused() { exits "$1" "$2" "$DTRAIN" check "$config" "${@:3}"; } # EXIT TEXT WORD …
refused 2 'small.yaml:10:10: 3 fields could be the target: quadrant (class), red (number), where (vector)' train.targets=
refused 2 'train.loss is for a single target' train.loss=mse
refused 2 'accuracy has a value for each of 2 targets: choose one by eval.target' eval.best=accuracy data.fields.red='{kind: class, classes: 2}' train.targets.red.loss=cross_entropy
refused 2 "'blue' is no name of train.targets; expected one of " eval.target=blue
refused 2 'geodesic is of 3 or 6 numbers, which none of train.targets gives; they give: .*accuracy.*mae' eval.metrics='[accuracy, geodesic]'
refused 3 'field where of sample .* bce expects numbers of 0..1' train.targets.where.loss=bce
refused 3 'adds up to .*, and cross_entropy expects shares of classes' train.targets.where.loss=cross_entropy \
    data.fields.where='{kind: vector, source: [part, red], size: 2, normalize: null}'

# a field that nothing reads, and a class without a sample to validate on, are told where a run starts and by check
again='data.fields.again={kind: class, classes: 4, source: quadrant}'
! "$DTRAIN" check "$config" 2>&1 >/dev/null | grep 'nothing reads\|no sample in the validation split' || fail "a warning of fields that are read"
for how in check train; do
    exits 0 'data.fields.again: nothing reads it: model resnet does not, and it is no target' \
        "$DTRAIN" $how "$config" run.name=again train.max_steps=1 "$again"
    exits 0 'field quadrant: 2 of 4 classes have no sample in the validation split (' \
        "$DTRAIN" $how "$config" run.name=few train.max_steps=1 data.split.val='x < 4' data.split.test=null
done

train train.max_steps=$((steps < 600 ? 40 : 400))
py check "$work/runs/targets/metrics.jsonl" "$work/out" "$steps" || fail "wrong metrics"
"$DTRAIN" eval "$work/runs/targets" >"$work/out" 2>"$work/log" || fail "eval"
grep -q '"quadrant.accuracy"' "$work/out" || fail "eval prints no quadrant.accuracy"
"$DTRAIN" export "$work/runs/targets" "$work/out.onnx" 2>"$work/log" || fail "export"
for output in quadrant.logits red.logits where.logits; do grep -aq "$output" "$work/out.onnx" || fail "no $output"; done
# the trunk of a network with one head, and a network with several of which one has other classes
sed '/^  targets:/,/^    where: {loss/d; /^    red: /d; /^    where: /d' "$config" >"$work/one.yaml"
"$DTRAIN" "$work/one.yaml" run.name=one train.max_steps=2 >"$work/out" 2>"$work/log" || fail "one target"
train train.max_steps=1 run.name=from_one model.init="$work/runs/one"
train train.max_steps=1 run.name=from_many model.init="$work/runs/targets" data.fields.where='{kind: vector, source: [x], size: 1, normalize: null}'
train train.max_steps=10 run.name=best eval.target=quadrant eval.every='4 steps'
grep -q '"best_value":0\.\|"best_value":1' "$work"/runs/best/checkpoints/step-*/state.json || fail "best is no accuracy"

if have_mpi; then
    for np in 1 2; do
        mpi $np "$DTRAIN" "$config" run.reproducible=elastic train.max_steps=12 run.name=np$np >/dev/null 2>"$work/log" || fail "exit $?"
    done
    [ "$(hash "$work/runs/np1")" = "$(hash "$work/runs/np2")" ] || fail "two ranks differ from one"
    cmp "$work"/runs/np[12]/result.json || fail "results of two ranks differ from those of one"
fi
