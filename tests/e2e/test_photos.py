"""Functions of test_photos.sh: what it trains on, and checks of what it wrote."""
import glob, json, os, random, re, tarfile
from small_set import bmp, records


def check_shards(pattern, image):
    samples = {}
    for path in sorted(glob.glob(re.sub(r"\{.*\}", "*", pattern))):
        with tarfile.open(path) as tar:
            for member in tar:
                key, ext = member.name.rsplit(".", 1)
                samples.setdefault(key, {})[ext] = tar.extractfile(member).read()
    labels = {}
    for key, s in samples.items():
        assert set(s) == {image, "cls", "json"} and s[image], (key, s.keys())
        json.loads(s["json"])
        labels.setdefault(key.split("/")[0], set()).add(int(s["cls"]))
    assert sorted(map(list, labels.values())) == [[i] for i in range(len(labels))], labels
    print(f"tarfile reads {len(samples)} samples of {len(labels)} classes")


def make(folder):
    random.seed(3)
    for label, (r, g, b) in {"red": (200, 40, 40), "green": (40, 200, 40), "blue": (40, 40, 200)}.items():
        os.makedirs(f"{folder}/{label}")
        for i in range(24):
            w, h = random.choice([(33, 20), (40, 40), (18, 27)])
            rows = b""
            for _ in range(h):
                row = bytes(max(0, min(255, c + random.randint(-40, 40))) for _ in range(w) for c in (b, g, r))
                rows += row + bytes(-len(row) % 4)
            open(f"{folder}/{label}/{i}.bmp", "wb").write(bmp(w, h, rows))


def check_colours(out):
    r = records(out)[-1]
    mean = (r["recall.red"] + r["recall.green"] + r["recall.blue"]) / 3
    assert r["accuracy"] >= 0.7 and abs(mean - r["recall"]) < 1e-12 and r["macro_f1"] >= 0.7 and "loss" not in r, r
