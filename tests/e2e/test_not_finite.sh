#!/usr/bin/env bash
# A prediction that is not finite is none: predict gives its reason and no class, in every format and of several passes;
# eval counts it apart, says so once, and leaves it out of all metrics alike; a checkpoint that gives one is not the best.
. "${SOURCE:?}/tests/small_run.sh" || exit
py make "$work"
new_config classes <<YAML
    x: {kind: vector, size: [4]}
    label: {kind: class}
  split: {unit: record, val: 0.2, test: 0.2}
model: {name: mlp, hidden: 512}
train: {epochs: 4, global_batch: 12, micro_batch: 6, precision: fp32, targets: {label: {}}, optimizer: {name: adamw, lr: 3.0e-2}}
eval: {every: 4 epochs, metrics: [accuracy, loss, confusion, macro_f1, roc_auc, ece, report]}
YAML
train
train run.name=other run.seed=9
train run.name=numbers data.fields.label=null 'data.fields.n={kind: real, normalize: {mean: [10], std: [8]}}' train.targets=null train.targets.n.loss=mse 'eval.metrics=[mae, rmse, loss]'
train run.name=labels data.fields.label=null 'data.fields.flags={kind: vector, source: [odd, third]}' train.targets=null train.targets.flags.loss=bce 'eval.metrics=[macro_f1, loss, roc_auc]'

for run in classes numbers labels; do
    exits 0 '4 of 60 predictions are not finite and count in no metric; the first is of sample 4, 0004' \
        "$DTRAIN" eval "$work/runs/$run" --set "$work/bad.tar" eval.by=side eval.bootstrap=20 --csv "$work/$run.csv"
    [ "$(grep -c 'not finite' "$work/log")" = 1 ] || fail "$run: said more than once"
    mv "$work/out" "$work/$run.bad"
    # the same figures as without these records
    exits 0 '' "$DTRAIN" eval "$work/runs/$run" --set "$work/bad.tar" eval.by=side eval.bootstrap=20 \
        'data.where=key not in ('"'0004', '0017', '0031', '0050')"
    py check_metrics "$work/$run.bad" "$work/out" "$work/$run.csv" || fail "$run: metrics mix"
done
if have_mpi; then
    exits 0 '' "${ranks[@]}" 2 "$DTRAIN" eval "$work/runs/labels" --set "$work/bad.tar" eval.by=side eval.bootstrap=20
    cmp "$work/out" "$work/labels.bad" || fail "ranks"
fi
# none is finite: no figures, and no success that looks like one
exits 0 '60 of 60 predictions are not finite' "$DTRAIN" eval "$work/runs/classes" --set "$work/worse.tar"
[ "$(py value "$work/out" '[r[k] for k in ("samples", "label.accuracy", "loss", "label.macro_f1")]')" = "[0, None, None, None]" ] ||
    fail "figures of nothing"

# ---- predict ----------------------------------------------------------------------------------------
predict() { exits 0 "$1" "$DTRAIN" predict "${@:2}"; }
said='4 samples could not be read or predicted: their rows give the reason'
for words in "classes --top 2 --logits --embeddings" "numbers --logits" "labels" "classes other" "classes other --weights uncertainty"; do
    runs=() more=()
    for word in $words; do
        if [ -d "$work/runs/$word" ]; then runs+=("$work/runs/$word"); else more+=("$word"); fi
    done
    for ext in csv jsonl; do predict "$said" "${runs[@]}" "$work/bad.tar" "${more[@]}" -o "$work/rows.$ext"; done
    py check_rows "$work" || fail "rows: $words"
done
predict "$said" "$work/runs/classes" "$work/bad.tar" -o "$work/rows.npy"
py check_npy "$work/rows.npy" || fail "NPY"

# ---- inputs that are not finite: the record is damaged, whatever the network would make of it (a ReLU 0 of NaN) ---------
for value in nan inf; do
    predict '2 samples could not be read or predicted' "$work/runs/classes" "$work/$value.tar" -o "$work/rows.csv"
    [ "$(grep -c "member x .*number 1 is -*$value" "$work/rows.csv")" = 2 ] || fail "an input of $value: $(grep "is -*$value" "$work/rows.csv")"
    exits 3 "number 1 is -*$value" "$DTRAIN" eval "$work/runs/classes" --set "$work/$value.tar"
    exits 3 "0004.*number 1 is -*$value" "$DTRAIN" "$config" run.name=$value data.path="$work/$value.tar"
done

# ---- a training's evaluation ------------------------------------------------------------------------
exits 0 'predictions are not finite' "$DTRAIN" "$config" run.name=broken data.path="$work/bad.tar" \
    "data.split.val=key in ('0004', '0005', '0006')" data.split.test=0 "data.where=key not in ('0017', '0031', '0050')"
py check_training "$work/runs/broken/metrics.jsonl" || fail "the evaluation of a training"
! cat "$work"/runs/broken/checkpoints/*/manifest.json | grep '"best": *true' >/dev/null ||
    fail "a checkpoint with predictions that are not finite is the best"
cat "$work"/runs/classes/checkpoints/*/manifest.json | grep '"best": *true' >/dev/null || fail "none is the best"
