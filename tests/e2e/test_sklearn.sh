#!/usr/bin/env bash
# Beside scikit-learn: folds of groups (GroupKFold) and folds that came with the data (PredefinedSplit); normalize: auto
# (StandardScaler), of columns without deviation too.
. "${SOURCE:?}/tests/small_run.sh" || exit
"$python" -c 'import sklearn' 2>/dev/null || { echo "skipped: no scikit-learn"; exit 77; }

py make "$work/set.tar"
new_config scaled <<YAML
    x: {kind: vector, source: [x, far, fine, same, far_same, time, same_time], normalize: auto}
    kind: {kind: class}
model: {name: mlp, hidden: 4}
train: {max_steps: 1, global_batch: 8, micro_batch: 8, precision: fp32}
YAML
py check_folds "$DTRAIN" "$config" || fail "other folds than scikit-learn's"
train data.split.test=0.2
py check_moments "$work/runs/scaled" || fail "other moments than scikit-learn's: $(grep -A3 normalize "$work/runs/scaled/config.yaml")"
echo "folds and moments are scikit-learn's"
