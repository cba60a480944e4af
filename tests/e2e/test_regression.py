"""Functions of test_regression.sh: what it trains on, and checks of what it wrote."""
import random
from small_set import bmp, records, write_tar


def make(path, seed="7", damaged="0", mirrored=""):
    """mirrored: other numbers of as many digits in the members alone."""
    random.seed(int(seed))
    samples = []
    for i in range(240):
        x, y, n = random.randrange(20), random.randrange(20), 24
        pixels = bytearray(random.randrange(40) for _ in range(n * n * 3))
        for dy in range(4):
            at = ((n - 1 - y - dy) * n + x) * 3
            pixels[at:at + 12] = b"\xf0" * 12
        x, y = 100 + 10 * x, -5 * y # mean 195 and -47.5, std 58 and 29
        samples.append({"bmp": bmp(n, n, pixels), "json": f'{{"x": {x}.0, "y": {y}}}', "where": f"{400 - x if mirrored else x} {y}\n" if i >= int(damaged) else "nan 1\n"})
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
    """The config's numbers are the training split's mean and deviation, as scikit-learn's StandardScaler has them."""
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


def make_far(path):
    """Seconds since 1970 within half an hour, and metres that follow from them: float32 has steps of 128 s and 0.5 m."""
    random.seed(3)
    with open(path, "w") as f:
        f.write("t,w,y\n")
        for _ in range(400):
            t, w = 1700000000 + 1800 * random.random(), random.random()
            f.write(f"{t:.3f},{w:.4f},{5400000 + (t - 1700000000) / 900 + w:.5f}\n")


def check_far(table, work):
    import csv, json, struct
    truth = [float(r["y"]) for r in csv.DictReader(open(table))]
    rows = list(csv.DictReader(open(work + "/far.out.csv")))
    said, true = [float(r["y"]) for r in rows], [truth[int(r["key"])] for r in rows]
    n, mean = len(rows), sum(true) / len(rows)
    mae = sum(abs(a - b) for a, b in zip(said, true)) / n
    r2 = 1 - sum((a - b) ** 2 for a, b in zip(said, true)) / sum((b - mean) ** 2 for b in true)
    result = json.loads(open(work + "/out").read().splitlines()[-1])
    assert n == 80 and len(set(said)) > 70, (n, len(set(said)))
    assert abs(result["y.mae"] - mae) < 1e-5 and abs(result["y.r2"] - r2) < 1e-5, (result, mae, r2)
    assert mae < 0.2 and r2 > 0.9, (mae, r2)
    lines = [json.loads(line) for line in open(work + "/far.out.jsonl")]
    assert [line["y"] for line in lines] == said, "JSON lines"
    npy = open(work + "/far.out.npy", "rb").read()
    array = struct.unpack(f"<{n}d", npy[-8 * n:])
    assert b"<f8" in npy[:128] and all(abs(a - b) < 1e-6 for a, b in zip(array, said)), "NPY"
    print("far from 0: mae", mae, "r2", r2)
