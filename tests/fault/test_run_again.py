"""Functions of test_run_again.sh: what it trains on, and checks of what it wrote."""
from small_set import records


def compare(metrics, evals):
    rows = records(metrics, "eval")
    printed = {(r["split"], r["step"]): r for r in rows}
    assert {("val", 10), ("val", 20), ("val", 30), ("test", 30)} <= printed.keys(), printed.keys()
    best = max((r for r in rows if r["split"] == "val"), key=lambda r: r["accuracy"])  # the first of equals
    n = 0
    for r in records(evals):
        if r["weights"] == "best":
            accuracy = printed["val", r["step"]]["accuracy"]
            assert accuracy == best["accuracy"], f"best is of step {r['step']}: {accuracy} < {best['accuracy']}"
        elif r["weights"] == "latest":
            assert r["step"] == 30, r
        else:
            assert r["step"] == int(r["weights"]), r
        p = printed.get((r["split"], r["step"]))
        if p:
            n += 1
            for key in ("loss", "accuracy", "top5"):
                assert r[key] == p[key], f"{key} of {r} is {p[key]} in metrics.jsonl"
    print(f"{n} evaluations agree with training")
    assert n >= 6


def flip_bit(path):
    with open(path, "r+b") as f:
        f.seek(0, 2)
        at = f.tell() // 2
        f.seek(at)
        byte = f.read(1)[0]
        f.seek(at)
        f.write(bytes([byte ^ 1]))
