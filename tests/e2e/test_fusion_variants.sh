#!/usr/bin/env bash
# Fusion by cross-attention learns; a split by subject gives verification figures (EER, AUC).
. "${SOURCE:?}/tests/small_run.sh" || exit

small_data "$work" 10 4
config=$(small_config "$work" 10)

losses() { # RUN: mean loss of the first and the last five steps
    py check_fall "$work/runs/$1/metrics.jsonl"
}

train model.fusion=cross_attention run.name=cross train.max_steps=60 metrics.every="1 steps"
"$DTRAIN" ckpt show "$work/runs/cross" | grep attention >/dev/null || fail "no attention in the checkpoint"
fall=$(losses cross) || fail "the loss did not fall: $fall"
echo "cross_attention: loss $fall"

train run.name=disjoint train.max_steps=8 "data.split={unit: subject, val: 0.2, test: 0.3}"
grep -q "eer" "$work/log" || fail "no eer in what training prints"
py check_pairs "$work/out" || fail "pairs of unseen subjects"
