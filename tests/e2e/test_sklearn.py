"""Functions of test_sklearn.sh: the set, and what scikit-learn makes of it."""
import json, random, re, subprocess
from small_set import table, write_tar

COLUMNS = ("x", "far", "fine", "same", "far_same", "time", "same_time")


def rows():
    random.seed(3)
    for i in range(150):
        # far: the mean is much larger than the deviation; same: 0.1, whose mean is not 0.1 after rounding
        yield {"x": random.gauss(5, 3), "far": 100 + random.random(), "fine": 1e-7 * random.random(), "same": 0.1,
               "far_same": 123456.7, "time": 1700000000 + i % 7, "same_time": 1700000001, "group": "abcdefghi"[min(i % 13, 8)], "kind": "pq"[i % 2],
               "official": None if i % 5 == 4 else i % 5}


def make(path):
    write_tar(path, [{"json": json.dumps({k: v for k, v in r.items() if v is not None})} for r in rows()])


def test_part(dtrain, config, *words):
    """Indices of the test part's records."""
    out = subprocess.run([dtrain, "data", "order", config, "--split", "test", *words], capture_output=True, text=True, check=True).stdout
    return sorted(int(key) for key in re.findall(r"^\d+\t(\d{4})", out, re.M))


def check_folds(dtrain, config):
    from sklearn.model_selection import GroupKFold, PredefinedSplit
    groups = [r["group"] for r in rows()]

    def shape(parts):
        """Whether each record is tested once, groups stay together, and the number of groups in each fold."""
        once = sorted(i for p in parts for i in p) == list(range(len(groups)))
        whole = all({groups[i] for i in p}.isdisjoint(g for i, g in enumerate(groups) if i not in set(p)) for p in parts)
        return once, whole, sorted(len({groups[i] for i in p}) for p in parts)

    ours = [test_part(dtrain, config, "data.split.unit=group", "data.split.folds=3", f"data.split.fold={k}") for k in range(3)]
    theirs = [list(test) for _, test in GroupKFold(3).split(groups, groups=groups)]
    assert shape(ours)[:2] == shape(theirs)[:2] == (True, True), (shape(ours), shape(theirs))
    assert shape(ours)[2] == [3, 3, 3], shape(ours)

    split = PredefinedSplit([-1 if r["official"] is None else r["official"] for r in rows()])
    theirs = [list(test) for _, test in split.split()]
    ours = [test_part(dtrain, config, "data.split.folds_by=official", f"data.split.fold={k}") for k in range(4)]
    assert ours == theirs, (ours, theirs)


def check_moments(run):
    from sklearn.preprocessing import StandardScaler
    part = {r["key"]: r["part"] for r in table(run + "/split.csv")}
    x = [[r[c] for c in COLUMNS] for i, r in enumerate(rows()) if part[f"{i:04d}"] == "train"]
    scaler = StandardScaler().fit(x)
    text = open(run + "/config.yaml").read()
    for key, want, most in (("mean", scaler.mean_, 1e-12), ("std", scaler.scale_, 1e-7)):
        got = [float(v) for v in re.search(r"\b" + key + r": \[([^\]]*)\]", text)[1].split(",")]
        assert len(got) == len(COLUMNS) and all(abs(g - w) <= most * abs(w) for g, w in zip(got, want)), (key, got, want)
    assert len(x) == 120 and [scaler.scale_[i] for i in (3, 4, 6)] == [1, 1, 1]
