#!/usr/bin/env bash
# Each loss of losses.def: what training says of a step and what evaluation says of the same samples and weights are one
# number.
. "${SOURCE:?}/tests/small_run.sh" || exit
python3 - "$work/set.tar" <<'PY'
import json, random, sys
from small_set import write_tar
random.seed(7)
write_tar(sys.argv[1], [{
    "x": " ".join(f"{random.gauss(k, 1):.4f}" for _ in range(4)), "cls": str(k),
    "three": " ".join(str(random.randrange(-40, 40)) for _ in range(3)),
    "six": " ".join(f"{random.gauss(0, 1):.3f}" for _ in range(6)),
    "flags": " ".join(str(random.randrange(2)) for _ in range(3))} for k in [0] * 30 + [1] * 12 + [2] * 6])
PY
python3 - "$SOURCE/runtime/config/losses.def" "$work/cases" <<'PY' || fail "a loss without a case"
import re, sys
cls, flags, three, six = ("{kind: class}", "{kind: vector, size: 3}", "{kind: vector, size: 3, normalize: {mean: [2], std: [25]}}",
    "{kind: vector, size: 6}")
CASES = {
    "cross_entropy": [("cls", cls, ""), ("cls", cls, "label_smoothing=0.2")],
    "focal": [("cls", cls, "focal_gamma=1.5"), ("cls", cls, "focal_gamma=2 label_smoothing=0.1")],
    "arcface": [("cls", cls, "arcface_margin=0 arcface_scale=4")],  # evaluation has no margin
    "bce": [("flags", flags, "")],
    "mse": [("three", three, "")],
    "smooth_l1": [("three", three, "")],
    "geodesic": [("three", "{kind: vector, size: 3}", ""), ("six", six, "")],
}
for name in re.findall(r"^WORD\((\w+)", open(sys.argv[1]).read(), re.M):
    for i, (field, of, words) in enumerate(CASES[name]):
        print(f"{name}{i}|{name}|{field}|{of}|{words}", file=open(sys.argv[2], "a"))
PY
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
    python3 - "$work/runs/$run/metrics.jsonl" "$work/out" <<'PY' || fail "$run: training and evaluation differ"
import json, sys
trained = next(r["loss"] for r in map(json.loads, open(sys.argv[1])) if r["kind"] == "step")
evaluated = json.load(open(sys.argv[2]))["loss"]
assert trained > 1e-3 and abs(trained - evaluated) < 2e-6 * trained, (trained, evaluated)
PY
done <"$work/cases"
