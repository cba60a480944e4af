"""Functions of test_categorical.sh: sites and numbers, a step of the network in numpy, and its ONNX file."""
import json, random, tarfile

from small_set import read_safetensors, write_tar

SITES, LABELS = "abcde", ("no", "yes")


def make(path, new):
    draw = random.Random(3)
    rows = [{"site": SITES[i % 5], "x": round(draw.uniform(-1, 1), 3), "label": LABELS[draw.random() < 0.2 * (i % 5)]}
            for i in range(40)]
    write_tar(path, [{"json": json.dumps(r)} for r in rows])
    rows = [{"site": s, "x": 0.25} for s in SITES + "z"] + [{"x": 0.25}]
    write_tar(new, [{"json": json.dumps(r)} for r in rows])
    write_tar(new.replace("new", "lacks"), [{"json": json.dumps(r)} for r in rows + [{"site": "a"}] * 2])


def rows_of(path):
    with tarfile.open(path) as tar:
        return [json.load(tar.extractfile(m)) for m in tar]


def weights(run):
    import glob
    import numpy as np
    data, shapes, _ = read_safetensors(sorted(glob.glob(f"{run}/checkpoints/step-*/model.safetensors"))[-1])
    return {k: np.array(v, dtype=np.float64).reshape(shapes[k]) for k, v in data.items()}


def check_step(before, after, path):
    import numpy as np
    w, now, rows = weights(before), weights(after), rows_of(path)
    site = np.array([SITES.index(r["site"]) for r in rows])
    label = np.array([LABELS.index(r["label"]) for r in rows])
    assert w["site.embedding.weight"].shape == (3, 5), w["site.embedding.weight"].shape  # (classes + 1) / 2
    x = np.c_[[r["x"] for r in rows], w["site.embedding.weight"].T[site]]
    h1 = np.maximum(x @ w["fc1.weight"].T + w["fc1.bias"], 0)
    h2 = np.maximum(h1 @ w["fc2.weight"].T + w["fc2.bias"], 0)
    p = np.exp(h2 @ w["fc3.weight"].T + w["fc3.bias"])
    d = p / p.sum(1, keepdims=True)
    d[np.arange(len(rows)), label] -= 1
    d /= len(rows)
    grad = {"fc3.weight": d.T @ h2, "fc3.bias": d.sum(0)}
    d = d @ w["fc3.weight"] * (h2 > 0)
    grad |= {"fc2.weight": d.T @ h1, "fc2.bias": d.sum(0)}
    d = d @ w["fc2.weight"] * (h1 > 0)
    grad |= {"fc1.weight": d.T @ x, "fc1.bias": d.sum(0)}
    d = (d @ w["fc1.weight"])[:, 1:]
    grad["site.embedding.weight"] = np.stack([d[site == k].sum(0) for k in range(5)], 1)
    assert set(grad) == set(w), (set(grad), set(w))
    for name, g in grad.items():
        assert np.abs(g).max() > 1e-5, name
        assert np.allclose(w[name] - 0.5 * g, now[name], rtol=1e-5, atol=1e-6), (name, w[name] - 0.5 * g, now[name])


def check_onnx(path, new, predicted):
    import numpy as np
    import onnxruntime
    rows, want = rows_of(new), np.load(predicted)
    session = onnxruntime.InferenceSession(path)
    assert {i.name: i.type for i in session.get_inputs()} == {"x": "tensor(float)", "site": "tensor(int64)"}
    classes = json.loads(session.get_modelmeta().custom_metadata_map["classes"])
    assert classes["site"] == list(SITES), classes
    site = np.array([classes["site"].index(r["site"]) if r.get("site") in classes["site"] else 5 for r in rows])
    x = np.array([r["x"] for r in rows], np.float32)
    logits = session.run(["logits"], {"x": x, "site": site})[0]
    for unknown in (-1, -5, 6, 1 << 40):  # -1: pandas' code of a missing value
        same = session.run(["logits"], {"x": x, "site": np.where(site == 5, unknown, site)})[0]
        assert (same == logits).all(), (unknown, same, logits)
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert np.abs(p - want).max() < 1e-5, (p, want)
    assert len({tuple(r) for r in want[:5].tolist()}) > 1 and (want[5] == want[6]).all(), want
