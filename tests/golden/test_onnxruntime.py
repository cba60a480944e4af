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


# Every kind of field as an input, and every kind of target. What each case has beside the target's field: its model, its
# fields with their normalize, and the feed of a file that takes the fields' own values. Times have a mean that f32 cannot
# hold beside their deviation.
MODEL = {"cnn": "{name: cnn}", "cnn1d": "{name: cnn1d, width: 8}", "mlp": "{name: mlp, hidden: 16}",
         "fusion": "{name: fusion, encoders: {pgm: {name: cnn}, wav: {name: cnn1d, width: 8}}}"}
INPUTS = {
    "pgm": "{kind: image, channels: 1, size: [16, 16], normalize: {mean: [0.4], std: [0.3]}}",
    "depth": "{kind: image, dtype: f32, channels: 1, size: [16, 16], normalize: {mean: [1000], std: [50]}}",
    "wav": "{kind: audio, rate: 1000, seconds: 0.064, features: waveform, normalize: {mean: [0.1], std: [0.2]}}",
    "far": "{kind: image, dtype: f32, channels: 1, size: [16, 16], normalize: {mean: [5.4e6], std: [9]}}",
    "clock": "{kind: audio, rate: 50, seconds: 1.28, channels: 2, features: waveform, normalize: {mean: [1.7e9, 3], std: [400, 2]}}",
    "row": "{kind: vector, size: [80], normalize: {mean: [5], std: [0.5]}}",
    "plain": "{kind: vector, source: [a, b]}",
    "ab": "{kind: vector, source: [a, b], normalize: {mean: [40, -7], std: [12, 3]}}",
    "a": "{kind: real, normalize: auto}",
    "t": "{kind: real, normalize: auto}"}
TARGETS = {"label": "{kind: class, classes: 3}", "b": "{kind: real, normalize: auto}",
           "at": "{kind: vector, source: [t, a], normalize: auto}",
           "row": "{kind: vector, size: [80], normalize: {mean: [5], std: [0.5]}}"}
CASES = [("cnn", ["pgm"], "label"), ("cnn", ["depth"], "label"), ("cnn1d", ["wav"], "label"), ("cnn", ["far"], "label"),
         ("cnn1d", ["clock"], "label"), ("cnn1d", ["row"], "label"),
         ("mlp", ["ab"], "label"), ("mlp", ["plain"], "label"), ("mlp", ["a", "ab"], "b"), ("mlp", ["t"], "label"),
         ("mlp", ["a"], "row"), ("mlp", ["a"], "at"), ("fusion", ["pgm", "wav", "row", "ab", "t"], "label")]


def fields_set(path, n):
    import io, wave
    from small_set import write_tar
    draw, samples, values = np.random.default_rng(5), [], []
    for _ in range(n):
        v = {"pgm": draw.integers(0, 256, (16, 16, 1), np.uint8), "depth": draw.normal(1000, 50, (16, 16, 1)).astype("f4"),
             "far": draw.normal(5.4e6, 9, (16, 16, 1)), "clock": draw.normal([1.7e9, 3], [400, 2], (1, 64, 2)),
             "wav": draw.integers(-9000, 9000, (1, 64, 1)).astype("i2"), "row": draw.normal(5, 0.5, 80).astype("f4"),
             "a": np.float64(draw.normal(40, 12)), "b": np.float64(draw.normal(-7, 3)), "t": 1.7e9 + draw.integers(0, 5000)}
        npy, wav = {k: io.BytesIO() for k in ("depth", "far", "clock", "row")}, io.BytesIO()
        for k, file in npy.items():
            np.save(file, v[k][0] if k == "clock" else v[k])
        with wave.open(wav, "wb") as f:
            f.setparams((1, 2, 1000, 0, "NONE", ""))
            f.writeframes(v["wav"].tobytes())
        samples.append({"pgm": b"P5 16 16 255\n" + v["pgm"].tobytes()} | {f"{k}.npy": file.getvalue() for k, file in npy.items()} |
                       {"wav": wav.getvalue(), "json": json.dumps({k: float(v[k]) for k in "abt"} | {"label": int(draw.integers(3))})})
        values.append(v | {"wav": (v["wav"] / 32768).astype("f4"), "ab": np.array([v["a"], v["b"]]),
                           "plain": np.array([v["a"], v["b"]])})
    write_tar(path, samples)
    return {k: np.stack([v[k] for v in values]) for k in values[0]}


def check_triton(work, model):
    """config.pbtxt is a ModelConfig that keeps the server's rules (ValidateModelConfig) and describes the file beside it."""
    try:
        from google.protobuf import text_format
        from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig
    except ImportError:
        print("skipped: no tritonclient[grpc], which has model_config.proto")
        return
    c = text_format.Parse(open(f"{model}/config.pbtxt").read(), ModelConfig())
    session = ort.InferenceSession(f"{model}/1/model.onnx")
    assert open(f"{model}/1/model.onnx", "rb").read() == open(f"{work}/{os.path.basename(model)}.onnx", "rb").read()
    assert c.name == os.path.basename(model) and c.backend == "onnxruntime" and c.max_batch_size > 0, c
    assert c.HasField("dynamic_batching") and c.input and c.output, c
    types = {"tensor(float)": "TYPE_FP32", "tensor(uint8)": "TYPE_UINT8", "tensor(double)": "TYPE_FP64"}
    for ports, theirs in ((c.input, session.get_inputs()), (c.output, session.get_outputs())):
        assert [p.name for p in ports] == [t.name for t in theirs], (ports, theirs)
        for p, t in zip(ports, theirs):
            assert DataType.Name(p.data_type) == types[t.type] and p.dims and all(d > 0 for d in p.dims), p
            assert t.shape[0] == "N" and (list(p.reshape.shape) if p.HasField("reshape") else list(p.dims)) == t.shape[1:], (p, t.shape)
    meta = session.get_modelmeta().custom_metadata_map
    classes = json.loads(meta["classes"])
    labels = {o.name: o.label_filename for o in c.output if o.label_filename}
    assert labels == {"subject.logits": "subject.txt", "finger.logits": "finger.txt"}, labels
    for field in ("subject", "finger"):
        assert open(f"{model}/{field}.txt").read().splitlines() == classes[field], field
    assert json.loads(meta["fields"]) == {"fingerprint": {
        "kind": "image", "channels": 1, "size": [103, 96], "dtype": "u8", "layout": "hwc", "stretch": "none", "softening": 0.1,
        "fit": "stretch"}}, meta["fields"]
    print("Triton's configuration describes the file")


def logits_of(session, feed):
    """What onnxruntime says where each input has its own type."""
    kinds = {"tensor(uint8)": np.uint8, "tensor(float)": np.float32, "tensor(double)": np.float64}
    return session.run(None, {i.name: feed[i.name].astype(kinds[i.type]) for i in session.get_inputs()})[0]


def check_fields(work, dtrain):
    import subprocess
    values = fields_set(f"{work}/fields.tar", 24)
    def call(*words):
        r = subprocess.run([dtrain, *words], capture_output=True, text=True)
        assert r.returncode == 0, (words, r.stderr)
    for k, (model, inputs, target) in enumerate(CASES):
        run, where = f"{work}/runs/case{k}", (model, inputs, target)
        fields = ", ".join(f"{n}: {INPUTS[n]}" for n in inputs) + f", {target}: {TARGETS[target]}"
        with open(f"{work}/case.yaml", "w") as f:
            f.write(f"run: {{name: case{k}, dir: {work}/runs}}\ndevice: {{kind: cpu, threads: 1}}\n"
                    f"data: {{path: {work}/fields.tar, fields: {{{fields}}}, split: {{val: 0}}}}\nmodel: {MODEL[model]}\n"
                    "train: {max_steps: 2, global_batch: 8, micro_batch: 8, precision: fp32, optimizer: {lr: 0.01}, "
                    f"targets: {{{target}: {{loss: {'cross_entropy' if target == 'label' else 'mse'}}}}}}}\n"
                    "metrics: {sinks: [jsonl]}\n")
        call(f"{work}/case.yaml")
        call("predict", run, f"{work}/fields.tar", "-o", f"{work}/case.jsonl", "--logits")
        rows = [json.loads(line)[target] for line in open(f"{work}/case.jsonl")]
        want = np.array([r["logits"] if target == "label" else r["value"] if "value" in r else [v for n, v in r.items() if n != "logits"]
                         for r in rows], np.float64).reshape(24, -1)
        call("export", run, f"{work}/case.onnx")
        call("export", run, f"{work}/case-pixels.onnx", "--preprocess")
        for name in ("case", "case-pixels"):
            onnx.checker.check_model(onnx.load(f"{work}/{name}.onnx"), full_check=True)
        plain, pixels = (ort.InferenceSession(f"{work}/{n}.onnx") for n in ("case", "case-pixels"))
        moments = json.loads(plain.get_modelmeta().custom_metadata_map["normalize"])
        assert sorted(moments) == sorted(inputs), (where, moments)
        steps = json.loads(plain.get_modelmeta().custom_metadata_map["fields"])
        assert sorted(steps) == sorted(inputs), (where, steps)
        assert "ab" not in steps or steps["ab"]["source"] == ["a", "b"], steps # the order of the file's numbers
        if "wav" in steps:
            assert steps["wav"]["kind"] == "audio" and steps["wav"]["rate"] == 1000 and "features" in steps["wav"], steps
        feed = {}
        for n in inputs:
            x = values[n].astype(np.float64) / (255 if n == "pgm" else 1)
            x = (x - np.array(moments[n]["mean"])) / np.array(moments[n]["std"])
            feed[n] = x.transpose(0, 3, 1, 2) if x.ndim == 4 else x
        spread = want.std(0) + 1e-3
        for session, given in ((plain, feed), (pixels, values)):
            got = logits_of(session, given)
            off = np.abs(got.reshape(24, -1) - want) / spread
            assert off.max() < 1e-2, (where, session is pixels, off.max())
    print(len(CASES), "mixtures of fields: files with and without --preprocess give what dtrain predict gives")
