#!/usr/bin/env bash
# A prediction that is not finite is none: predict gives its reason and no class, in every format and of several passes;
# eval counts it apart, says so once, and leaves it out of all metrics alike; a checkpoint that gives one is not the best.
. "${SOURCE:?}/tests/small_run.sh" || exit
python3 - "$work" <<'PY'
import json, random, sys
from small_set import write_tar
random.seed(7)
def make(name, bad, value=3e38):
    samples = []
    for i in range(60):
        k = i % 3
        x = [random.gauss(2 * k if j == k else 0, 1) for j in range(4)]
        if i in bad:
            x = [value] * 4
        samples.append({"x": " ".join(f"{v:.6g}" for v in x), "json": json.dumps(
            {"label": ["ant", "bee", "cat"][k], "n": 10.0 * k, "odd": i % 2, "third": int(k == 0), "side": "LR"[i % 2]})})
    write_tar(f"{sys.argv[1]}/{name}.tar", samples)
make("set", ())
make("bad", (4, 17, 31, 50))
make("worse", range(60))
make("nan", (4, 17), float("nan"))
make("inf", (4, 17), float("-inf"))
PY
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
    python3 - "$work/$run.bad" "$work/out" "$work/$run.csv" <<'PY' || fail "$run: metrics mix"
import csv, json, sys
bad, good = (json.load(open(f)) for f in sys.argv[1:3])
assert bad.pop("n_not_finite") == 4 and "n_not_finite" not in good
assert bad == good and bad["samples"] == 56, (bad, good)
assert dict(csv.reader(open(sys.argv[3])))["n_not_finite"] == "4"
if "label" in bad:
    rows = bad["label"]["confusion"]
    assert sum(sum(row.values()) for row in rows.values()) == 56
    assert abs(sum(row.get(name, 0) for name, row in rows.items()) / 56 - bad["label.accuracy"]) < 1e-9
PY
done
if have_mpi; then
    exits 0 '' "${ranks[@]}" 2 "$DTRAIN" eval "$work/runs/labels" --set "$work/bad.tar" eval.by=side eval.bootstrap=20
    cmp "$work/out" "$work/labels.bad" || fail "ranks"
fi
# none is finite: no figures, and no success that looks like one
exits 0 '60 of 60 predictions are not finite' "$DTRAIN" eval "$work/runs/classes" --set "$work/worse.tar"
python3 -c 'import json, sys; r = json.load(open(sys.argv[1])); assert r["samples"] == 0 and r["label.accuracy"] is r["loss"] is r["label.macro_f1"] is None, r' "$work/out" ||
    fail "figures of nothing"

# ---- predict ----------------------------------------------------------------------------------------
predict() { exits 0 "$1" "$DTRAIN" predict "${@:2}"; }
said='4 samples could not be read or predicted: the rows say why'
for words in "classes --top 2 --logits --embeddings" "numbers --logits" "labels" "classes other" "classes other --weights uncertainty"; do
    runs=() more=()
    for word in $words; do
        if [ -d "$work/runs/$word" ]; then runs+=("$work/runs/$word"); else more+=("$word"); fi
    done
    for ext in csv jsonl; do predict "$said" "${runs[@]}" "$work/bad.tar" "${more[@]}" -o "$work/rows.$ext"; done
    python3 - "$work" <<'PY' || fail "rows: $words"
import csv, json, sys
work, bad = sys.argv[1], (4, 17, 31, 50)
for i, (row, line) in enumerate(zip(csv.DictReader(open(f"{work}/rows.csv")), map(json.loads, open(f"{work}/rows.jsonl")))):
    own = {k: v for k, v in row.items() if k not in ("key", "path", "error")}
    if i in bad:
        assert "the network's output is not finite" in row["error"] and row["error"] == line["error"], (row, line)
        assert set(own.values()) == {""} and set(line) == {"key", "path", "error"}, (row, line)
    else:
        assert row["error"] == "" and "" not in own.values() and "error" not in line, (row, line)
PY
done
predict "$said" "$work/runs/classes" "$work/bad.tar" -o "$work/rows.npy"
python3 - "$work/rows.npy" <<'PY' || fail "NPY"
import math, struct, sys
v = struct.unpack("<180f", open(sys.argv[1], "rb").read()[-720:])
assert [i for i in range(60) if all(map(math.isnan, v[3 * i:3 * i + 3]))] == [4, 17, 31, 50]
assert sum(map(math.isnan, v)) == 12
PY

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
python3 - "$work/runs/broken/metrics.jsonl" <<'PY' || fail "the evaluation of a training"
import json, sys
r = [e for e in map(json.loads, open(sys.argv[1])) if e["kind"] == "eval"][-1]
assert r["n_not_finite"] == 1 and r["loss"] is not None, r
PY
! cat "$work"/runs/broken/checkpoints/*/manifest.json | grep -q '"best": *true' ||
    fail "a checkpoint with predictions that are not finite is the best"
cat "$work"/runs/classes/checkpoints/*/manifest.json | grep -q '"best": *true' || fail "none is the best"
