#!/usr/bin/env bash
# A class that is an input (data.fields.*.input): a step's gradients are those of a twin in numpy, a resumed run has the
# same bits, the ONNX file predicts what dtrain predicts, and an unknown or missing class is a row of zeros.
. "${SOURCE:?}/tests/small_run.sh" || exit
"$python" -c 'import numpy, onnxruntime' 2>/dev/null || { echo "skipped: no numpy and onnxruntime"; exit 77; }

py make "$work/set.tar" "$work/new.tar"
new_config one <<YAML
    x: {kind: real}
    site: {kind: class, input: embedding}
    label: {kind: class}
model: {name: mlp, hidden: 8}
train: {max_steps: 1, epochs: 9, global_batch: 40, micro_batch: 40, precision: fp32,
        optimizer: {name: sgd, lr: 0.5, momentum: 0, weight_decay: 0}}
YAML
exits 0 '' "$DTRAIN" init "$config" "$work/runs/zero"
train
py check_step "$work/runs/zero" "$work/runs/one" "$work/set.tar" || fail "another step than numpy's"

# -- one-hot, and beside other fields in a fusion: trained, resumed, exported, predicted
onehot='data.fields.site={kind: class, input: onehot}' fusion=(model.name=fusion model.hidden=)
for form in embedding onehot; do
    words=()
    [ $form = embedding ] || words=("$onehot")
    for net in mlp fusion; do
        [ $net = mlp ] || words+=("${fusion[@]}")
        run=$form.$net
        train train.max_steps=6 run.name=$run "${words[@]}"
        exits 75 '' "$DTRAIN" "$config" train.max_steps=6 run.name=$run.again run.stop_at=3 "${words[@]}"
        train train.max_steps=6 run.name=$run.again "${words[@]}"
        [ "$(hash "$work/runs/$run")" = "$(hash "$work/runs/$run.again")" ] || fail "$run: other weights after a resume"
        exits 0 '' "$DTRAIN" export "$work/runs/$run" "$work/$run.onnx"
        exits 0 "field site: 1 value of no class that this run knows, such as 'z', are zeros" \
            "$DTRAIN" predict "$work/runs/$run" "$work/new.tar" -o "$work/$run.npy"
        py check_onnx "$work/$run.onnx" "$work/new.tar" "$work/$run.npy" || fail "$run: the ONNX file predicts something else"
    done
done

# -- a set to predict need not have every class of an input
exits 0 '' "$DTRAIN" predict "$work/runs/onehot.mlp" "$work/new.tar" -o "$work/b.npy" "data.where=site = 'b'"
! grep 'have no record' "$work/log" || fail "a warning of classes that no sample needs"

# -- a record without an input number has no row, and is counted
exits 0 'lacks.csv: predictions of 7 samples .*; 2 records were left out' \
    "$DTRAIN" predict "$work/runs/onehot.mlp" "$work/lacks.tar" -o "$work/lacks.csv"
grep -q "2 of 9 records have nothing for field 'x' and are left out; the first is .* (it has no 'x'; data.columns can" \
    "$work/log" || fail "the warning: $(cat "$work/log")"
[ "$(wc -l <"$work/lacks.csv")" = 8 ] || fail "another number of rows: $(cat "$work/lacks.csv")"

# -- any number of ranks
if have_mpi; then
    elastic=(train.max_steps=4 train.micro_batch=10 run.reproducible=elastic)
    train "${elastic[@]}" run.name=alone
    train_on 2 "${elastic[@]}" run.name=ranks
    [ "$(hash "$work/runs/alone")" = "$(hash "$work/runs/ranks")" ] || fail "other weights on two ranks"
fi

# -- mistakes
refused "embedding_dim has no effect without input: embedding" "$onehot" data.fields.site.embedding_dim=3
refused "site" train.targets='{site: {loss: cross_entropy}}'
