#!/usr/bin/env bash
# onnxruntime computes the networks that test_golden_onnx writes, for batches of 3 and of 1, and gives dtrain's outputs;
# and of a run that dtrain export wrote, the loss and accuracy that dtrain eval gives. PYTHON names an interpreter that has
# onnxruntime, onnx and Pillow.
. "${SOURCE:?}/tests/small_run.sh" || exit
if ! "$python" -c 'import onnxruntime, onnx, PIL' 2>/dev/null; then
    echo "skipped: $python has no onnxruntime with onnx and Pillow (set PYTHON to one that has)"
    exit 77
fi
mkdir "$work/networks"
n_networks=$("$BUILD/test_golden_onnx" write "$work/networks" | tail -1)
py check_outputs "$work/networks" "$n_networks"

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
layers=$(sed -n 's/^ACTIVATION[_WITH]*(\([a-z0-9_]*\),.*/{conv: {out: 8, kernel: 1, stride: 1}}, batch_norm, {scale: 3}, \1, /p' \
    "$SOURCE/runtime/graph/activations.def")
train run.name=acts "model={name: layers, layers: [{conv: {out: 8, kernel: 5, stride: 4}}, $layers global_pool]}" model.depth= model.width=
"$DTRAIN" export "$work/runs/acts" "$work/acts.onnx" 2>"$work/log" || fail "export of activations: exit $?"
"$DTRAIN" export "$work/runs/acts" "$work/acts-pixels.onnx" --preprocess 2>"$work/log" || fail "export of activations: exit $?"
for run in net arc acts; do
    "$DTRAIN" eval "$work/runs/$run" --which best --split val >"$work/$run.json" 2>"$work/log" || fail "eval: exit $?"
    py check_run "$work" $run
done

# several targets: an output for each, and those that are asked for
two=(run.name=two "data.fields.finger={kind: class, classes: 5}" "train.targets={subject: {weight: 1}, finger: {weight: 0.5}}"
    "eval.metrics=[accuracy]" train.max_steps=2)
train "${two[@]}"
"$DTRAIN" export "$work/runs/two" "$work/two.onnx" 2>"$work/log" || fail "export of two targets: exit $?"
"$DTRAIN" export "$work/runs/two" "$work/one.onnx" --outputs finger.logits,embedding 2>"$work/log" || fail "export --outputs: exit $?"
exits 2 "no output 'toe'; it has .*finger.logits" "$DTRAIN" export "$work/runs/two" "$work/none.onnx" --outputs toe
[ ! -e "$work/none.onnx" ] || fail "a file without outputs"
py check_heads "$work"
"$DTRAIN" export "$work/runs/two" "$work/two.onnx" --preprocess --outputs subject.logits,finger.logits,embedding \
    --triton "$work/models" 2>"$work/log" || fail "export --triton: exit $?"
exits 2 "are for a network" "$DTRAIN" export "$work/runs/two" "$work/two.safetensors" --triton "$work/models"
py check_triton "$work" "$work/models/two"
echo "a head for each target"
py check_fields "$work" "$DTRAIN"
