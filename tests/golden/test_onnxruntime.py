"""Functions of test_onnxruntime.sh: what it trains on, and checks of what it wrote."""
import glob, json, onnx, os
import numpy as np
import onnxruntime as ort
from PIL import Image
from small_set import table


def check_outputs(folder, n_networks):
    files = sorted(glob.glob(os.path.join(folder, "*.onnx")))
    assert len(files) == 2 * int(n_networks) > 30, files
    for path in files:
        onnx.checker.check_model(onnx.load(path), full_check=True)
        name, session = path[:-5], ort.InferenceSession(path)
        feed = {}
        for i in session.get_inputs():
            assert i.shape[0] == "N", i.shape
            kind = np.uint8 if i.type == "tensor(uint8)" else np.float32
            feed[i.name] = np.fromfile(f"{name}.{i.name}", kind).reshape([3] + i.shape[1:])
        got = dict(zip((o.name for o in session.get_outputs()), session.run(None, feed)))
        for k, v in got.items():
            want = np.fromfile(f"{name.removesuffix('-pixels')}.{k}", np.float32).reshape(v.shape)
            assert np.abs(v - want).max() <= 1e-4 * max(1, np.abs(want).max()), (path, k, v, want)
            one = session.run([k], {i: x[1:2] for i, x in feed.items()})[0]
            assert one.shape[0] == 1 and np.abs(one - v[1:2]).max() <= 1e-4, (path, k)
    print(len(files), "files give dtrain's outputs")


def check_run(work, run):
    want = json.load(open(f"{work}/{run}.json"))
    session, pixels = ort.InferenceSession(f"{work}/{run}.onnx"), ort.InferenceSession(f"{work}/{run}-pixels.onnx")
    meta = session.get_modelmeta().custom_metadata_map
    classes, normal = json.loads(meta["classes"])["subject"], json.loads(meta["normalize"])["fingerprint"]
    loss = hits = n = 0
    for row in table(f"{work}/runs/net/split.csv"):
        if row["part"] != "val":
            continue
        files = [f for f in glob.glob(f"{work}/raw/**/{os.path.basename(row['key'])}*", recursive=True) if "finger" in f]
        x = np.asarray(Image.open(files[0]).convert("L"))[None, :, :, None]
        subject = os.path.basename(row["key"]).split("_")[0]
        logits = pixels.run(None, {"fingerprint": x})[0][0].astype(np.float64)
        normalised = ((x / 255 - normal["mean"][0]) / normal["std"][0]).astype(np.float32).transpose(0, 3, 1, 2)
        assert np.abs(session.run(None, {"fingerprint": normalised})[0][0] - logits).max() < 1e-4
        label = [c for c in range(6) if classes[c] == subject][0]
        loss += np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[label]
        hits += int(logits.argmax() == label)
        n += 1
    assert n == want["samples"], (n, want)
    assert abs(loss / n - want["loss"]) < 1e-4 and abs(hits / n - want["accuracy"]) < 1e-9, (loss / n, hits / n, want)
    print(f"loss and accuracy of {n} samples as dtrain eval has them")


def check_heads(work):
    names = lambda f: sorted((o.name, o.shape[1]) for o in ort.InferenceSession(f"{work}/{f}").get_outputs())
    assert names("two.onnx") == [("finger.logits", 5), ("subject.logits", 6)], names("two.onnx")
    assert names("one.onnx") == [("embedding", 64), ("finger.logits", 5)], names("one.onnx")
