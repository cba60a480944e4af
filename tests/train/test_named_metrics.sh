#!/usr/bin/env bash
# Figures of an evaluation carry the names of classes, labels and numbers, never their places; of two classes the one
# that is looked for is eval.positive; what a group has no value for is null, as JSON and as CSV, and no mean is over fewer
# labels than another of its name.
. "${SOURCE:?}/tests/small_run.sh" || exit
python3 - "$work" <<'PY'
import json, random, sys
from small_set import bmp, write_tar
random.seed(7)
samples = []
for i in range(120):
    k = i % 2
    side = "left" if i < 60 else "right"
    pixels = [max(0, min(255, 100 + 30 * k + random.randrange(-60, 61))) for _ in range(8 * 8 * 3)]
    samples.append({"bmp": bmp(8, 8, pixels), "json": json.dumps(
        {"state": ["ill, badly", "other"][k], "a": 4.0 * k, "b": 1.0 * (i % 3), "odd": k, "rare": int(i % 7 == 0 and i < 60),
         "never": 0, "side": side})})
write_tar(f"{sys.argv[1]}/set.tar", samples)
PY
new_config two <<YAML
    image: {kind: image, source: bmp, size: [8, 8], normalize: {mean: [0.5], std: [0.25]}}
    state: {kind: class}
  split: {unit: record, test: 0.5}
model: {name: resnet, depth: 10, width: 4}
train: {max_steps: 3, global_batch: 12, micro_batch: 12, precision: fp32}
eval: {every: 100 steps, metrics: [accuracy, confusion, report, precision, roc_auc, pr_auc]}
YAML
train
image='data.fields.image={kind: image, source: bmp, size: [8, 8]}'
train run.name=labels data.fields.state=null 'data.fields.flags={kind: vector, source: [odd, rare, never]}' train.loss=bce 'eval.metrics=[report, precision, roc_auc, pr_auc]'
train run.name=numbers data.fields.state=null 'data.fields.at={kind: vector, source: [a, b]}' train.loss=mse 'eval.metrics=[mae, angle_mae]'

ask() { # output, run, words
    exits 0 '' "$DTRAIN" eval "$work/runs/$2" --set "$work/set.tar" --which latest --csv "$work/$1.csv" "${@:3}"
    mv "$work/out" "$work/$1"
}
ask second two
ask first two 'eval.positive="ill, badly"'
ask labels labels 'eval.by=[side]' eval.bootstrap=10
ask numbers numbers
exits 0 '' "$DTRAIN" predict "$work/runs/two" "$work/set.tar" --which latest -o "$work/p.npy"
python3 - "$work" <<'PY' || fail "names"
import csv, json, struct, sys
work = sys.argv[1]
def read(name):
    return json.load(open(f"{work}/{name}")), dict(csv.reader(open(f"{work}/{name}.csv")))
second, table = read("second")
first, _ = read("first")
p = struct.unpack("<240f", open(f"{work}/p.npy", "rb").read()[-960:])
score = {"ill, badly": p[0::2], "other": p[1::2]}
truth = ["ill, badly", "other"] * 60
def auc(name): # of all pairs
    own, rest = ([s for s, t in zip(score[name], truth) if (t == name) == same] for same in (True, False))
    return sum((a > b) + (a == b) / 2 for a in own for b in rest) / len(own) / len(rest)
assert abs(second["roc_auc"] - auc("other")) < 1e-9 and second["roc_auc"] == second["roc_auc.other"], second
assert abs(first["roc_auc"] - auc("ill, badly")) < 1e-9 and first["roc_auc"] == first["roc_auc.ill, badly"], first
assert first["pr_auc"] == first["pr_auc.ill, badly"] != second["pr_auc"] == second["pr_auc.other"]
assert "pr_auc.other" not in first and "roc_auc.ill, badly" not in second
rows = second["confusion"]
assert list(rows) == ["ill, badly", "other"] and all(v > 0 for row in rows.values() for v in row.values())
assert all(sum(row.values()) == 60 for row in rows.values())
assert sum(row.get(name, 0) for name, row in rows.items()) == round(120 * second["accuracy"])
assert list(second["report"]["classes"]) == ["ill, badly", "other"]
one, n = next((f"confusion.{a}.{b}", n) for a, row in rows.items() for b, n in row.items())
assert table[one] == str(n) and table["precision.ill, badly"] == format(second["precision.ill, badly"], ".17g"), table

labels, table = read("labels")
assert list(labels["report"]["classes"]) == ["odd", "rare", "never"] and "precision.rare" in labels
left, right = (labels["by"]["side"][k] for k in ("left", "right"))
for name in ("roc_auc", "pr_auc"):
    # no sample of the set has `never`: it has no figure and is in no mean; `rare` is missing on the right
    assert labels[f"{name}.never"] is None and table[f"{name}.never"] == ""
    for r in labels, left:
        assert abs(r[name] - (r[f"{name}.odd"] + r[f"{name}.rare"]) / 2) < 1e-12, r
    assert right[f"{name}.odd"] > 0 and right[f"{name}.rare"] is None and right[name] is None, right
    assert table[f"by.side.right.{name}"] == table[f"by.side.right.{name}.rare"] == ""
    assert float(table[f"by.side.right.{name}.odd"]) == right[f"{name}.odd"]

numbers, table = read("numbers")
assert list(numbers["mae_by_number"]) == list(numbers["angle_mae_by_number"]) == ["a", "b"]
assert float(table["mae_by_number.b"]) == numbers["mae_by_number"]["b"]
digits = [k for t in ("first", "second", "labels", "numbers") for k in read(t)[1] if any(w.isdigit() for w in k.split(".")) and "interval" not in k]
assert not digits, digits
PY
refused() { exits 2 "$1" "$DTRAIN" eval "$work/runs/$2" --which latest "${@:3}"; }
refused "eval.positive: no target of two classes has a class 'mad'" two eval.positive=mad
refused "names classes of state twice" two 'eval.positive=["ill, badly", other]'
refused "no target of two classes has a class 'odd'" labels eval.positive=odd
