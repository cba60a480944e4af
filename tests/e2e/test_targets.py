"""Functions of test_targets.sh: what it trains on, and checks of what it wrote."""
import json, random
from small_set import bmp, records, write_tar


def make(path):
    random.seed(7)
    samples = []
    for i in range(240):
        x, y, n, red = random.randrange(20), random.randrange(20), 24, random.randrange(2)
        pixels = bytearray(random.randrange(40) for _ in range(n * n * 3))
        for dy in range(4):
            at = ((n - 1 - y - dy) * n + x) * 3
            pixels[at:at + 12] = (b"\x10\x10\xf0" if red else b"\xf0\xf0\xf0") * 4
        name = ("upper", "lower")[y > 9] + ("Left", "Right")[x > 9]
        samples.append({"bmp": bmp(n, n, pixels),
                        "json": json.dumps({"quadrant": name, "red": red, "x": x, "y": y, "part": x / 20})})
    write_tar(path, samples)


def check(metrics, out, steps):
    evals = records(metrics, "eval")
    for r in evals:
        parts = r["quadrant.loss"] + 0.5 * r["red.loss"] + 2 * r["where.loss"]
        assert abs(parts - r["loss"]) < 1e-9 * parts, r
        assert "quadrant.accuracy" in r and "where.mae" in r and "accuracy" not in r and "red.mae" not in r, r
        assert abs(sum(r["where"]["mae_by_number"].values()) / 2 - r["where.mae"]) < 1e-9, r
    result = records(out)[-1]
    print({k: v for k, v in result.items() if "." in k})
    assert int(steps) < 600 or (result["quadrant.accuracy"] > 0.8 and result["red.loss"] < 0.2 and result["where.mae"] < 1.5), result
