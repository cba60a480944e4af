"""Functions of test_predict.sh: what it trains on, and checks of what it wrote."""
import json, math, os, random, small_set, struct
from small_set import records, table


def make(work):
    random.seed(3)
    names = [("ant", 30), ("bee, wild", 90), ("cat", 150), ("dog", 220)]
    def bmp(shade):
        return small_set.bmp(12, 12, [max(0, min(255, shade + random.randrange(-20, 21))) for _ in range(12 * 12 * 3)])
    def make(name, n, labelled=True, noise=0):
        samples = []
        for i in range(n):
            word, shade = names[i % 4]
            shade = shade + random.randrange(-noise, noise + 1)
            samples.append({"bmp": bmp(max(0, min(255, shade)))})
            if labelled:
                samples[i]["json"] = '{"label": "%s", "angle": %d, "odd": %d, "third": %d}' % (word, shade, i % 2, i % 3 == 0)
        small_set.write_tar(f"{work}/{name}.tar", samples)
    make("set", 128)
    make("hard", 150, noise=60)
    make("bare", 8, labelled=False)
    os.makedirs(f"{work}/new")
    for i in range(12):
        with open(f"{work}/new/{i:02d}.bmp", "wb") as f:
            f.write(bmp(names[i % 4][1]))
    with open(f"{work}/new/05.bmp", "wb") as f:
        f.write(b"BM broken")
    with open(f"{work}/list.txt", "w") as f:
        f.write("new/07.bmp\nnew/05.bmp\nnew/02.bmp\n")


def check_rows(work):
    names = ["ant", "bee, wild", "cat", "dog"]
    rows = table(f"{work}/hard.csv")
    assert len(rows) == 150 and [r["key"] for r in rows] == [f"{i:04d}" for i in range(150)]
    assert all(r["path"] == f"{work}/hard.tar" and r["error"] == "" for r in rows)
    right = sum(r["label"] == names[i % 4] for i, r in enumerate(rows)) / 150
    accuracy = json.load(open(f"{work}/eval"))["accuracy"]
    assert abs(right - accuracy) < 1e-9 and 0.3 < right < 1, (right, accuracy)
    lines = records(f"{work}/out.jsonl")
    def npy(path):
        b = open(path, "rb").read()
        assert b[:8] == b"\x93NUMPY\1\0"
        n = struct.unpack("<H", b[8:10])[0]
        head = eval(b[10:10 + n])
        assert (10 + n) % 64 == 0 and head["descr"] == "<f4" and head["shape"] == (150, 4), head
        v = struct.unpack("<600f", b[10 + n:])
        return [v[4 * i:4 * i + 4] for i in range(150)]
    p, x = npy(f"{work}/out.npy"), npy(f"{work}/logits.npy")
    for i, (r, l) in enumerate(zip(rows, lines)):
        top = sorted(range(4), key=lambda k: -p[i][k])
        e = [math.exp(v - max(x[i])) for v in x[i]]
        assert l["key"] == r["key"] and l["label"]["class"] == r["label"] == names[top[0]]
        assert [n for n, _ in l["label"]["top"]] == [names[k] for k in top] == [r["label"]] + [r[f"label.{k}"] for k in (2, 3, 4)]
        assert abs(sum(v for _, v in l["label"]["top"]) - 1) < 1e-6 and len(l["embedding"]) == 64
        assert all(abs(a - b) < 1e-5 for a, b in zip(l["label"]["logits"], x[i]))
        assert all(abs(e[k] / sum(e) - p[i][k]) < 1e-5 for k in range(4))
        assert abs(float(r["label.4.probability"]) - p[i][top[3]]) < 1e-6


def check_folder(work):
    rows = table(f"{work}/new.csv")
    assert list(rows[0]) == ["key", "path", "label", "label.probability", "error"], rows[0]
    assert [r["path"] for r in rows] == [f"{work}/new/{i:02d}.bmp" for i in range(12)]
    for i, r in enumerate(rows):
        assert (r["label"] == "" and "BMP: cut in its header" in r["error"]) if i == 5 else (
            r["label"] == ["ant", "bee, wild", "cat", "dog"][i % 4] and r["error"] == ""), r


def check_targets(work):
    rows = table(f"{work}/angle.csv")
    assert list(rows[0]) == ["key", "path", "angle", "error"], rows[0]
    for i, r in enumerate(rows):
        assert abs(float(r["angle"]) - [30, 90, 150, 220][i % 4]) < 40, r
    for r, l in zip(rows, records(f"{work}/angle.jsonl")): # logits are the network's outputs, before the unit
        assert abs(l["angle"]["value"] - float(r["angle"])) < 1e-4, l
        assert abs(l["angle"]["logits"][0] * 80 + 100 - l["angle"]["value"]) < 1e-3, l
    rows = table(f"{work}/two.csv")
    assert list(rows[0]) == ["key", "path", "flags.odd", "flags.third", "flags.predicted", "flags.logit.odd", "flags.logit.third", "label",
        "label.probability", "label.2", "label.2.probability", *[f"label.logit.{n}" for n in ("ant", "bee, wild", "cat", "dog")],
        "error"], rows[0]
    lines = records(f"{work}/two.jsonl")
    for r, l in zip(rows, lines):
        assert abs(1 / (1 + math.exp(-float(r["flags.logit.third"]))) - float(r["flags.third"])) < 1e-6
        assert l["flags"]["third"] == float(r["flags.third"]) and l["label"]["class"] == r["label"], (l, r)


def check_truth(work):
    names, angles = ["ant", "bee, wild", "cat", "dog"], [30, 90, 150, 220]
    rows, lines, own = (table(f"{work}/truth.csv"), records(f"{work}/truth.jsonl"), table(f"{work}/truth2.csv"))
    assert list(rows[0])[:8] == ["key", "path", "third", "angle", "flags.truth.odd", "flags.truth.third", "flags.odd",
                                 "flags.third"], rows[0]
    assert len(rows) == len(lines) == len(own) == 150
    for i, (r, l, o) in enumerate(zip(rows, lines, own)):
        assert (r["label.truth"], r["flags.truth.odd"], r["flags.truth.third"]) == (names[i % 4], str(i % 2), r["third"]), r
        assert l["label.truth"] == names[i % 4] and l["flags.truth"] == {"odd": i % 2, "third": int(i % 3 == 0)}, l
        assert abs(float(o["angle.truth"]) - angles[i % 4]) <= 60 and o["angle.truth"] == r["angle"] == str(l["angle"]), (r, l, o)


def check_parts(work):
    read = lambda name: table(f"{work}/{name}.csv")
    part = {r["key"]: r["part"] for r in table(f"{work}/runs/part/split.csv")}
    for split in ("train", "val", "test"):
        rows = read(split)
        assert sorted(r["key"] for r in rows) == sorted(k for k, p in part.items() if p == split) and min(part) == "0030"
        right = sum(r["label"] == ["ant", "bee, wild", "cat", "dog"][int(r["key"]) % 4] for r in rows)
        assert abs(right / len(rows) - json.load(open(f"{work}/{split}.json"))["accuracy"]) < 1e-9, split
    assert [len(read(n)) for n in ("where", "all", "some", "folder")] == [120, 150, 7, 12]
    assert [r["key"] for r in read("twice")] == [r["key"] for r in read("test")]


def check_means(work):
    names = ["ant", "bee, wild", "cat", "dog"]
    def npy(name):
        b = open(f"{work}/{name}.npy", "rb").read()
        v = struct.unpack("<600f", b[-2400:])
        return [v[4 * i:4 * i + 4] for i in range(150)]
    def probabilities(name):
        rows = table(f"{work}/{name}.csv")
        for r in rows:
            n = [r["label"]] + [r[f"label.{k}"] for k in (2, 3, 4)]
            v = [r["label.probability"]] + [r[f"label.{k}.probability"] for k in (2, 3, 4)]
            r["p"] = [float(v[n.index(c)]) for c in names]
        return rows
    H = lambda p: -sum(x * math.log(x) for x in p if x > 0)
    a, b, both, sure = npy("a"), npy("b"), probabilities("both"), probabilities("sure")
    for i in range(150):
        mean = [(x + y) / 2 for x, y in zip(a[i], b[i])]
        assert all(abs(x - y) < 1e-6 for x, y in zip(mean, both[i]["p"])), (i, mean, both[i])
        k = mean.index(max(mean))
        assert abs(float(both[i]["label.variance"]) - (a[i][k] - b[i][k]) ** 2 / 4) < 1e-6
        assert abs(float(both[i]["label.entropy"]) - H(mean)) < 1e-5
        assert abs(float(both[i]["label.mutual_information"]) - (H(mean) - (H(a[i]) + H(b[i])) / 2)) < 1e-5
        u, v = 1 / (H(a[i]) + 1e-3), 1 / (H(b[i]) + 1e-3)
        assert all(abs((u * x + v * y) / (u + v) - z) < 1e-5 for x, y, z in zip(a[i], b[i], sure[i]["p"])), i
    mc = probabilities("mc")
    assert all(abs(sum(r["p"]) - 1) < 1e-6 and float(r["label.mutual_information"]) >= 0 for r in mc)
    assert sum(float(r["label.variance"]) > 0 for r in mc) > 140
    tta, flip = probabilities("tta"), probabilities("flip")
    assert any(abs(x - y) > 1e-5 for i in range(150) for x, y in zip(flip[i]["p"], a[i]))
    assert any(abs(2 * t - x - y) > 1e-5 for i in range(150) for t, x, y in zip(tta[i]["p"], flip[i]["p"], a[i]))
    scale = [[3 * t - x - y for t, x, y in zip(tta[i]["p"], flip[i]["p"], a[i])] for i in range(150)]
    assert all(-1e-5 < x < 1 + 1e-5 for p in scale for x in p)


def check_ensemble(work, name, of):
    import tarfile
    with tarfile.open(f"{work}/{of}.tar") as tar:
        truth = [json.load(tar.extractfile(m)) for m in tar.getmembers() if m.name.endswith(".json")]
    rows, r = table(f"{work}/ensemble.{name}.csv"), json.load(open(f"{work}/ensemble.{name}.json"))
    assert len(rows) == len(truth) == r["samples"] and r["runs"] == 2, r
    near = lambda key, want: abs(r[key] - want) < 2e-5 * max(1, abs(want)) or exec("raise AssertionError((key, want, r))")
    def auc(score, true):
        own, rest = ([s for s, t in zip(score, true) if t == k] for k in (True, False))
        return sum((a > b) + (a == b) / 2 for a in own for b in rest) / len(own) / len(rest)
    if name == "numbers":
        return near("mae", sum(abs(float(p["angle"]) - t["angle"]) for p, t in zip(rows, truth)) / len(rows))
    names = sorted({t["label"] for t in truth})
    columns = ["label"] + [f"label.{k}" for k in range(2, 5)]
    p = [{row[c]: float(row[c + ".probability"]) for c in columns} for row in rows]
    at = "label." if name == "several" else ""
    near(at + "accuracy", sum(row["label"] == t["label"] for row, t in zip(rows, truth)) / len(rows))
    near(at + "loss", -sum(math.log(q[t["label"]]) for q, t in zip(p, truth)) / len(rows))
    near(at + "roc_auc", sum(auc([q[n] for q in p], [t["label"] == n for t in truth]) for n in names) / 4)
    for flag in ("odd", "third") if name == "several" else ():
        near("flags.roc_auc." + flag, auc([float(row["flags." + flag]) for row in rows], [t[flag] == 1 for t in truth]))


def scale_head(source, to, factor):
    values, shapes, _ = small_set.read_safetensors(source)
    last = [n for n in values if n.startswith("fc.")]
    assert last, list(values)
    for n in last:
        values[n] = [v * float(factor) for v in values[n]]
    head, at = {}, 0
    for n, v in values.items():
        head[n] = {"dtype": "F32", "shape": shapes[n], "data_offsets": [at, at := at + 4 * len(v)]}
    text = json.dumps(head).encode()
    with open(to, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(struct.pack(f"<{len(v)}f", *v) for v in values.values()))


def check_scaled(work, factor):
    own, r = (json.load(open(f"{work}/{name}"))["label"] for name in ("cal.json", "scaled.json"))
    assert abs(r["temperature"] / own["temperature"] / float(factor) - 1) < 1e-3, (own, r)
    assert abs(r["nll"] - own["nll"]) < 1e-4 and abs(r["ece"] - own["ece"]) < 1e-3, (own, r)


def check_kept(work):
    r = json.load(open(f"{work}/kept.json"))["label"]
    assert r["temperature"] == 1 and r["nll"] == r["nll_before"] and r["ece"] == r["ece_before"], r
    assert json.load(open(f"{work}/runs/kept/calibration.json"))["label"] == {"temperature": 1}


def check_temperature(work):
    names = ["ant", "bee, wild", "cat", "dog"]
    r = json.load(open(f"{work}/cal.json"))
    T = r["label"]["temperature"]
    assert json.load(open(f"{work}/runs/cal/calibration.json"))["label"]["temperature"] == T and T != 1
    val = {row["key"] for row in table(f"{work}/runs/cal/split.csv") if row["part"] == "val"}
    rows = table(f"{work}/before.csv")
    x = {row["key"]: [float(row[f"label.logit.{n}"]) for n in names] for row in rows}
    def nll(t):
        return sum(math.log(sum(math.exp(v / t) for v in x[k])) - x[k][int(k) % 4] / t for k in val) / len(val)
    assert len(val) == r["samples"] > 40
    assert abs(nll(1) - r["label"]["nll_before"]) < 1e-5, r
    assert nll(T) < nll(T * 1.02) and nll(T) < nll(T / 1.02), T
    assert r["label"]["ece"] != r["label"]["ece_before"]
    # what it is worth: each half with the temperature of the other
    halves = [[k for k in x if k in val][i::2] for i in (0, 1)]
    held_out = 0
    for own, other in (halves, halves[::-1]):
        def of(keys, t):
            return sum(math.log(sum(math.exp(v / t) for v in x[k])) - x[k][int(k) % 4] / t for k in keys)
        low, high = 0.01, 100
        while high / low > 1 + 1e-9:
            a, b = low * (high / low) ** (1 / 3), low * (high / low) ** (2 / 3)
            low, high = (low, b) if of(other, a) < of(other, b) else (a, high)
        held_out += of(own, low) / len(val)
    assert held_out < nll(1) and abs(held_out - r["label"]["nll"]) < 1e-5, (held_out, r)
    for a, b in zip(rows, table(f"{work}/after.csv")):
        e = sorted((math.exp(v / T) for v in x[a["key"]]), reverse=True)
        assert a["label"] == b["label"] and a["label.logit.cat"] == b["label.logit.cat"]
        assert abs(float(b["label.probability"]) - e[0] / sum(e)) < 1e-6
