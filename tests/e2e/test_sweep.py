"""Functions of test_sweep.sh: values that are drawn, and what folds say together."""
import csv, json, math, re


def check_drawn(table):
    pairs = [(float(a), float(b)) for a, b in re.findall(r"lr=(\S+) *weight_decay=(\S+)", open(table).read())]
    logs = [math.log10(lr) for lr, _ in pairs]
    assert len(set(pairs)) == 40 and -4 <= min(logs) and max(logs) <= -2, pairs
    assert abs(sum(logs) / 40 + 3) < 0.3, sum(logs) / 40 # of 40, the mean of an even draw deviates by 0.09
    decays = [d for _, d in pairs]
    assert 0 <= min(decays) and max(decays) <= 0.5 and abs(sum(decays) / 40 - 0.25) < 0.08, decays


def check_odd(sweep, table):
    for name, tails in (("sweep.csv", ["_mean", "_std"]), ("runs.csv", [""])):
        text = open(f"{sweep}/{name}", newline="").read()
        head, *rows = csv.reader(text.splitlines())
        assert len(rows) == 3 and all(len(r) == len(head) for r in rows), (head, rows)
        assert set('val.f1.left, "old"\\x1b[2J\\n\\x9b1m' + t for t in tails) <= set(head), head
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", text + open(table).read()), text


def check_pooled(sweep, table):
    """As sklearn.metrics on cross_val_predict's predictions; keys say the class of this set."""
    pooled = [json.loads(line) for line in open(sweep + "/pooled.json")]
    assert len(pooled) == 2
    for line in pooled:
        lr = line["predictions"].split("lr=")[1].removesuffix(".csv")
        rows = list(csv.DictReader(open(f"{sweep}/{line['predictions']}")))
        p = line["pooled"]
        assert p["samples"] == len(rows) and len({(r["key"], r.get("key2")) for r in rows}) == len(rows)
        assert {r["fold"] for r in rows} == {"0", "1", "2"}
        matrix, n_right, n = p["confusion"], 0, 0
        for fold in range(3):
            own = json.loads(open(f"{sweep}/fold={fold},lr={lr}/heldout.json").read().splitlines()[-1])
            n_right += round(own["accuracy"] * own["samples"])
            n += own["samples"]
        assert n == p["samples"] == sum(sum(r.values()) for r in matrix.values())
        assert abs(p["accuracy"] - n_right / n) < 1e-9, (p["accuracy"], n_right, n)
        said = {}
        for r in rows:
            said[r["subject"]] = said.get(r["subject"], 0) + 1
        columns = {}
        for r in matrix.values():
            for name, count in r.items():
                columns[name] = columns.get(name, 0) + count
        assert said == columns, (said, columns)
        f1 = []
        for name in p["report"]["classes"]:
            right = matrix.get(name, {}).get(name, 0)
            total = sum(matrix.get(name, {}).values()) + columns.get(name, 0)
            f1.append(2 * right / total if total else 0)
        assert abs(sum(f1) / len(f1) - p["macro_f1"]) < 1e-9
        assert f"pooled.accuracy {p['accuracy']:.4g} " in open(table).read()


def check_halving(sweep, table):
    """Successive halving with factor 3, from what the runs have evaluated: after 1, 3 and all 9 epochs."""
    import glob
    losses = {}
    for run in glob.glob(sweep + "/lr=*"):
        rows = [json.loads(line) for line in open(run + "/metrics.jsonl")]
        losses[run] = [r["loss"] for r in rows if r["kind"] == "eval" and r["split"] == "val"]
    assert sorted(map(len, losses.values()), reverse=True) == [9, 3, 3] + [1] * 6, losses
    first = sorted(losses, key=lambda run: losses[run][0])[:3]
    assert {run for run in losses if len(losses[run]) >= 3} == set(first), losses
    assert len(losses[min(first, key=lambda run: losses[run][2])]) == 9, losses
    lines = open(table).read().splitlines()
    assert len(lines) == 9 and lines[0].endswith("(1 of 1 runs)") and all(l.endswith("(dropped)") for l in lines[1:]), lines
