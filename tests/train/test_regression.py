"""Functions of test_regression.sh: what it trains on, and checks of what it wrote."""
import random
from small_set import bmp, records, write_tar


def make(path, seed="7", damaged="0"):
    random.seed(int(seed))
    samples = []
    for i in range(240):
        x, y, n = random.randrange(20), random.randrange(20), 24
        pixels = bytearray(random.randrange(40) for _ in range(n * n * 3))
        for dy in range(4):
            at = ((n - 1 - y - dy) * n + x) * 3
            pixels[at:at + 12] = b"\xf0" * 12
        x, y = 100 + 10 * x, -5 * y # mean 195 and -47.5, std 58 and 29
        samples.append({"bmp": bmp(n, n, pixels), "json": f'{{"x": {x}.0, "y": {y}}}', "where": f"{x} {y}\n" if i >= int(damaged) else "nan 1\n"})
    write_tar(path, samples)


def check(metrics, out, steps):
    evals = records(metrics, "eval")
    for r in evals:
        mean = sum(r["mae_by_number"].values()) / 2
        assert abs(mean - r["mae"]) < 1e-9 * mean, r
        assert r["mae"] <= r["rmse"] and "accuracy" not in r, r
        # the loss is of normalised numbers: an average error of one std would be about 0.5
        assert r["loss"] < r["mae"] / 10, r
    result = records(out)[-1]
    # eval.best: mae takes the lower one
    if "test_best" in [r["split"] for r in evals]:
        assert evals[0]["split"] == "val" and evals[0]["mae"] < evals[1]["mae"], evals
    print("mae", result["mae"], "rmse", result["rmse"], "by number", evals[-1]["mae_by_number"])
    # guessing the mean gives 50 and 25, 37 together
    assert int(steps) < 600 or result["mae"] < 9, result


def moments(config):
    text = open(config).read().split("where:", 1)[1]
    print("{" + text.split("normalize: {", 1)[1].split("}", 1)[0] + "}")


def check_moments(run, data, dtrain):
    """The config's numbers are the training part's mean and deviation, as scikit-learn's StandardScaler has them."""
    import csv, math, re, subprocess
    rows = list(csv.DictReader(subprocess.run([dtrain, "data", "export", data, "-"], capture_output=True, text=True).stdout.splitlines()))
    part = {r["key"]: r["part"] for r in csv.DictReader(open(run + "/split.csv"))}
    text = open(run + "/config.yaml").read().split("where:", 1)[1]
    for key, of in (("mean", 0), ("std", 1)):
        got = [float(v) for v in re.search(key + r": \[([^\]]*)\]", text)[1].split(",")]
        for value, column in zip(got, "xy"):
            x = [float(r[column]) for r in rows if part[r["key"]] == "train"]
            mean = sum(x) / len(x)
            want = math.sqrt(sum((v - mean) ** 2 for v in x) / len(x)) if of else mean
            assert len(x) == 168 and abs(value - want) < 1e-5 * abs(want), (key, column, value, want)
