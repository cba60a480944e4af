import base64, io, json, random
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


def picture(sample):
    return Image.open(io.BytesIO(base64.b64decode(sample["image"])))


def area(points):
    return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in zip(points, points[1:]))


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
        assert all(picture(w).size == (16 + 2 + 20, 18) for w in e["wrong"]), picture(e["wrong"][0]).size
        assert len({w["key"] for w in e["wrong"]}) > 1 and ", " in e["wrong"][0]["key"]
        assert all(w["image"] in text and w["key"] in text for w in e["wrong"])
        for c in e["curves"]:
            assert c["roc"][0] == [0, 0] and c["roc"][-1] == [1, 1] and c["pr"][0] == [0, 1] and c["pr"][-1][0] == 1
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
    losses = [w["loss"] for w in e["wrong"]]
    assert losses == sorted(losses, reverse=True) and "probability" not in e["wrong"][0]
    for w in e["wrong"]:
        truth, said = ([float(v) for v in w[k].split(", ")] for k in ("truth", "predicted"))
        x, y = (round(v) for v in truth)
        assert picture(w).getpixel((x + 1, y + 1))[2] == 0xf0, w  # what is seen is where the truth says
        worst = max(abs(a - b) for a, b in zip(truth, said))
        assert worst <= max(h["to"] for h in e["errors"]) + 0.01
    assert "Largest errors" in page(run) and "Errors of" in page(run)
