#!/usr/bin/env bash
# train.class_weights: the loss is that of torch.nn.CrossEntropyLoss, of given weights and of balanced ones, with label
# smoothing and of mixed samples; the same on every number of ranks.
. "${SOURCE:?}/tests/small_run.sh" || exit
python3 - "$work/set.tar" <<'PY'
import random, sys
from small_set import bmp, write_tar
random.seed(7)
write_tar(sys.argv[1], [{
    "x": " ".join(f"{random.gauss(k, 1):.4f}" for _ in range(4)),
    "bmp": bmp(16, 16, [random.randrange(60 * k, 60 * k + 120) for _ in range(16 * 16 * 3)]),
    "cls": str(k)} for k in [0] * 30 + [1] * 12 + [2] * 6])
PY
new_config plain <<YAML
    x: {kind: vector, size: [4]}
    cls: {kind: class}
model: {name: mlp, hidden: 16}
train:
  max_steps: 1
  global_batch: 48
  micro_batch: 12
  targets: {cls: {loss: cross_entropy}}
  precision: fp32
  optimizer: {name: sgd, lr: 1.0e-30, weight_decay: 0}
YAML
train
train run.name=given 'train.class_weights=[1, 2.5, 4]'
train run.name=balanced train.class_weights=balanced
train run.name=smooth 'train.class_weights=[1, 2.5, 4]' train.targets.cls.label_smoothing=0.2
train run.name=focal 'train.class_weights=[1, 2.5, 4]' train.targets.cls='{loss: focal, label_smoothing: 0.2, focal_gamma: 0}'
"$DTRAIN" predict "$work/runs/given" "$work/set.tar" --logits --which latest -o "$work/logits.jsonl" 2>"$work/log" || fail predict
python3 - "$work" <<'PY' || fail "other losses"
import json, math, sys
work = sys.argv[1]
rows = [json.loads(line) for line in open(f"{work}/logits.jsonl")]
def loss(run):
    return next(r["loss"] for r in map(json.loads, open(f"{work}/runs/{run}/metrics.jsonl")) if "loss" in r)
def entropy(x, k):
    return max(x) + math.log(sum(math.exp(v - max(x)) for v in x)) - x[k]
truth = [0] * 30 + [1] * 12 + [2] * 6
each = [entropy(r["cls"]["logits"], k) for r, k in zip(rows, truth)]
for run, w in ("plain", [1, 1, 1]), ("given", [1, 2.5, 4]), ("balanced", [48 / 3 / n for n in (30, 12, 6)]):
    want = sum(w[k] * e for k, e in zip(truth, each)) / sum(w[k] for k in truth)
    assert abs(loss(run) - want) < 1e-5 * want, (run, loss(run), want)
# the smoothed part is weighed by class, too; of a focal loss by the sample
w, s = [1, 2.5, 4], 0.2
parts = [(w[k], entropy(x, k), [entropy(x, j) for j in range(3)]) for k, x in zip(truth, (r["cls"]["logits"] for r in rows))]
for run, even in ("smooth", lambda v, e: sum(a * b for a, b in zip(w, e))), ("focal", lambda v, e: v * sum(e)):
    want = sum((1 - s) * v * own + s / 3 * even(v, e) for v, own, e in parts) / sum(w[k] for k in truth)
    assert abs(loss(run) - want) < 1e-5 * want, (run, loss(run), want)
PY

# -- mixed samples: their weight is that of their shares
mix=(model.name=resnet model.hidden= model.depth=10 model.width=4 data.fields.x=null
     'data.fields.image={kind: image, source: bmp, channels: 3, size: [16, 16]}'
     data.mix.mixup=1 train.optimizer.lr=0.1 train.max_steps=6 train.epochs=6 run.reproducible=elastic)
train run.name=mixed "${mix[@]}" 'train.class_weights=[1, 2.5, 4]'
train run.name=unweighted "${mix[@]}"
train run.name=ones "${mix[@]}" 'train.class_weights=[1, 1, 1]'
[ "$(hash "$work/runs/ones")" = "$(hash "$work/runs/unweighted")" ] || fail "weights of 1 are not without effect"
[ "$(hash "$work/runs/mixed")" != "$(hash "$work/runs/unweighted")" ] || fail "mixed samples have no weights"
# shares that are not mixed are classes; torch divides their loss by their number, not by their weights
one=("${mix[@]}" 'train.class_weights=[1, 2.5, 4]' train.max_steps=1 train.targets.cls.label_smoothing=0.1)
train run.name=shares "${one[@]}" data.mix.p=0
train run.name=classes "${one[@]}" data.mix=null
python3 - "$work"/runs/{shares,classes}/metrics.jsonl <<'PY' || fail "shares have another loss"
import json, sys
shares, classes = (next(r["loss"] for r in map(json.loads, open(f)) if "loss" in r) for f in sys.argv[1:])
want = classes * (30 * 1 + 12 * 2.5 + 6 * 4) / 48
assert abs(shares - want) < 1e-5 * want, (shares, classes, want)
PY
if have_mpi; then
    train_on 2 run.name=two "${mix[@]}" 'train.class_weights=[1, 2.5, 4]'
    [ "$(hash "$work/runs/mixed")" = "$(hash "$work/runs/two")" ] || fail "two ranks have other weights"
fi

refused 'has 2 numbers; there are 3 classes' 'train.class_weights=[1, 2]'
refused "'-1' is no number above 0" 'train.class_weights=[1, 2, -1]'
refused 'train.clip_norm is given, too' train.clip_norm=1 train.clip_agc=0.01
echo passed
