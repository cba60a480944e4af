"""Writes tests/golden/metrics_golden.h: what scikit-learn makes of random labels and predictions.

Run by hand in an environment with scikit-learn:  python tests/golden/make_metrics.py
"""
import os

import numpy as np
import sklearn
from sklearn import metrics as sk

# classes, samples, classes that are labels, share of right predictions
CASES = [(2, 40, 2, 0.7), (5, 60, 5, 0.5), (7, 30, 4, 0.6), (12, 20, 12, 0.1), (3, 1, 3, 1.0), (4, 16, 1, 0.0)]


def values_of(label, predicted):
    yield "accuracy", sk.accuracy_score(label, predicted)
    yield "macro_f1", sk.f1_score(label, predicted, average="macro", zero_division=0)
    yield "recall", sk.recall_score(label, predicted, labels=np.unique(label), average="macro", zero_division=0)
    for k, v in zip(np.unique(label), sk.recall_score(label, predicted, labels=np.unique(label), average=None)):
        yield f"recall.{k}", v


out = [f"// Made by make_metrics.py with scikit-learn {sklearn.__version__}.",
       "typedef struct golden_value {", "    const char *name;", "    double value;", "} golden_value;"]
rows = []
for i, (n_classes, n, n_labels, share) in enumerate(CASES):
    rng = np.random.RandomState(i)
    label = rng.randint(n_labels, size=n)
    predicted = np.where(rng.rand(n) < share, label, rng.randint(n_classes, size=n))
    out.append(f"static const int LABEL_{i}[] = {{{', '.join(map(str, label))}}};")
    out.append(f"static const int PREDICTED_{i}[] = {{{', '.join(map(str, predicted))}}};")
    values = [f'{{"{name}", {float(v)!r}}}, ' for name, v in values_of(label, predicted)]
    out.append(f"static const golden_value VALUES_{i}[] = {{{''.join(values)}{{NULL, 0}}}};")
    rows.append(f"    {{{n_classes}, {n}, LABEL_{i}, PREDICTED_{i}, VALUES_{i}}},")
out += ["static const struct {", "    int n_classes, n;", "    const int *label, *predicted;",
        "    const golden_value *values;", "} CASES[] = {"] + rows + ["};"]
with open(os.path.join(os.path.dirname(__file__), "metrics_golden.h"), "w") as f:
    f.write("\n".join(out) + "\n")
