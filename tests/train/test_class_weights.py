"""Functions of test_class_weights.sh: what it trains on, and checks of what it wrote."""
import math, random
from small_set import bmp, records, write_tar


def make(path):
    random.seed(7)
    write_tar(path, [{
        "x": " ".join(f"{random.gauss(k, 1):.4f}" for _ in range(4)),
        "bmp": bmp(16, 16, [random.randrange(60 * k, 60 * k + 120) for _ in range(16 * 16 * 3)]),
        "cls": str(k)} for k in [0] * 30 + [1] * 12 + [2] * 6])


def check_losses(work):
    rows = records(f"{work}/logits.jsonl")
    def loss(run):
        return next(r["loss"] for r in records(f"{work}/runs/{run}/metrics.jsonl") if "loss" in r)
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


def check_shares(*metrics):
    shares, classes = (next(r["loss"] for r in records(f) if "loss" in r) for f in metrics)
    want = classes * (30 * 1 + 12 * 2.5 + 6 * 4) / 48
    assert abs(shares - want) < 1e-5 * want, (shares, classes, want)
