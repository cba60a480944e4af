#!/usr/bin/env bash
# Fusion by cross-attention learns; a split by subject gives verification figures (EER, AUC).
. "${SOURCE:?}/tests/small_run.sh" || exit

small_data "$work" 10 4
config=$(small_config "$work" 10)

last() { # key: of the last line of results
    python3 -c 'import json, sys; print(json.loads(open(sys.argv[1]).readlines()[-1])[sys.argv[2]])' "$work/out" "$1"
}
losses() { # RUN: mean loss of the first and the last five steps
    python3 - "$work/runs/$1/metrics.jsonl" <<'PY'
import json, sys
loss = [r["loss"] for r in map(json.loads, open(sys.argv[1])) if r["kind"] == "step"]
first, last = sum(loss[:5]) / 5, sum(loss[-5:]) / 5
print(f"{first:.3f} -> {last:.3f}")
sys.exit(not last < 0.6 * first)
PY
}

train model.fusion=cross_attention run.name=cross train.max_steps=60 metrics.every="1 steps"
"$DTRAIN" ckpt show "$work/runs/cross" | grep -q attention || fail "no attention in the checkpoint"
fall=$(losses cross) || fail "the loss did not fall: $fall"
echo "cross_attention: loss $fall"

train run.name=disjoint train.max_steps=60 "data.split={unit: subject, val: 0.2, test: 0.3}"
grep -q "eer" "$work/log" || fail "no eer in what training prints"
eer=$(last eer) auc=$(last auc)
python3 -c "assert 0 <= $eer <= 0.6 and 0.4 <= $auc <= 1" || fail "eer $eer, auc $auc"
echo "split by subject: eer $eer, auc $auc"
