"""Functions of soak.sh: the table it trains on, and checks of what it wrote."""
import csv, glob, os, random
from small_set import records


def make_table(path, seed):
    draw = random.Random(seed)
    with open(path, "w") as f:
        table = csv.writer(f)
        table.writerow("a b c label".split())
        for _ in range(400):
            a, b, c = (round(draw.gauss(0, 1), 4) for _ in range(3))
            table.writerow([a, b, c, "x" if a + b * c > 0 else "y"])


def compare_runs(calm, soak, lost):
    def newest(run, name):
        return open(os.path.join(sorted(glob.glob(run + "/checkpoints/step-*"))[-1], name), "rb").read()

    def steps(run):
        return [tuple(r[k] for k in ("step", "epoch", "samples", "loss", "lr")) for r in records(run + "/metrics.jsonl", "step")]

    for name in ("model.safetensors", "optimizer.safetensors"):
        assert newest(calm, name) == newest(soak, name), f"{name} differs"
    undisturbed, disturbed = steps(calm), steps(soak)
    known = set(disturbed)
    missing = [s for s in undisturbed if s not in known]
    assert len(disturbed) + len(missing) == len(undisturbed), f"metrics of steps differ, first at {missing[:1]}"
    assert not missing or lost == "lost", f"{len(missing)} metrics of steps are missing, the first {missing[0]}"
    rss = [r["rss"] for r in records(calm + "/metrics.jsonl", "step")]
    quarter = len(rss) // 4
    before, behind = max(rss[quarter : 2 * quarter]), max(rss[2 * quarter :])
    assert behind <= 1.02 * before, f"resident memory grows from {before} to {behind}"
