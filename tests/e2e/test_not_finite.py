"""Functions of test_not_finite.sh: what it trains on, and checks of what it wrote."""
import csv, json, math, random, struct
from small_set import records, table, write_tar


def make(work):
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
        write_tar(f"{work}/{name}.tar", samples)
    make("set", ())
    make("bad", (4, 17, 31, 50))
    make("worse", range(60))
    make("nan", (4, 17), float("nan"))
    make("inf", (4, 17), float("-inf"))


def check_metrics(bad, good, figures):
    bad, good = json.load(open(bad)), json.load(open(good))
    assert bad.pop("n_not_finite") == 4 and "n_not_finite" not in good
    assert bad == good and bad["samples"] == 56, (bad, good)
    assert dict(csv.reader(open(figures)))["n_not_finite"] == "4"
    if "label" in bad:
        rows = bad["label"]["confusion"]
        assert sum(sum(row.values()) for row in rows.values()) == 56
        assert abs(sum(row.get(name, 0) for name, row in rows.items()) / 56 - bad["label.accuracy"]) < 1e-9


def check_rows(work):
    bad = (4, 17, 31, 50)
    for i, (row, line) in enumerate(zip(table(f"{work}/rows.csv"), records(f"{work}/rows.jsonl"))):
        known = {"key", "path", "error"} | {k for k in row if ".truth" in k}  # what the set has is there in any case
        own = {k: v for k, v in row.items() if k not in known and k != "flags.predicted"}
        if i in bad:
            assert "the network's output is not finite" in row["error"] and row["error"] == line["error"], (row, line)
            assert set(own.values()) == {""} and {k for k in line if ".truth" not in k} == {"key", "path", "error"}, (row, line)
        else:
            assert row["error"] == "" and "" not in own.values() and "error" not in line, (row, line)


def check_npy(path):
    v = struct.unpack("<180f", open(path, "rb").read()[-720:])
    assert [i for i in range(60) if all(map(math.isnan, v[3 * i:3 * i + 3]))] == [4, 17, 31, 50]
    assert sum(map(math.isnan, v)) == 12


def check_training(metrics):
    r = records(metrics, "eval")[-1]
    assert r["n_not_finite"] == 1 and r["loss"] is not None, r
