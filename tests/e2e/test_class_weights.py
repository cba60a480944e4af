"""Functions of test_class_weights.sh: what it trains on, and checks of what it wrote."""
import json, math, random
from small_set import bmp, records, write_tar


def make(path):
    random.seed(7)
    write_tar(path, [{
        "x": " ".join(f"{random.gauss(k, 1):.4f}" for _ in range(4)),
        "bmp": bmp(16, 16, [random.randrange(60 * k, 60 * k + 120) for _ in range(16 * 16 * 3)]),
        "json": json.dumps({"a": int(random.random() < 0.2), "b": random.randrange(2)}), "cls": str(k)} for k in [0] * 30 + [1] * 12 + [2] * 6])


def loss_of(work, run):
    return next(r["loss"] for r in records(f"{work}/runs/{run}/metrics.jsonl") if "loss" in r)


def entropy(x, k):
    return max(x) + math.log(sum(math.exp(v - max(x)) for v in x)) - x[k]


def labels_of():
    """As `make` draws them, but for what it draws besides."""
    random.seed(7)
    out = []
    for k in [0] * 30 + [1] * 12 + [2] * 6:
        for _ in range(4):
            random.gauss(k, 1)
        for _ in range(16 * 16 * 3):
            random.randrange(60 * k, 60 * k + 120)
        out.append((int(random.random() < 0.2), random.randrange(2)))
    return out


def check_labels(work):
    labels, truth, classes, s = labels_of(), [0] * 30 + [1] * 12 + [2] * 6, [1, 2.5, 4], 0.2
    def bce(x, t, positive):
        return (1 - t) * math.log1p(math.exp(x)) + positive * t * math.log1p(math.exp(-x))
    rows = records(f"{work}/both.jsonl")
    want = sum(sum(map(bce, r["labels"]["logits"], t, (3, 0.5))) / 2 for r, t in zip(rows, labels)) / 48
    for r, k in zip(rows, truth):
        e = [entropy(r["cls"]["logits"], j) for j in range(3)]
        want += ((1 - s) * classes[k] * e[k] + s / 3 * sum(w * v for w, v in zip(classes, e))) / 48
    got = loss_of(work, "both")
    assert abs(got - want) < 1e-5 * want, (got, want)
    positives = [(48 - n) / n for n in map(sum, zip(*labels))]
    rows = records(f"{work}/balanced_labels.jsonl")
    want = sum(sum(map(bce, r["labels"]["logits"], t, positives)) / 2 for r, t in zip(rows, labels)) / 48
    got = loss_of(work, "balanced_labels")
    assert abs(got - want) < 1e-5 * want, (got, want)


def check_losses(work):
    rows = records(f"{work}/logits.jsonl")
    def loss(run):
        return loss_of(work, run)
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
