#!/usr/bin/env bash
# eval.threshold: f1: of each label the threshold with the greatest F1 on the validation split, found by trying all; the
# test part, other sets and predictions are judged by it; the same on ranks and after a restart.
. "${SOURCE:?}/tests/small_run.sh" || exit
py make "$work"
new_config f1 <<YAML
    x: {kind: vector, size: [4]}
    flags: {kind: vector, source: [often, rare, never]}
    cls: {kind: class}
  split: {unit: record, val: 0.3, test: 0.3}
model: {name: mlp, hidden: 16}
train: {max_steps: 30, epochs: 100, global_batch: 32, micro_batch: 16, precision: fp32, optimizer: {name: adamw, lr: 1.0e-2}, targets: {cls: {loss: cross_entropy}, flags: {loss: bce}}}
eval: {every: 10 steps, threshold: f1, best: macro_f1, target: flags, metrics: [loss, macro_f1, precision, recall, exact_match]}
YAML
train
ask() { # output, words
    exits 0 '' "$DTRAIN" "${@:2}"
    mv "$work/out" "$work/$1"
}
run=$work/runs/f1
for split in val test; do
    ask $split.json eval "$run" --split $split
    ask $split.csv predict "$run" --split $split --logits eval.threshold=0.4
done
exits 2 'eval.threshold: f1 chooses on the run.s validation split' "$DTRAIN" predict "$run" --split test
exits 2 'dtrain eval .*/runs/f1 --calibrate' "$DTRAIN" eval "$run" --set "$work/set.tar"
ask calibrate.json eval "$run" --calibrate
ask set.json eval "$run" --set "$work/set.tar"
ask set.csv predict "$run" "$work/set.tar" --logits
ask nothing predict "$run" "$work/set.tar" -o "$work/set.jsonl"
ask twice.csv predict "$run" "$run" "$work/set.tar"
py check "$work" || fail "thresholds"

# ---- ranks, a restart, one label -------------------------------------------------------------
exits 75 '' "$DTRAIN" "$config" run.name=stopped run.stop_at=15
train run.name=stopped
cmp "$run/result.json" "$work/runs/stopped/result.json" || fail "a restart chooses other thresholds"
if have_mpi; then
    exits 0 '' "${ranks[@]}" 2 "$DTRAIN" eval "$run" --split test
    cmp "$work/out" "$work/test.json" || fail "two ranks choose other thresholds"
    exits 0 '' "${ranks[@]}" 2 "$DTRAIN" predict "$run" "$work/set.tar" --logits
    cmp "$work/out" "$work/set.csv" || fail "two ranks predict other labels"
    exits 2 'dtrain eval .*/runs/stopped --calibrate' "${ranks[@]}" 2 "$DTRAIN" predict "$work/runs/stopped" "$work/set.tar"
fi
# folds: each run is calibrated before it predicts what it held out
exits 0 '' "$DTRAIN" sweep "$config" run.name=folds data.split.test= data.split.folds=2 data.split.fold=0,1
py check_folds "$work" || fail "folds"

# one target, of one label
one=(run.name=one data.fields.x=null 'data.fields.bmp={kind: image, size: [8, 8]}' data.fields.cls=null
     'data.fields.flags={kind: vector, source: [rare]}' train.targets= train.loss=bce eval.target= model.name=resnet
     model.hidden= model.depth=10 model.width=4)
train "${one[@]}"
ask one.json eval "$work/runs/one" --split val
ask calibrate.json eval "$work/runs/one" --calibrate
ask one.csv predict "$work/runs/one" --split val
ask nothing predict "$work/runs/one" --split val -o "$work/one.jsonl"
py check_one "$work" || fail "one label"

refused 'eval.threshold is .best.; expected a number in 0..1, or f1' eval.threshold=best
refused 'eval.threshold: f1 chooses on the validation split, and there is none' data.split.val=
refused 'eval.threshold: f1 is for multi-label classification' train.targets.flags=null eval.target= data.fields.flags=null
echo passed
