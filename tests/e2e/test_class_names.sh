#!/usr/bin/env bash
# Which number a class has belongs to the run. A data set that has some of its classes, or has them in another order,
# gets the run's numbers; a class that the run does not know, a class without records, numbers instead of names and a
# second class field are told.
. "${SOURCE:?}/tests/small_run.sh" || exit

py make "$work"
new_config names <<YAML
    image: {kind: image, source: bmp, size: [12, 12], normalize: {mean: [0.5, 0.5, 0.5], std: [0.25, 0.25, 0.25]}}
    label: {kind: class}
  split: {unit: record, val: 0.2, test: 0.2}
model: {name: resnet, depth: 10, width: 8}
train: {epochs: 12, global_batch: 16, micro_batch: 16, precision: fp32, optimizer: {name: adamw, lr: 3.0e-3}}
eval: {every: 12 epochs, metrics: [accuracy, recall, confusion]}
YAML
train

is() { [ "$(py value "$work/out" "$1")" = "$2" ] || fail "$1 is $(py value "$work/out" "$1"), not $2: $(cat "$work/out")"; }
eval_on() { # run, set, words
    local run=$1 set=$2 rc=0
    shift 2
    "$DTRAIN" eval "$work/runs/$run" data.path="$work/$set.tar" "$@" >"$work/out" 2>"$work/log" || rc=$?
    [ $rc = "${want:-0}" ] || fail "$run on $set: exit $rc, not ${want:-0}"
}
told() { grep -qF -- "$1" "$work/log" || fail "not told: $1"; }

eval_on names set
is 'r["accuracy"] > 0.95' True
eval_on names some
is 'r["accuracy"] > 0.95' True
is '[sum(row.values()) > 0 for row in r["confusion"].values()]' "[False, True, False, True]"
is 'sorted(k for k in r if k.startswith("recall."))' "['recall.bee', 'recall.dog']"
told "field label: 2 of 4 classes have no record: there is no ant, cat"
want=2 eval_on names other
told "config.yaml:"
told "column label has class 'elk', which this run does not know: its 4 classes are ant, bee, cat, dog"
eval_on names other data.where="label != 'elk'"
want=2 eval_on names numbers
told "column label has class '0', which this run does not know: its 4 classes are ant, bee, cat, dog"
# the same where the config is named instead of the run
"$DTRAIN" eval "$config" data.path="$work/some.tar" >"$work/out" 2>"$work/log" || fail "eval CONFIG: exit $?"
is 'r["accuracy"] > 0.95' True

# predictions are names of the run, whichever numbers the set would give them; labels of the set are not looked at
"$DTRAIN" predict "$work/runs/names" "$work/some.tar" --top 1 >"$work/out" 2>"$work/log" || fail "predict: exit $?"
py check_predictions "$work/out" || fail "predict: $(head -5 "$work/out")"
"$DTRAIN" predict "$work/runs/names" "$work/other.tar" --top 1 >"$work/out" 2>"$work/log" || fail "predict of unknown classes: exit $?"

# numbers stay what they are, also where some are missing; names are not taken for them
train run.name=digits data.path="$work/digits.tar"
eval_on digits few
is 'r["accuracy"] > 0.95' True
is '[sum(row.values()) > 0 for row in r["confusion"].values()]' "[False, True, False, True]"
told "2 of 4 classes have no record: there is no 0, 2"
want=2 eval_on digits some
told "column label has class 'bee', which this run does not know: its 4 classes are the numbers 0, 1, 2, 3"

# where they are kept
py check_checkpoint "$work"/runs/names/checkpoints/step-* || fail "not in the checkpoint"

# a head that is taken over names other classes
weights=$(ls -d "$work"/runs/names/checkpoints/step-* | tail -1)/model.safetensors
train run.name=tuned data.path="$work/digits.tar" model.init="$weights" train.max_steps=1
told "class 0 of label was 'ant' there and is '0' here"
train run.name=tuned2 model.init="$weights" train.max_steps=1
! grep -q "was 'ant' there" "$work/log" || fail "equal classes are no matter"

# fewer classes than the config says; two fields that are classes
train run.name=wide data.fields.label.classes=6 train.max_steps=1
told "field label: 2 of 6 classes have no record: there are only ant, bee, cat, dog"
sed 's/^    label: .*/&\n    hand: {kind: class}/' "$config" >"$work/two.yaml"
exits 2 two.yaml:10: "$DTRAIN" "$work/two.yaml" run.name=two
told "2 fields could be the target: label (class), hand (class)"
