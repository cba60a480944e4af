#!/usr/bin/env bash
# Each loss of losses.def: what training says of a step and what evaluation says of the same samples and weights are one
# number.
. "${SOURCE:?}/tests/small_run.sh" || exit
py make "$work/set.tar"
py cases "$SOURCE/runtime/config/losses.def" "$work/cases" || fail "a loss without a case"
new_config plain <<YAML
    x: {kind: vector, size: [4]}
  split: {unit: record, val: 0, test: 0}
model: {name: mlp, hidden: 16}
train: {max_steps: 1, global_batch: 48, micro_batch: 12, precision: fp32, optimizer: {name: sgd, lr: 1.0e-30, weight_decay: 0}}
eval: {metrics: [loss]}
YAML
while IFS='|' read -r run loss field of words; do
    target=(train.targets.$field.loss=$loss data.fields.$field="$of")
    for word in $words; do target+=("train.targets.$field.$word"); done
    train run.name=$run "${target[@]}"
    exits 0 '' "$DTRAIN" eval "$work/runs/$run" --split train --which latest
    py compare "$work/runs/$run/metrics.jsonl" "$work/out" || fail "$run: training and evaluation differ"
done <"$work/cases"

# -- numbers that are no rotation are that record's fault, not the learning rate's
for of in "zeros={kind: vector, size: 6}" "columns={kind: vector, source: [a, b, c, d, e, f]}"; do
    rotation=(run.name=${of%%=*} "data.fields.$of" train.targets.${of%%=*}.loss=geodesic)
    exits 3 "record 0017: field ${of%%=*} .* is no rotation" "$DTRAIN" "$config" "${rotation[@]}"
    train "${rotation[@]}" data.on_error=skip
    grep -q 'skipped: .*record 0017' "$work/log" || fail "the record of ${of%%=*} was not skipped"
done
