#!/usr/bin/env bash
# Mixup and CutMix in training: batches differ from plain ones, two replicas see the same as one, the network
# learns. In bf16, where the processor has it, losses are those of fp32 but for rounding.
. "${SOURCE:?}/tests/small_run.sh" || exit

small_data "$work" 6 6
config=$(small_config "$work")
mixed=("data.mix={mixup: 0.4, cutmix: 1.0}" metrics.every="1 steps" model.dropout=0 train.max_steps=60)
precisions=(fp32)
has_bf16 && precisions+=(bf16)

some() { # the first five steps
    exits 75 '' "$DTRAIN" "$config" "$@" run.stop_at=5
}

for p in "${precisions[@]}"; do
    train "${mixed[@]}" run.name="$p" train.precision="$p"
    some "${mixed[@]}" run.name="$p-replicas" train.precision="$p" device.threads=2 device.replicas=2
    some train.max_steps=60 metrics.every="1 steps" model.dropout=0 run.name="$p-plain" train.precision="$p"
done

python3 - "$work/runs" "${precisions[@]}" <<'PY'
import json, sys

def losses(run):
    return [r["loss"] for r in map(json.loads, open(f"{sys.argv[1]}/{run}/metrics.jsonl")) if r["kind"] == "step"]

def far(a, b):
    return max(abs(x - y) / x for x, y in zip(a, b))

runs = {}
for p in sys.argv[2:]:
    mixed, replicas, plain = losses(p), losses(p + "-replicas"), losses(p + "-plain")
    assert abs(plain[0] - mixed[0]) > 1e-4 * plain[0], f"{p}: mixed batches have the loss of plain ones"
    tolerance = 1e-4 if p == "fp32" else 0.02
    assert far(mixed, replicas) < tolerance, f"{p}: one replica {mixed[:5]}, two {replicas}"
    end = sum(mixed[-10:]) / 10
    assert end < 0.9 * mixed[0], f"{p}: the loss did not fall: {mixed[0]} -> {end}"
    print(f"{p}: {mixed[0]:.4f} -> {end:.4f}")
    runs[p] = mixed
if "bf16" in runs:
    assert far(runs["fp32"][:3], runs["bf16"]) < 0.02, "the first losses of fp32 and bf16 differ"
else:
    print("bf16: not on this processor")
PY
