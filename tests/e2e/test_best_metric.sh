#!/usr/bin/env bash
# What an evaluation goes by: eval.best: auto takes what says something of this split and this target, a metric that
# cannot be computed is refused at its line, result.json has what there is to say of a run without a test part, and
# check refuses what training would.
. "${SOURCE:?}/tests/small_run.sh" || exit

small_data "$work"
config=$(small_config "$work")
short=(train.max_steps=3)
refused() { exits 2 "$@"; } # TEXT COMMAND …
result() { py value "$work/runs/$1/result.json" "$2"; }
is() { [ "$(result "$1" "$2")" = "$3" ] || fail "$1: $2 is $(result "$1" "$2"), not $3"; }

# people who are in one part only: none of the evaluated classes is trained on
train "${short[@]}" run.name=people data.split.unit=subject data.split.val=0.3 data.split.test=0.3 'data.split.stratify=hand'
is people '[k for k in ("loss", "eer", "pair_auc", "accuracy") if k in r]' "['loss', 'eer', 'pair_auc']"
py check_people "$work"/runs/people/checkpoints/step-*/state.json || fail "eer does not pick the best checkpoint"
cp "$config" "$work/people.yaml"
sed -i 's/unit: record, stratify: subject/unit: subject/; s/^eval: {/&best: accuracy, /' "$work/people.yaml"
refused "people.yaml:22:" "$DTRAIN" check "$work/people.yaml" data.split.val=0.3 data.split.test=0.3
grep -q "accuracy is of classes that training sees" "$work/log" || fail "no reason: $(cat "$work/log")"

refused "eval.best is 'auroc'.*did you mean 'roc_auc'" "$DTRAIN" check "$config" eval.best=auroc
# the name of an earlier release: read, and named
exits 0 "'auc' is 'pair_auc' now" "$DTRAIN" check "$config" eval.best=auc
exits 0 "'auc' is 'pair_auc' now" "$DTRAIN" check "$config" 'eval.metrics=[auc]'

# of many classes nothing is kept that takes memory for each class of each sample, and check counts what is kept
predictions() { "$DTRAIN" check "$config" data.split.val=0.5 "metrics.sinks=[jsonl, report]" "$@" 2>"$work/log" | awk '$1 == "predictions" {print $2}'; }
refused "roc_auc is of at most 1000 classes, and subject has 1001; possible here: accuracy," \
    "$DTRAIN" check "$config" 'eval.metrics=[roc_auc]' data.fields.subject.classes=1001
for classes in 100 1000 20000; do told+="$(predictions 'eval.metrics=[accuracy, loss]' data.fields.subject.classes=$classes) "; done
[ "$told$(predictions 'eval.metrics=[roc_auc]' data.fields.subject.classes=1000)" = "0.0 0.0 0.0 0.2" ] || fail "check counts $told MiB of predictions"

# people of whom other pictures are trained on; parts by another column leave their classes in all of them
train "${short[@]}" run.name=records
is records '"accuracy" in r and "eer" not in r' True
train "${short[@]}" run.name=others data.split.unit=n data.split.val=0 data.split.test=0.4
is others '"accuracy" in r and "eer" not in r' True

grep -qx "  best: accuracy" "$work/runs/records/config.yaml" || fail "not told"
# a class that is rare counts as much as another; the answer is kept, also in the resolved config, which resumes
train "${short[@]}" run.name=rare data.where="subject not in (1, 2) or n = 1" data.split.stratify=null
is rare '"macro_f1" in r and "accuracy" in r' True
grep -q "best checkpoint is that of macro_f1" "$work/log" && grep -qx "  best: macro_f1" "$work/runs/rare/config.yaml" || fail "rare: $(cat "$work/log")"
py check_rare "$work"/runs/rare/checkpoints/step-*/state.json || fail "the answer is not kept"
sed 's/max_steps: 3/max_steps: 4/' "$work/runs/rare/config.yaml" >"$work/rare.yaml"
"$DTRAIN" "$work/rare.yaml" run.resume=force >"$work/out" 2>"$work/log" || fail "the resolved config does not resume: $(cat "$work/log")"
! grep -q "eval.best" "$work/log" || fail "eval.best is taken for another: $(cat "$work/log")"
train "${short[@]}" run.name=rare2 data.where="subject not in (1, 2) or n = 1" data.split.stratify=null eval.best=accuracy
is rare2 '"macro_f1" in r' False

# several labels have no accuracy
sed 's/^    subject:.*/    labels: {kind: vector, source: [width, height], normalize: {mean: [0, 0], std: [1000, 1000]}}/; s/^eval: {/&best: accuracy, /' "$config" >"$work/bce.yaml"
refused "bce.yaml:22:14: accuracy is of classes" "$DTRAIN" check "$work/bce.yaml" train.loss=bce

# of one class; the resolved config resumes
train "${short[@]}" run.name=one_class eval.best=recall.3 'eval.metrics=[accuracy]'
grep -q "best checkpoint is that of recall.3" "$work/log" || fail "one class: $(cat "$work/log")"
is one_class 'rows[0]["chosen_by"], any("recall.3" in l for l in rows[1:])' "('recall.3', True)"
sed 's/max_steps: 3/max_steps: 4/' "$work/runs/one_class/config.yaml" >"$work/one_class.yaml"
exits 0 '' "$DTRAIN" "$work/one_class.yaml" run.resume=force
refused "eval.best_class: 'six' is no class; expected one of 1, 2, 3, 4, 5, 6" "$DTRAIN" check "$config" eval.best=recall.six
refused "eval.best: accuracy has no value of each class here; recall has" "$DTRAIN" check "$config" eval.best=accuracy.3

# without a test part, and without a validation split
train "${short[@]}" run.name=val data.split.test=0
is val '[(l["split"], l["weights"]) for l in rows]' "[('train', 'last'), ('val', 'best and last')]"
is val '"accuracy" in rows[1] and rows[0]["loss"] > 0 and rows[0]["step"] == 3' True
train "${short[@]}" run.name=none data.split.test=0 data.split.val=0 data.split.stratify=subject
is none '[l["split"] for l in rows]' "['train']"
grep -qE "[0-9.]+ samples/s in steps, [0-9.]+ without the first" "$work/log" || fail "not both rates"
# a run that was ended between its last checkpoint and its results says the same
cp "$work/runs/val/result.json" "$work/whole.json"
rm "$work/runs/val/result.json"
train "${short[@]}" run.name=val data.split.test=0
cmp "$work/whole.json" "$work/runs/val/result.json" || fail "other results from the last checkpoint"

# check says what training would
refused "plateau follows evaluations, and there is no validation split" "$DTRAIN" check "$config" train.schedule.name=plateau \
    data.split.val=0
refused "no sample to train on" "$DTRAIN" check "$config" data.split.val=0 data.split.test=1

# a set that is all test
"$DTRAIN" eval "$work/runs/records" data.split.val=0 data.split.test=1 >"$work/out" 2>"$work/log" || fail "a pure test set: exit $?"
n=$("$DTRAIN" check "$config" 2>/dev/null | grep -oE '[0-9]+ samples:' | cut -d' ' -f1)
grep -q "\"samples\":$n," "$work/out" || fail "not all $n samples: $(cat "$work/out")"
