#!/usr/bin/env bash
# Figures of an evaluation carry the names of classes, labels and numbers, never their places; of two classes the one
# that is looked for is eval.positive; what a group has no value for is null, as JSON and as CSV, and no mean is over fewer
# labels than another of its name.
. "${SOURCE:?}/tests/small_run.sh" || exit
py make "$work"
new_config two <<YAML
    image: {kind: image, source: bmp, size: [8, 8], normalize: {mean: [0.5], std: [0.25]}}
    state: {kind: class}
  split: {unit: record, test: 0.5}
model: {name: resnet, depth: 10, width: 4}
train: {max_steps: 3, global_batch: 12, micro_batch: 12, precision: fp32}
eval: {every: 100 steps, metrics: [accuracy, confusion, report, precision, roc_auc, pr_auc]}
YAML
train
image='data.fields.image={kind: image, source: bmp, size: [8, 8]}'
train run.name=labels data.fields.state=null 'data.fields.flags={kind: vector, source: [odd, rare, never]}' train.loss=bce 'eval.metrics=[report, precision, roc_auc, pr_auc]'
train run.name=numbers data.fields.state=null 'data.fields.at={kind: vector, source: [a, b]}' train.loss=mse 'eval.metrics=[mae, angle_mae]'

ask() { # output, run, words
    exits 0 '' "$DTRAIN" eval "$work/runs/$2" --set "$work/set.tar" --which latest --csv "$work/$1.csv" "${@:3}"
    mv "$work/out" "$work/$1"
}
ask second two
ask first two 'eval.positive="ill, badly"'
ask labels labels 'eval.by=[side]' eval.bootstrap=10
ask numbers numbers
exits 0 '' "$DTRAIN" predict "$work/runs/two" "$work/set.tar" --which latest -o "$work/p.npy"
py check "$work" || fail "names"
refused() { exits 2 "$1" "$DTRAIN" eval "$work/runs/$2" --which latest "${@:3}"; }
refused "eval.positive: no target of two classes has a class 'mad'" two eval.positive=mad
refused "names classes of state twice" two 'eval.positive=["ill, badly", other]'
refused "no target of two classes has a class 'odd'" labels eval.positive=odd
