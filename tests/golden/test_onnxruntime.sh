#!/usr/bin/env bash
# onnxruntime computes the networks that test_golden_onnx writes, for batches of 3 and of 1, and gives dtrain's outputs;
# and of a run that dtrain export wrote, the loss and accuracy that dtrain eval gives. PYTHON names an interpreter that has
# onnxruntime, onnx and Pillow.
. "${SOURCE:?}/tests/small_run.sh" || exit
python=${PYTHON:-python3}
if ! "$python" -c 'import onnxruntime, onnx, PIL' 2>/dev/null; then
    echo "skipped: $python has no onnxruntime with onnx and Pillow (set PYTHON to one that has)"
    exit 77
fi
mkdir "$work/networks"
n_networks=$("$BUILD/test_golden_onnx" write "$work/networks" | tail -1)
"$python" - "$work/networks" "$n_networks" <<'END'
import glob, os, sys
import numpy as np, onnx, onnxruntime as ort

files = sorted(glob.glob(os.path.join(sys.argv[1], "*.onnx")))
assert len(files) == 2 * int(sys.argv[2]) > 30, files
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
END

small_data "$work"
new_config net "$work/small.lmdb" <<YAML
    fingerprint: {kind: image, channels: 1, size: [103, 96], normalize: {mean: [0.4], std: [0.3]}}
    subject:     {kind: class, classes: 6}
  split: {val: 0.4, stratify: subject}
model: {name: resnet, depth: 10, width: 8}
train: {max_steps: 12, global_batch: 8, micro_batch: 8, precision: fp32}
eval: {every: 6 steps, metrics: [loss, accuracy]}
YAML
train
"$DTRAIN" export "$work/runs/net" "$work/net.onnx" 2>"$work/log" || fail "export: exit $?"
"$DTRAIN" export "$work/runs/net" "$work/pixels.onnx" --preprocess 2>"$work/log" || fail "export --preprocess: exit $?"
mv "$work/small.lmdb" "$work/elsewhere"
"$DTRAIN" export "$work/runs/net" "$work/without.onnx" 2>"$work/log" || fail "export without the data set: exit $?"
cmp "$work/net.onnx" "$work/without.onnx" || fail "the file depends on where the data set is"
mv "$work/elsewhere" "$work/small.lmdb"
train run.name=arc train.loss=arcface train.arcface_scale=8 # its logits are cosines
"$DTRAIN" export "$work/runs/arc" "$work/arc.onnx" 2>"$work/log" || fail "export of cosines: exit $?"
"$DTRAIN" export "$work/runs/arc" "$work/arc-pixels.onnx" --preprocess 2>"$work/log" || fail "export of cosines: exit $?"
mv "$work/pixels.onnx" "$work/net-pixels.onnx"
# a layer of each activation that there is
layers=$(sed -n 's/^ACTIVATION(\([a-z0-9_]*\),.*/{conv: {out: 8, kernel: 1, stride: 1}}, batch_norm, {scale: 3}, \1, /p' \
    "$SOURCE/runtime/graph/activations.def")
train run.name=acts "model={name: layers, layers: [{conv: {out: 8, kernel: 5, stride: 4}}, $layers global_pool]}" model.depth= model.width=
"$DTRAIN" export "$work/runs/acts" "$work/acts.onnx" 2>"$work/log" || fail "export of activations: exit $?"
"$DTRAIN" export "$work/runs/acts" "$work/acts-pixels.onnx" --preprocess 2>"$work/log" || fail "export of activations: exit $?"
for run in net arc acts; do
    "$DTRAIN" eval "$work/runs/$run" --which best --split val >"$work/$run.json" 2>"$work/log" || fail "eval: exit $?"
    "$python" - "$work" $run <<'END'
import csv, glob, json, os, sys
import numpy as np, onnxruntime as ort
from PIL import Image

work, run = sys.argv[1:]
want = json.load(open(f"{work}/{run}.json"))
session, pixels = ort.InferenceSession(f"{work}/{run}.onnx"), ort.InferenceSession(f"{work}/{run}-pixels.onnx")
meta = session.get_modelmeta().custom_metadata_map
classes, normal = json.loads(meta["classes"])["subject"], json.loads(meta["normalize"])["fingerprint"]
loss = hits = n = 0
for row in csv.DictReader(open(f"{work}/runs/net/split.csv")):
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
END
done

# several targets: an output for each, and those that are asked for
two=(run.name=two "data.fields.finger={kind: class, classes: 5}" "train.targets={subject: {weight: 1}, finger: {weight: 0.5}}"
    "eval.metrics=[accuracy]" train.max_steps=2)
train "${two[@]}"
"$DTRAIN" export "$work/runs/two" "$work/two.onnx" 2>"$work/log" || fail "export of two targets: exit $?"
"$DTRAIN" export "$work/runs/two" "$work/one.onnx" --outputs finger.logits,embedding 2>"$work/log" || fail "export --outputs: exit $?"
exits 2 "no output 'toe'; it has .*finger.logits" "$DTRAIN" export "$work/runs/two" "$work/none.onnx" --outputs toe
[ ! -e "$work/none.onnx" ] || fail "a file without outputs"
"$python" - "$work" <<'END'
import sys, onnxruntime as ort
names = lambda f: sorted((o.name, o.shape[1]) for o in ort.InferenceSession(f"{sys.argv[1]}/{f}").get_outputs())
assert names("two.onnx") == [("finger.logits", 5), ("subject.logits", 6)], names("two.onnx")
assert names("one.onnx") == [("embedding", 64), ("finger.logits", 5)], names("one.onnx")
END
echo "a head for each target"
