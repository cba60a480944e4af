"""Functions of test_eval_report.sh: what it trains on, and checks of what it wrote."""
import csv, json


def check_report(report, table):
    r = json.load(open(report))
    n = r["samples"]
    assert r["split"] == "all", r["split"]
    assert n == sum(sum(row.values()) for row in r["confusion"].values()) and n > 40, n
    for column in ("finger", "n"):
        parts = r["by"][column]
        assert all(set(p) == {"samples", "accuracy", "macro_f1", "loss", "eer", "interval"} for p in parts.values()), parts
        assert len(parts) > 1 and list(parts) == sorted(parts) and sum(p["samples"] for p in parts.values()) == n, parts
        for metric in ("accuracy", "loss"):
            mean = sum(p["samples"] * p[metric] for p in parts.values()) / n
            assert abs(mean - r[metric]) < 1e-9, (column, metric, mean, r[metric])
            for part in parts.values():  # wider than that of the whole, which has more samples
                low, high = part["interval"][metric]
                assert low <= part[metric] <= high, (column, metric, part)
            whole = r["interval"][metric]
            assert sum(p["interval"][metric][1] - p["interval"][metric][0] for p in parts.values()) > len(parts) * (whole[1] - whole[0])
    assert len({p["loss"] for p in r["by"]["finger"].values()}) > 1
    for metric in ("accuracy", "macro_f1", "loss"):
        low, high = r["interval"][metric]
        assert low <= r[metric] <= high and low < high, (metric, low, r[metric], high)
    assert "eer" not in r["interval"], r["interval"]
    # a share's interval is about that of the binomial distribution
    low, high = r["interval"]["accuracy"]
    p = r["accuracy"]
    assert abs((high - low) - 2 * 1.96 * (p * (1 - p) / n) ** 0.5) < 0.3 * (high - low) + 1e-3, (low, high, p, n)
    rows = dict(csv.reader(open(table)))
    assert float(rows["accuracy"]) == r["accuracy"], rows
    assert [float(rows[f"interval.loss.{end}"]) for end in ("low", "high")] == r["interval"]["loss"], rows
    finger = list(r["by"]["finger"])[0]
    assert float(rows[f"by.finger.{finger}.loss"]) == r["by"]["finger"][finger]["loss"]


def check_units(samples, people):
    """The figures are the same; the intervals are not, as a person's samples come together."""
    a, b = json.load(open(samples)), json.load(open(people))
    assert a["accuracy"] == b["accuracy"] and a["loss"] == b["loss"]
    assert a["interval"]["loss"] != b["interval"]["loss"], a["interval"]
    low, high = b["interval"]["loss"]
    assert low <= b["loss"] <= high and low < high, (low, high)


def check_strangers(path):
    r = json.load(open(path))
    # 9 people of 3 x 3 pairs of images; pairs of samples without a common image: 2 x 2 genuine ones for each sample
    assert r["samples"] == 81 and r["pairs"]["genuine"] == 9 * 9 * 4 // 2, r
    assert r["pairs"]["impostor"] == 81 * 72 // 2 and 0 < r["eer"] < 1 and "loss" not in r and "by" not in r, r
