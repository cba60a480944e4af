"""Functions of test_named_metrics.sh: what it trains on, and checks of what it wrote."""
import csv, json, random, struct
from small_set import bmp, write_tar


def make(work):
    random.seed(7)
    samples = []
    for i in range(120):
        k = i % 2
        side = "left" if i < 60 else "right"
        pixels = [max(0, min(255, 100 + 30 * k + random.randrange(-60, 61))) for _ in range(8 * 8 * 3)]
        samples.append({"bmp": bmp(8, 8, pixels), "json": json.dumps(
            {"state": ["ill, badly", "other"][k], "a": 4.0 * k, "b": 1.0 * (i % 3), "odd": k, "rare": int(i % 7 == 0 and i < 60),
             "never": 0, "side": side})})
    write_tar(f"{work}/set.tar", samples)


def check(work):
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
    digits = [k for t in ("first", "second", "labels", "numbers") for k in read(t)[1]
              if any(w.isdigit() for w in k.split(".")) and "interval" not in k]
    assert not digits, digits
