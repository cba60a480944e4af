#!/usr/bin/env bash
# dtrain predict: any set, folder, list or file, labelled or not, in its order, the same on ranks; what cannot be read is
# a row with its reason; CSV, JSON lines and NPY say the same.
. "${SOURCE:?}/tests/small_run.sh" || exit

py make "$work"
new_config names <<YAML
    image: {kind: image, source: bmp, size: [12, 12], normalize: {mean: [0.5, 0.5, 0.5], std: [0.25, 0.25, 0.25]}}
    label: {kind: class}
  split: {unit: record, val: 0.2, test: 0.2}
  augment: {image: [{flip: horizontal}]}
model: {name: resnet, depth: 10, width: 8}
train: {epochs: 6, global_batch: 16, micro_batch: 8, precision: fp32, optimizer: {name: adamw, lr: 3.0e-3}}
eval: {every: 6 epochs, metrics: [accuracy]}
YAML
train

predict() { # output, run, words
    local out=$1 run=$2
    shift 2
    "$DTRAIN" predict "$work/runs/$run" "$@" >"$work/$out" 2>"$work/log" || fail "exit $?: predict $run $*"
}

# the same classes as eval finds, on a set where not all is right
predict hard.csv names "$work/hard.tar"
predict plain.csv names "$work/hard.tar" data.augment=null
cmp "$work/hard.csv" "$work/plain.csv" || fail "what is predicted is augmented as in training"
"$DTRAIN" eval "$work/runs/names" --which best --set "$work/hard.tar" >"$work/eval" 2>"$work/log" || fail "eval"
predict hard.jsonl names "$work/hard.tar" -o "$work/out.jsonl" --logits --embeddings
predict nothing names "$work/hard.tar" -o "$work/out.npy"
predict nothing names "$work/hard.tar" -o "$work/logits.npy" --logits
grep -q "logits.npy: predictions of [1-9][0-9]* samples in .* samples/s)" "$work/log" || fail "no closing line"
"$DTRAIN" synth photos "$work/photos" --n 4 2>"$work/log"
grep -q "photos: 4 .* in " "$work/log" || fail "no closing line of synth"
[ ! -s "$work/nothing" ] || fail "stdout with -o"
[ ! -e "$work/out.npy.part" ] || fail "a part is left"
py check_rows "$work" || fail "rows"

# an unlabelled tar, a folder with a broken picture, a list in its order, one picture
predict bare.csv names "$work/bare.tar" --top 1
[ "$(sed 1d "$work/bare.csv" | wc -l)" = 8 ] || fail "bare"
predict new.csv names "$work/new" --top 1
py check_folder "$work" || fail "the folder's rows"
grep -q "1 sample could not be read" "$work/log" || fail "not told"
predict list.csv names "$work/list.txt" --top 1
mkdir "$work/odd"
cp "$work/new/02.bmp" "$work/odd/a"$'\e[2J\n'',"b.bmp'
predict odd.csv names "$work/odd"
grep -qF 'a\x1b[2J\n,""b.bmp"' "$work/odd.csv" && ! LC_ALL=C grep -q $'\e' "$work/odd.csv" && [ "$(wc -l <"$work/odd.csv")" = 2 ] ||
    fail "a name reaches the terminal: $(cat -v "$work/odd.csv")"
cut -d, -f1 "$work/list.csv" | tr '\n' ' ' | grep -x "key new/07 new/05 new/02 " >/dev/null || fail "order of the list: $(cat "$work/list.csv")"
predict one.csv names "$work/new/02.bmp" --top 1
[ "$(sed 's/^new.//' "$work/list.csv" | sed -n 4p)" = "$(sed -n 2p "$work/one.csv")" ] || fail "one picture: $(cat "$work/one.csv")"
exits 3 '' "$DTRAIN" predict "$work/runs/names" "$work/new" data.on_error=fail
exits 2 'runs/nosuch: no run' "$DTRAIN" predict "$work/runs/nosuch" --split test

# the same bytes however it is computed
predict again names "$work/hard.tar" device.threads=2 device.replicas=2
cmp "$work/hard.csv" "$work/again" || fail "replicas"
if have_mpi; then
    mpi 3 "$DTRAIN" predict "$work/runs/names" "$work/hard.tar" >"$work/again" 2>"$work/log" || fail "3 ranks: exit $?"
    cmp "$work/hard.csv" "$work/again" || fail "3 ranks"
    mpi 3 "$DTRAIN" predict "$work/runs/names" "$work/new" --top 1 >"$work/again" 2>"$work/log" || fail "3 ranks: exit $?"
    cmp "$work/new.csv" "$work/again" || fail "3 ranks, a broken picture"
fi
python3 -c 'import pty, sys; sys.exit(pty.spawn(sys.argv[1:]))' "$DTRAIN" predict "$work/runs/names" "$work/hard.tar" -o "$work/o.csv" >"$work/screen"
grep -q 'predict \[#*\] 150/150 samples' "$work/screen" || fail "no line of progress: $(cat "$work/screen")"

# numbers in the field's unit, labels of which several can be true, several targets
sed 's/label: {kind: class}/angle: {kind: real, normalize: {mean: [100], std: [80]}}/; s/lr: 3.0e-3}/&, loss: mse/
     s/accuracy/mae/' "$config" >"$work/angle.yaml"
config=$work/angle.yaml
train run.name=angle train.epochs=20
predict angle.csv angle "$work/bare.tar"
predict nothing angle "$work/bare.tar" --logits -o "$work/angle.jsonl"
sed 's/label: {kind: class}/flags: {kind: vector, source: [odd, third]}\n    label: {kind: class}/
     s/lr: 3.0e-3}/&, targets: {label: {loss: cross_entropy}, flags: {loss: bce}}/; s/metrics: \[accuracy\]/metrics: [loss]/' "$work/small.yaml" >"$work/two.yaml"
config=$work/two.yaml
train run.name=two
predict two.csv two "$work/bare.tar" --top 2 --logits
predict nothing two "$work/bare.tar" -o "$work/two.jsonl"
py check_targets "$work" || fail "numbers, several targets"
# where the set has what is predicted, the truth stands beside it; further columns as wished
predict truth.csv two "$work/hard.tar" --columns third,angle
predict nothing two "$work/hard.tar" --columns third,angle -o "$work/truth.jsonl"
predict truth2.csv angle "$work/hard.tar"
py check_truth "$work" || fail "the truth beside predictions"
exits 2 "label is what is predicted; its true value is label.truth" "$DTRAIN" predict "$work/runs/two" "$work/hard.tar" --columns label
exits 2 "rows have angle already" "$DTRAIN" predict "$work/runs/two" "$work/hard.tar" --columns angle,third,angle
exits 2 "rows have key already" "$DTRAIN" predict "$work/runs/two" "$work/hard.tar" --columns key
exits 2 "no column 'thrid'.*did you mean 'third'" "$DTRAIN" predict "$work/runs/two" "$work/hard.tar" --columns angle,thrid

# ---- parts of the run's own data, and the run's data.where -----------------------------------------
config=$work/small.yaml
train run.name=part data.path="$work/hard.tar" data.where="key >= '0030'" train.max_steps=30 data.augment=null
for split in train val test; do
    predict $split.csv part --split $split
    "$DTRAIN" eval "$work/runs/part" --split $split >"$work/$split.json" 2>"$work/log" || fail "eval"
done
! grep -q 'may contain training samples' "$work/log" || fail "the run's own parts are called others"
exits 0 "data, columns or split are not those of the training: the test split may contain training samples" "$DTRAIN" eval "$work/runs/part" data.where="key >= '0020'"
predict moved.csv part "$work/hard.tar" --split val
cmp "$work/val.csv" "$work/moved.csv" || fail "--split of a set that is named"
predict where.csv part "$work/hard.tar"
grep -q "120 records of 150 (data.where)" "$work/log" || fail "records are left out without a word"
predict all.csv part "$work/hard.tar" data.where=null
predict some.csv part "$work/hard.tar" data.where="key < '0007'"
predict folder.csv part "$work/new" data.where=null
"$DTRAIN" predict "$work/runs/part" "$work/runs/part" --split test >"$work/twice.csv" 2>"$work/log" || fail "two runs, their own data"
py check_parts "$work" || fail "parts"

refused() {
    exits 2 "$1" "$DTRAIN" predict "${@:2}"
}
refused "not one of train|val|test" "$work/runs/part" --split all
refused "data.where=null takes all records" "$work/runs/part" "$work/set.tar" data.where="camera = 'left'"
exits 2 "data.columns.turned does not fit this data set: .* no column 'angel'.*; make it of what the set has, behind the command: data.columns.turned=" \
    "$DTRAIN" eval "$work/runs/angle" --set "$work/hard.tar" data.columns.turned="angel + 1" data.fields.angle.source=turned
refused "expects a run, or several, and a data set" "$work/runs/names"
refused "to_parquet" "$work/runs/names" "$work/new" -o "$work/a.parquet"
refused "unknown extension" "$work/runs/names" "$work/new" -o "$work/a.txt"
refused "holds one array, and the run has 2 targets" "$work/runs/two" "$work/new" -o "$work/a.npy"
refused "take --logits or --embeddings" "$work/runs/names" "$work/new" -o "$work/a.npy" --logits --embeddings

# ---- several passes --------------------------------------------------------------------------------
# an ensemble is the mean; by uncertainty the surer run counts more
config=$work/small.yaml
train run.name=other run.seed=6 train.epochs=2 model.dropout=0.3
npy() { predict nothing "$@" -o "$work/$out.npy"; }
out=a npy names "$work/hard.tar"
out=b npy other "$work/hard.tar"
"$DTRAIN" predict "$work/runs/names" "$work/runs/other" "$work/hard.tar" >"$work/both.csv" 2>"$work/log" || fail "ensemble"
"$DTRAIN" predict "$work/runs/names" "$work/runs/other" "$work/hard.tar" --weights uncertainty >"$work/sure.csv" 2>"$work/log" ||
    fail "ensemble by uncertainty"
predict mc.csv other "$work/hard.tar" --mc 8
predict mc2.csv other "$work/hard.tar" --mc 8 device.threads=2 device.replicas=2
cmp "$work/mc.csv" "$work/mc2.csv" || fail "--mc: other replicas, other masks"
predict seed.csv other "$work/hard.tar" --mc 8 run.seed=7
! cmp -s "$work/mc.csv" "$work/seed.csv" || fail "--mc does not follow the seed"
predict tta.csv names "$work/hard.tar" --tta flip,scale
predict flip.csv names "$work/hard.tar" 'data.augment.image=[{flip: {axis: horizontal, p: 1}}]'
py check_means "$work" || fail "means"
if have_mpi; then
    mpi 3 "$DTRAIN" predict "$work/runs/other" "$work/runs/names" "$work/hard.tar" --mc 2 --weights uncertainty run.seed=3 \
        model.dropout=0.3 --tta flip >"$work/again" 2>"$work/log" || fail "3 ranks: exit $?"
    "$DTRAIN" predict "$work/runs/other" "$work/runs/names" "$work/hard.tar" --mc 2 --weights uncertainty run.seed=3 \
        model.dropout=0.3 --tta flip >"$work/alone" 2>"$work/log" || fail "exit $?"
    cmp "$work/alone" "$work/again" || fail "3 ranks, several passes"
fi
# eval of several runs is of the means that predict makes: classes, numbers of other units, several targets
config=$work/angle.yaml
train run.name=angle2 run.seed=6 train.epochs=5 'data.fields.angle.normalize={mean: [60], std: [30]}'
config=$work/two.yaml
train run.name=two2 run.seed=6 train.epochs=3
config=$work/small.yaml
ensemble() { # NAME METRICS RUN RUN SET
    local runs=("$work/runs/$3" "$work/runs/$4") words=(--set "$work/$5.tar" "eval.metrics=[$2]" eval.best=auto)
    "$DTRAIN" predict "${runs[@]}" "$work/$5.tar" --top 4 >"$work/ensemble.$1.csv" 2>"$work/log" || fail "predict ${runs[*]}"
    "$DTRAIN" eval "${runs[@]}" "${words[@]}" >"$work/ensemble.$1.json" 2>"$work/log" || fail "eval ${runs[*]}"
    py check_ensemble "$work" "$1" "$5" || fail "eval of an ensemble: $1"
    ! have_mpi || mpi 2 "$DTRAIN" eval "${runs[@]}" "${words[@]}" 2>"$work/log" | cmp - "$work/ensemble.$1.json" || fail "2 ranks: $1"
}
ensemble classes 'loss, accuracy, roc_auc' names other hard
ensemble numbers 'loss, mae' angle angle2 set
ensemble several 'loss, accuracy, roc_auc' two two2 hard
exits 2 "of one run" "$DTRAIN" eval "$work/runs/names" "$work/runs/other" --calibrate
exits 2 "an ensemble predicts the same" "$DTRAIN" eval "$work/runs/names" "$work/runs/angle" --set "$work/set.tar"
exits 0 "metrics of pairs are left out" "$DTRAIN" eval "$work/runs/names" "$work/runs/other" 'eval.metrics=[accuracy, eer]'
refused "--mc draws dropout masks, and run names was trained without" "$work/runs/names" "$work/new" --mc 3
refused "an ensemble predicts the same" "$work/runs/names" "$work/runs/angle" "$work/new"
refused "are of one pass" "$work/runs/names" "$work/runs/other" "$work/new" --logits
refused "not one of flip, scale" "$work/runs/names" "$work/new" --tta turn
refused "is there twice" "$work/runs/names" "$work/new" --tta flip,flip

# ---- temperature -----------------------------------------------------------------------------------
train run.name=cal data.path="$work/hard.tar" data.split.val=0.4 data.split.test=null train.epochs=30
predict before.csv cal "$work/hard.tar" --logits
"$DTRAIN" eval "$work/runs/cal" --calibrate >"$work/cal.json" 2>"$work/log" || fail "--calibrate"
predict after.csv cal "$work/hard.tar" --logits
py check_temperature "$work" || fail "temperature"
# a network whose logits are 40 times as large, or as small, has another temperature and the same probabilities; one whose
# temperature is 1 keeps it, and where all is right there is none
exits 0 '' "$DTRAIN" export "$work/runs/cal" "$work/cal.safetensors"
calibrate() { # NAME FACTOR WORD …
    py scale_head "$work/cal.safetensors" "$work/$1.safetensors" "$2"
    exits 0 '' "$DTRAIN" init "$config" "$work/runs/$1" data.path="$work/hard.tar" data.split.val=0.4 data.split.test=null \
        model.init="$work/$1.safetensors"
    exits 0 '' "$DTRAIN" eval "$work/runs/$1" --calibrate
    cp "$work/out" "$work/$1.json"
}
for factor in 40 0.025 10000 0.0001; do
    rm -rf "$work/runs/scaled"
    calibrate scaled $factor
    ! grep -q "no temperature" "$work/log" || fail "a bound at $factor"
    py check_scaled "$work" $factor || fail "logits times $factor"
done
calibrate turned -1
grep -q 'label: no temperature is the best (162755 is at the bound)' "$work/log" || fail "no word of a network that is wrong: $(cat "$work/out")"
calibrate kept "$(py value "$work/cal.json" '1 / r["label"]["temperature"]')"
grep -q "does not lower the nll of held-out samples" "$work/log" || fail "no word of a temperature that is not taken"
py check_kept "$work" || fail "a temperature that gains nothing"
exits 0 'all of the validation split is right' "$DTRAIN" eval "$work/runs/kept" --calibrate data.where="label = 'ant'" data.path="$work/set.tar"
train run.name=cal data.path="$work/hard.tar" data.split.val=0.4 data.split.test=null train.epochs=31 run.resume=force
predict other.csv cal "$work/hard.tar" --which latest
grep -q "is of another checkpoint" "$work/log" || fail "a temperature of another checkpoint"
exits 2 "the run predicts none" "$DTRAIN" eval "$work/runs/angle" --calibrate
