#!/usr/bin/env bash
# Numbers as targets: a network learns the position of a bright square from small pictures, with the
# target normalised; mae and rmse come back in its own units and agree with each other. The same target
# from two columns of the catalog (one of numbers, one of whole numbers as text) gives the same weights.
. "${SOURCE:?}/tests/small_run.sh" || exit

python3 - "$work/set.tar" <<'PY'
import random, sys
from small_set import bmp, write_tar
random.seed(7)
samples = []
for i in range(240):
    x, y, n = random.randrange(20), random.randrange(20), 24
    pixels = bytearray(random.randrange(40) for _ in range(n * n * 3))
    for dy in range(4):
        at = ((n - 1 - y - dy) * n + x) * 3
        pixels[at:at + 12] = b"\xf0" * 12
    x, y = 100 + 10 * x, -5 * y # mean 195 and -47.5, std 58 and 29
    samples.append({"bmp": bmp(n, n, pixels), "json": f'{{"x": {x}.0, "y": {y}}}', "where": f"{x} {y}\n"})
write_tar(sys.argv[1], samples)
PY
new_config numbers <<YAML
    image: {kind: image, source: bmp, channels: 3, size: [24, 24], normalize: {mean: [0.1], std: [0.2]}}
    where: {kind: vector, size: [2], normalize: {mean: [195, -47.5], std: [58, 29]}}
  split: {unit: record, val: 0.1, test: 0.2}
model: {name: resnet, depth: 10, width: 8}
train:
  epochs: 60
  global_batch: 16
  micro_batch: 8
  precision: fp32
  loss: smooth_l1
  optimizer: {name: adamw, lr: 3.0e-3}
  schedule: {name: cosine, warmup: 5%}
eval: {every: 30 epochs, metrics: [loss, mae, rmse], best: mae}
YAML
steps=${STEPS:-1000}
train train.max_steps=$((steps < 600 ? 40 : 600))
python3 - "$work/runs/numbers/metrics.jsonl" "$work/out" "$steps" <<'PY' || fail "wrong errors"
import json, math, sys
evals = [r for r in map(json.loads, open(sys.argv[1])) if r["kind"] == "eval"]
for r in evals:
    mean = sum(r["mae_by_number"].values()) / 2
    assert abs(mean - r["mae"]) < 1e-9 * mean, r
    assert r["mae"] <= r["rmse"] and "accuracy" not in r, r
    # the loss is of normalised numbers: an average error of one std would be about 0.5
    assert r["loss"] < r["mae"] / 10, r
result = json.loads(open(sys.argv[2]).readlines()[-1])
# eval.best: mae takes the lower one
if "test_best" in [r["split"] for r in evals]:
    assert evals[0]["split"] == "val" and evals[0]["mae"] < evals[1]["mae"], evals
print("mae", result["mae"], "rmse", result["rmse"], "by number", evals[-1]["mae_by_number"])
# guessing the mean gives 50 and 25, 37 together
assert int(sys.argv[3]) < 600 or result["mae"] < 9, result
PY
train train.max_steps=12 run.name=member
train train.max_steps=12 run.name=columns 'data.fields.where={kind: vector, source: [x, y], normalize: {mean: [195, -47.5], std: [58, 29]}}'
[ "$(hash "$work/runs/member")" = "$(hash "$work/runs/columns")" ] || fail "a target from columns trains differently from one in a member"
# a vector of one column, whose size nobody says: trained, used without its values, checked without the data
one='data.fields.where={kind: vector, source: x, size: null, normalize: {mean: [195], std: [58]}}'
train train.max_steps=2 run.name=one "$one"
"$DTRAIN" predict "$work/runs/one" "$work/set.tar" >"$work/out" 2>"$work/log" || fail "predict: one column"
exits 0 "checked without the data" "$DTRAIN" check "$config" "$one" data.path="$work/none.tar"
"$DTRAIN" eval "$work/runs/numbers" >"$work/out" 2>"$work/log" || fail "eval"
grep -q '"mae"' "$work/out" || fail "eval prints no mae"
echo "numbers learned; mae and rmse in their own units"
