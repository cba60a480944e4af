"""Functions of test_evaluation.sh: what it trains on, and checks of what it wrote."""
import json
from small_set import records


def check_printed(out, results, whole=""):
    printed, kept, result = records(out), records(results), json.load(open(results))
    assert result["schema"] == 1 and all(result[s]["split"] == s for s in ("train", "val", "test")), result
    assert all("best" in result[s]["weights"] for s in ("val", "test")), result
    assert all(r["weights"] == "last" and r["step"] == 4 > result[s]["step"] for s, r in result.get("last", {}).items()), result
    assert sum(sum(row.values()) for row in kept[-1]["confusion"].values()) == kept[-1]["samples"], kept
    assert printed == (kept if whole else [{k: v for k, v in line.items() if k != "confusion"} for line in kept])


def nearly(*names):
    a, b = (json.load(open(name)) for name in names)
    genuine, impostor = a["pairs"]["genuine"], a["pairs"]["impostor"]
    within = {"loss": 1e-5 * a["loss"]}
    if genuine:
        within |= {"pair_auc": 100 / (genuine * impostor), "eer": 1 / genuine}
    assert a.keys() == b.keys() and all(a[k] == b[k] for k in a if k not in within), (a, b)
    assert all(abs(a[k] - b[k]) <= within[k] for k in within), (a, b)


def check_samples(path, n):
    r, n = json.load(open(path)), int(n)
    assert r["samples"] == n == sum(sum(row.values()) for row in r["confusion"].values()), (r["samples"], n, r["confusion"])
    hits = sum(row.get(name, 0) for name, row in r["confusion"].items())
    assert abs(r["accuracy"] - hits / n) < 1e-12
    assert r["pairs"]["samples"] == n and r["pairs"]["impostor"] > 0, r["pairs"]
