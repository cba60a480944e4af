"""Functions of test_thresholds.sh: what it trains on, and checks of what it wrote."""
import json, math, random
from small_set import bmp, records, table, write_tar

NAMES = ("often", "rare", "never")


def samples():
    random.seed(11)
    for _ in range(160):
        x = [random.gauss(0, 1) for _ in range(4)]
        often, rare = x[0] + random.gauss(0, 1) > -0.3, x[1] + x[2] + random.gauss(0, 1) > 2.2
        yield x, (int(often), int(rare), 0), int(x[3] > 0)


def make(work):
    write_tar(f"{work}/set.tar", [{"x": " ".join(f"{v:.4f}" for v in x), "json": json.dumps(dict(zip(NAMES, flags))),
                                   "cls": str(cls),
                                   "bmp": bmp(8, 8, [int(60 + 50 * max(-1, min(v, 3))) for v in x[:3]] * 64)}
                                  for x, flags, cls in samples()])


def f1(truth, said):
    hits, n = sum(t and s for t, s in zip(truth, said)), sum(truth) + sum(said)
    return 2 * hits / n if n else 0


def brute_force(truth, p):
    """The smallest of the best, midway between the probabilities that it divides."""
    if not any(truth):
        return 0.5
    at = sorted(set(p))
    best = max(range(len(at)), key=lambda i: (f1(truth, [v >= at[i] for v in p]), -i))
    return (at[best] + (at[best - 1] if best else 0)) / 2


def truth_of(rows, k):
    flags = [f for _, f, _ in samples()]
    return [flags[int(r["key"])][k] for r in rows]


def sigmoids(rows, name, temperature=1):
    return [1 / (1 + math.exp(-float(r[f"flags.logit.{name}"]) / temperature)) for r in rows]


def macro_f1(rows, thresholds):
    return sum(f1(truth_of(rows, k), [p >= thresholds[n] for p in sigmoids(rows, n)]) for k, n in enumerate(NAMES)) / 3


def check(work):
    val, test, every = (table(f"{work}/{n}.csv") for n in ("val", "test", "set"))
    found = {n: brute_force(truth_of(val, k), sigmoids(val, n)) for k, n in enumerate(NAMES)}
    assert found["never"] == 0.5 and found["rare"] != 0.5 != found["often"], found
    read = lambda name: json.load(open(f"{work}/{name}.json"))
    close = lambda a, b: abs(a - b) < 1e-6
    for name, rows in (("val", val), ("test", test)):
        r = read(name)
        own = r["flags"]["thresholds"]
        assert own.keys() == found.keys() and all(close(own[n], found[n]) for n in NAMES), (r, found)
        assert close(r["flags.macro_f1"], macro_f1(rows, found)), (name, r, macro_f1(rows, found))
    assert read("val")["flags.macro_f1"] > macro_f1(val, dict.fromkeys(NAMES, 0.5))
    # the run says the same of its last weights and of its best
    ends = {(r["split"], r["weights"]): r for r in records(f"{work}/runs/f1/result.json")}
    best = next(r for (split, weights), r in ends.items() if split == "test" and "best" in weights)
    for member in ("flags", "flags.macro_f1"):
        assert best[member] == read("test")[member], (best, read("test"))
    for r in records(f"{work}/runs/f1/metrics.jsonl", "eval"):
        assert set(r["flags"]["thresholds"]) == set(NAMES), r
    # of the test part as of others; a number is the threshold of all
    for r in test:
        assert r["flags.predicted"] == "|".join(n for n in NAMES if float(r[f"flags.{n}"]) >= 0.4), r
    # calibrated: the file is of the probabilities that are printed
    of_file = json.load(open(f"{work}/runs/f1/calibration.json"))["flags"]
    T = of_file["temperature"]
    assert T != 1
    for k, n in enumerate(NAMES):
        assert close(of_file["thresholds"][n], brute_force(truth_of(val, k), sigmoids(val, n, T))), (n, of_file)
    said = set()
    for row, line, twice in zip(every, records(f"{work}/set.jsonl"), table(f"{work}/twice.csv")):
        want = [n for n in NAMES if float(row[f"flags.{n}"]) >= of_file["thresholds"][n]]
        assert row["flags.predicted"] == twice["flags.predicted"] == "|".join(want), row
        assert line["flags"]["predicted"] == want, line
        said.add(row["flags.predicted"])
    assert len(every) == 160 and said >= {"", "often", "rare", "often|rare"}, said
    r = read("set")
    for n in NAMES:
        logit = T * math.log(of_file["thresholds"][n] / (1 - of_file["thresholds"][n]))
        assert close(r["flags"]["thresholds"][n], 1 / (1 + math.exp(-logit))), r
    assert close(r["flags.macro_f1"], macro_f1(every, r["flags"]["thresholds"])), r


def check_folds(work):
    rows = table(f"{work}/runs/folds/predictions.csv")
    assert len(rows) == 160, len(rows)
    for row in rows:
        at = json.load(open(f"{work}/runs/folds/fold={row['fold']}/calibration.json"))["flags"]["thresholds"]
        assert row["flags.predicted"] == "|".join(n for n in NAMES if float(row[f"flags.{n}"]) >= at[n]), row


def check_one(work):
    r = json.load(open(f"{work}/one.json"))
    assert list(r["thresholds"]) == ["rare"], r
    at = json.load(open(f"{work}/runs/one/calibration.json"))["flags"]["thresholds"]["rare"]
    n = 0
    for row, line in zip(table(f"{work}/one.csv"), records(f"{work}/one.jsonl")):
        want = float(row["flags"]) >= at
        assert row["flags.predicted"] == ("flags" if want else ""), row
        assert line["flags"] == {"value": float(row["flags"]), "predicted": ["flags"] if want else []}, line
        n += want
    assert n > 0
