import base64, io, json, math, random, re, struct
from PIL import Image
from small_set import bmp, records, write_tar


def eval_report(run, split):
    """The first target of an evaluation, and the line of result.json that it is of."""
    with open(f"{run}/evaluation-{split}.json") as f:
        e = json.load(f)
    return e["targets"][0], [r for r in records(f"{run}/result.json")
                             if r["split"] == split and r["step"] == e["step"] and "samples" in r][-1]


def page(run):
    with open(f"{run}/report.html") as f:
        return f.read()


def picture(sample, panel=0):
    return Image.open(io.BytesIO(base64.b64decode(sample["panels"][panel]["png"])))


def area(points):
    return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in zip(points, points[1:]))


def check_shares(run):
    for r in records(f"{run}/metrics.jsonl", "step"):
        s = r["seconds"]
        assert s["forward"] > 0 and s["backward"] > 0 and s["optimizer"] > 0, r
        assert s["forward"] + s["backward"] <= s["compute"] + s["data"] + s["comm"] and s["optimizer"] <= s["other"] + 1e-6, r
    shares = [re.search(what + r" (?:<b>)?[0-9.]+.%, ", page(run)) for what in ("of it forward", "backward", "optimizer")]
    assert all(shares), shares


def check_bench(path):
    r = json.load(open(path))
    assert 0 < r["batch_ms"] <= r["batch_max_ms"] and 0 <= r["wait_ms"] <= r["wait_max_ms"] and 0 <= r["queue"] <= r["queue_max"] <= 1, r


def check_classes(run):
    text = page(run)
    for split in ("val", "test"):
        e, result = eval_report(run, split)
        right = sum(row.get(name, 0) for name, row in e["confusion"].items())
        n = sum(sum(row.values()) for row in e["confusion"].values())
        assert n == result["samples"] and abs(right / n - result["accuracy"]) < 1e-9, (e["confusion"], result)
        assert len(e["wrong"]) == min(24, n - right)
        sure = [w["probability"] for w in e["wrong"]]
        assert sure == sorted(sure, reverse=True) and all(w["truth"] != w["predicted"] for w in e["wrong"])
        for w in e["wrong"] + e["uncertain"]:
            assert [picture(w, k).size for k in range(2)] == [(16, 18), (20, 16)] and len(w["panels"]) == 2, w["panels"]
        unsure = [w["probability"] for w in e["uncertain"]]
        assert unsure == sorted(unsure) and len(unsure) == min(12, n) and unsure[0] <= sure[-1], (unsure, sure)
        assert len({w["key"] for w in e["wrong"]}) > 1 and ", " in e["wrong"][0]["key"]
        assert all(w["panels"][0]["png"] in text and w["key"] in text for w in e["wrong"])
        for c in e["curves"]:
            assert c["roc"][0] == [0, 0] and c["roc"][-1] == [1, 1] and c["pr"][0] == [0, 1] and c["pr"][-1][0] == 1
            if f"roc_auc.{c['name']}" in result:
                assert c["auc"] == result[f"roc_auc.{c['name']}"], (c["auc"], result)
            assert f"{c['name']} · AUC {c['auc']:.3f}" in text and f"{c['name']} · AP {c['ap']:.3f}" in text, c["name"]
            if n <= 60 and f"roc_auc.{c['name']}" in result:
                assert abs(area(c["roc"]) - result[f"roc_auc.{c['name']}"]) < 1e-3, c
        assert set(e["report"]["classes"]) == set(e["confusion"])
    assert "Finished" in text and "Most confident mistakes" in text and len(text) < 2e6


def make_squares(path):
    draw, samples = random.Random(3), []
    for _ in range(60):
        x, y, pixels = draw.randrange(20), draw.randrange(20), bytearray(24 * 24 * 3)
        for i in range(4):
            at = ((23 - y - i) * 24 + x) * 3
            pixels[at:at + 12] = b"\xf0" * 12
        samples.append({"bmp": bmp(24, 24, pixels), "where": f"{x} {y}\n"})
    write_tar(path, samples)


def make_classes(path, n):
    draw = random.Random(3)
    write_tar(path, [{"bmp": bmp(24, 24, bytes((k % 7 * 40 + draw.randrange(9), k // 7 * 40, 99)) * 576), "cls": f"{k}\n"}
                     for k in range(int(n)) for _ in range(6)])


def check_many(run):
    e, result = eval_report(run, "val")
    recall = {k: c["recall"] for k, c in e["report"]["classes"].items()}
    drawn = [c["name"] for c in e["curves"]]
    assert len(drawn) == 8 and max(recall.values()) > 0, recall
    assert [recall[k] for k in drawn] == sorted(recall.values())[:8], (drawn, recall)
    assert "Curves of the 8 of 40 classes that have the least recall" in page(run)


def check_numbers(run):
    e, result = eval_report(run, "test")
    assert [sum(h["counts"]) for h in e["errors"]] == [result["samples"]] * 2
    for h in e["errors"]:  # each sample: the mean distance is the metric
        assert len(h["points"]) == result["samples"] <= 300
    errors = [abs(t - p) for h in e["errors"] for t, p in h["points"]]
    assert abs(sum(errors) / len(errors) - result["mae"]) < 1e-4 * result["mae"] + 1e-9, (sum(errors) / len(errors), result)
    assert page(run).count('class="k0 s0 guide"') >= 2
    losses = [w["loss"] for w in e["wrong"]]
    assert losses == sorted(losses, reverse=True) and "probability" not in e["wrong"][0]
    for w in e["wrong"]:
        truth, said = ([float(v) for v in w[k].split(", ")] for k in ("truth", "predicted"))
        x, y = (round(v) for v in truth)
        assert len(w["panels"]) == 1 and picture(w).getpixel((x + 1, y + 1))[2] == 0xf0, w  # what is seen is where the truth says
        worst = max(abs(a - b) for a, b in zip(truth, said))
        assert worst <= max(h["to"] for h in e["errors"]) + 0.01
    assert "Largest errors" in page(run) and "Errors of" in page(run)


SIGNAL = [round(math.sin(i / 3) * 40, 2) for i in range(24)]


def make_signals(path):
    """Samples of a series of numbers, a sound, and an array of four bands: a core of 1000, an arc of 8, noise of 1."""
    draw, samples = random.Random(3), []
    for i in range(48):
        bands = [[[draw.gauss(0, 1) + (1000 if (y, x) == (8, 8) else 8 if y == 3 and 4 <= x < 12 else 0) for _ in range(4)]
                  for x in range(16)] for y in range(16)]
        head = "{'descr': '<f4', 'fortran_order': False, 'shape': (16, 16, 4), }"
        head += " " * (-(len(head) + 11) % 64) + "\n"
        sound = b"".join(struct.pack("<h", int(9000 * math.sin(k * (.2 + .3 * (i % 2))))) for k in range(2000))
        samples.append({"npy": b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() +
                        struct.pack("<1024f", *(v for row in bands for px in row for v in px)),
                        "wav": struct.pack("<4sI8sIHHIIHH4sI", b"RIFF", 36 + len(sound), b"WAVEfmt ", 16, 1, 1, 8000, 16000, 2, 16,
                                           b"data", len(sound)) + sound,
                        "txt": " ".join(str(v) for v in SIGNAL), "cls": str(i % 2)})
    write_tar(path, samples)


def check_signals(run):
    with open(f"{run}/evaluation-test.json") as f:
        e = json.load(f)["targets"][0]
    w = (e["wrong"] + e["uncertain"])[0]
    kinds = {p["field"]: p for p in w["panels"]}
    assert set(kinds) == {"series", "sound", "wave", "sky"}, kinds.keys()
    assert len(kinds["series"]["lines"]) == 1 and all(abs(a - b) < 0.01 for a, b in zip(kinds["series"]["lines"][0], SIGNAL))
    low, middle, high = kinds["sound"]["hz"]
    assert low == 0 and high == 4000 and 600 < middle < 1500 and kinds["sound"]["seconds"] == 0.25, kinds["sound"]
    line = kinds["wave"]["lines"][0]
    assert len(line) == 160 and min(line) < -0.2 and max(line) > 0.2 and "hz" not in kinds["wave"]
    sky = picture(w, [p["field"] for p in w["panels"]].index("sky")).convert("L")
    assert sky.size == (34, 34), sky.size  # a grid of four bands
    faint = sum(sky.getpixel((x, 3)) for x in range(4, 12)) / 8
    assert faint > 45 and sky.getpixel((8, 8)) > 250, faint  # linear: 2
    text = page(run)
    assert '<svg viewBox="0 0 160 64" class="signal">' in text and "<i>4 kHz</i>" in text and "<i>250 ms</i>" in text


def check_given(run):
    """What the config and the command set, and none of the autos that were resolved since."""
    starts = records(f"{run}/metrics.jsonl", "start")
    given = starts[-1]["given"]
    assert len(starts) == 2 and given["train.max_steps"] == "20" and given["eval.every"] == "10 steps", given
    assert not {"device.replicas", "data.workers"} & set(given), given
    assert starts[-1]["cores"] >= 1 and starts[-1]["memory_bytes"] > 2**28 and 0 <= starts[-1]["time"] - starts[-1]["began"] < 600
    table = page(run).split("Changed from the defaults")[1].split("</table>")[0].replace("<wbr>", "")
    assert "<td>train.max_steps</td><td>20</td>" in table and "device.replicas" not in table
