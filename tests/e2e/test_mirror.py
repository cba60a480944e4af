"""Functions of test_mirror.sh: what it trains on, and checks of what it wrote."""
import json, random, tarfile
from small_set import bmp, records, write_tar


def make(path):
    random.seed(7)
    write_tar(path, [{ # images of one colour look the same in a mirror
        "bmp": bmp(8, 8, [random.randrange(256)] * (8 * 8 * 3)),
        "json": json.dumps({k: random.uniform(-40, 40) for k in ("yaw", "pitch", "roll")}),
        "six": " ".join(f"{random.uniform(-1, 1):.4f}" for _ in range(6))} for _ in range(16)])


def check_targets(work, flipped, six_flipped):
    tar = tarfile.open(f"{work}/set.tar")
    read = lambda i, ext: tar.extractfile(f"{i:04d}.{ext}").read().decode()
    def expect(run, loss, targets, signs, std):
        rows = records(f"{work}/{run}.jsonl")
        find = lambda r: list(r["pose"].values()) if isinstance(r["pose"], dict) else r["pose"]
        got = sum((p - m * t) ** 2 / s / s for r, row in zip(rows, targets)
                  for p, t, m, s in zip(find(r), row, signs, std)) / len(rows) / len(signs)
        assert abs(got - float(loss)) < 1e-5 * got, (run, got, loss)
    angles = [[json.loads(read(i, "json"))[k] for k in ("yaw", "pitch", "roll")] for i in range(16)]
    expect("flipped", flipped, angles, (-1, 1, -1), (30, 16, 12))
    six = [[float(v) for v in read(i, "six").split()] for i in range(16)]
    expect("six_flipped", six_flipped, six, (1, -1, -1, -1, 1, 1), (1,) * 6)
