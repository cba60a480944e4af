"""Writes tests/golden/metrics.safetensors: what scikit-learn (scipy for rotations, numpy for the calibration error) makes
of random logits and truths.

Run by hand in an environment with scikit-learn and safetensors:  python tests/golden/make_metrics.py
"""
import os

import numpy as np
import sklearn
from safetensors.numpy import save_file
from scipy.spatial.transform import Rotation
from sklearn import metrics as sk

TOP_K, THRESHOLD = 3, 0.4


def softmax(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def calibration_error(confidence, hit, n_bins=15):
    edges, error = np.linspace(0, 1, n_bins + 1), 0.0
    for low, high in zip(edges[:-1], edges[1:]):
        inside = (confidence > low) & (confidence <= high)
        if inside.any():
            error += inside.mean() * abs(hit[inside].mean() - confidence[inside].mean())
    return error


def areas(name, score, truth, area):
    """of each column that has both values (roc) or a positive (pr), and their mean"""
    found = {}
    for k in range(truth.shape[1]):
        if truth[:, k].any() and (name == "pr_auc" or not truth[:, k].all()):
            found[k] = area(truth[:, k], score[:, k])
    if truth.shape[1] > 1:
        for k, v in found.items():
            yield f"{name}.{k}", v
    yield name, np.mean(list(found.values())) if found else np.nan


def of_report(report, out):
    for name, row in out.items():
        for member in ("precision", "recall", "f1-score"):
            yield f"report/{report}{name}/{member.replace('-score', '')}", row[member]


def classes(logits, label, positive=1):
    p, n_classes = softmax(logits), logits.shape[1]
    predicted = logits.argmax(axis=1)
    kw = dict(zero_division=0)
    yield "accuracy", sk.accuracy_score(label, predicted)
    yield "balanced_accuracy", sk.recall_score(label, predicted, labels=np.unique(label), average="macro", **kw)
    yield "weighted_f1", sk.f1_score(label, predicted, average="weighted", **kw)
    yield "macro_f1", sk.f1_score(label, predicted, average="macro", **kw)
    for name, score in (("recall", sk.recall_score), ("precision", sk.precision_score)):
        yield name, score(label, predicted, average="macro", **kw)
        for k, v in zip(np.unique(label), score(label, predicted, labels=np.unique(label), average=None, **kw)):
            yield f"{name}.{k}", v
    if n_classes > 2 and all(len(set(row)) == n_classes for row in logits):  # ties have no agreed order
        yield "top_k", sk.top_k_accuracy_score(label, logits, k=TOP_K, labels=range(n_classes)) \
            if n_classes > TOP_K else 1.0
    truth = np.eye(n_classes)[label]
    columns = slice(positive, positive + 1) if n_classes == 2 else slice(None)
    for name, area in (("roc_auc", sk.roc_auc_score), ("pr_auc", sk.average_precision_score)):
        values = list(areas(name, p[:, columns], truth[:, columns], area))
        yield from values
        if n_classes == 2:
            yield f"{name}.{positive}", values[-1][1]
    yield "ece", calibration_error(p.max(axis=1), predicted == label)
    yield "brier", sk.brier_score_loss(label, p[:, 1], labels=[0, 1]) if n_classes == 2 else \
        sk.brier_score_loss(label, p, labels=range(n_classes))
    report = sk.classification_report(label, predicted, labels=range(n_classes), output_dict=True, **kw)
    yield from of_report("classes/", {str(k): report[str(k)] for k in range(n_classes)})
    yield from of_report("", {"weighted": report["weighted avg"]})
    seen = np.unique(np.concatenate([label, predicted]))
    macro = sk.classification_report(label, predicted, labels=seen, output_dict=True, **kw)["macro avg"]
    yield from of_report("", {"macro": macro})


def looks_for_first(logits, label):
    return classes(logits, label, 0)


def labels(logits, truth):
    p = sigmoid(logits)
    said = (p >= THRESHOLD).astype(int)
    kw = dict(zero_division=0)
    many = truth.shape[1] > 1
    average = dict(average="macro") if many else {}
    yield "macro_f1", sk.f1_score(truth, said, **average, **kw)
    yield "precision", sk.precision_score(truth, said, **average, **kw)
    yield "recall", sk.recall_score(truth, said, **average, **kw)
    yield "exact_match", sk.accuracy_score(truth, said)
    yield from areas("roc_auc", p, truth, sk.roc_auc_score)
    yield from areas("pr_auc", p, truth, sk.average_precision_score)
    yield "brier", np.mean([sk.brier_score_loss(truth[:, k], p[:, k], labels=[0, 1]) for k in range(truth.shape[1])])
    confidence = np.where(p >= 0.5, p, 1 - p)
    yield "ece", calibration_error(confidence.ravel(), ((p >= 0.5) == (truth == 1)).ravel())
    if many:
        yield "weighted_f1", sk.f1_score(truth, said, average="weighted", **kw)


def thresholds(logits, truth):
    """of each label the one with the greatest F1, found by trying all"""
    p, found = sigmoid(logits), []
    for k in range(truth.shape[1]):
        at = np.unique(p[:, k])
        scores = [sk.f1_score(truth[:, k], p[:, k] >= t, zero_division=0) for t in at]
        best = int(np.argmax(scores))  # the first, so the smallest of equal ones
        found.append((at[best] + (at[best - 1] if best else 0)) / 2 if truth[:, k].any() else 0.5)
    return np.array(found)


def numbers(predicted, truth):
    yield "mae", sk.mean_absolute_error(truth, predicted)
    yield "rmse", np.sqrt(sk.mean_squared_error(truth.ravel(), predicted.ravel()))
    yield "r2", sk.r2_score(truth, predicted)
    difference = np.abs(predicted - truth) % 360
    yield "angle_mae", np.minimum(difference, 360 - difference).mean()
    if truth.shape[1] == 3:
        a, b = (Rotation.from_euler("xyz", x, degrees=True) for x in (predicted, truth))
        yield "geodesic", np.degrees((a.inv() * b).magnitude()).mean()
    if truth.shape[1] == 6:
        def matrices(x):
            a = x[:, :3] / np.linalg.norm(x[:, :3], axis=1, keepdims=True)
            b = x[:, 3:] - (a * x[:, 3:]).sum(axis=1, keepdims=True) * a
            b /= np.linalg.norm(b, axis=1, keepdims=True)
            return Rotation.from_matrix(np.stack([a, b, np.cross(a, b)], axis=2))
        yield "geodesic", np.degrees((matrices(predicted).inv() * matrices(truth)).magnitude()).mean()


def cases():
    # classes, samples, classes that are labels, how far right logits stand out
    for i, (k, n, n_labels, gain) in enumerate(
            [(2, 40, 2, 1.5), (5, 60, 5, 1.0), (7, 30, 4, 1.5), (12, 20, 12, 0.2), (3, 1, 3, 5.0), (4, 16, 1, -9.0), (2, 50, 2, 0.5)]):
        rng = np.random.RandomState(i)
        label = rng.randint(n_labels, size=n)
        logits = rng.randn(n, k)
        if i == 1:
            logits = np.round(logits)  # equal scores
        logits[np.arange(n), label] += gain
        yield logits.astype(np.float32), label, None, classes if i < 6 else looks_for_first
    for i, (k, n) in enumerate([(1, 30), (4, 50), (3, 12), (3, 40), (1, 12)]):
        rng = np.random.RandomState(100 + i)
        truth = (rng.rand(n, k) < 0.4).astype(np.float32)
        if i == 2:
            truth[:, 1] = 0  # a label that no sample has
        logits = rng.randn(n, k) + truth
        if i == 3:
            logits = np.round(logits)  # equal scores
        if i == 4:  # F1 is 2/3 for the first one and for the first four
            logits, truth = -np.arange(n).reshape(n, 1) / 4, np.isin(np.arange(n).reshape(n, 1), [0, 3]).astype(np.float32)
        yield logits.astype(np.float32), None, truth, labels
    for i, k in enumerate([1, 3, 6]):
        rng = np.random.RandomState(200 + i)
        scale = 180 if k != 6 else 1
        truth = (scale * rng.uniform(-1, 1, (25, k))).astype(np.float32)
        yield (truth + 0.2 * scale * rng.randn(25, k)).astype(np.float32), None, truth, numbers


out = {"top_k": np.array([TOP_K], np.float64), "threshold": np.array([THRESHOLD], np.float64)}
for i, (logits, label, target, values) in enumerate(cases()):
    out[f"{i}/logits"] = logits
    if target is None:
        out[f"{i}/labels"] = label.astype(np.int32)
    else:
        out[f"{i}/targets"] = target
    data = logits.astype(np.float64)
    truth = label if target is None else target.astype(int) if values is labels else target.astype(np.float64)
    if values is labels:
        out[f"{i}/thresholds"] = thresholds(data, truth)
    out[f"{i}/positive"] = np.array([values is not looks_for_first], np.int32)
    out.update((f"{i}/values/{name}", np.array([v], np.float64)) for name, v in values(data, truth))
save_file(out, os.path.join(os.path.dirname(__file__), "metrics.safetensors"),
          metadata={"made": f"by make_metrics.py with scikit-learn {sklearn.__version__}"})
