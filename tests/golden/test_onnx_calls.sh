#!/usr/bin/env bash
# The calls of torch.onnx.export in docs/reference/models.md, as they stand there, give files that train. Files that they
# gave before (onnx_networks) train always; the calls run where PYTHON names an interpreter with torch and timm.
. "${SOURCE:?}/tests/small_run.sh" || exit
golden=$SOURCE/tests/golden
small_data "$work"
new_config net "$work/small.lmdb" <<YAML
    iris:    {kind: image, channels: 3, size: [32, 32]}
    subject: {kind: class, classes: 6}
  split: {val: 0.4, stratify: subject}
model: {onnx: $work/net.onnx}
train: {max_steps: 4, global_batch: 8, micro_batch: 8, precision: fp32}
YAML
trains() { # FILE
    cp "$1" "$work/net.onnx"
    train run.name="$(basename "$1" .onnx)"
}
for exporter in torchscript dynamo; do
    trains "$golden/onnx_networks/unet_$exporter.onnx"
    trains "$golden/onnx_networks/swin_$exporter.onnx"
done
if ! "$python" -c 'import torch, torchvision, timm, onnx, onnxscript, onnxruntime, safetensors' 2>/dev/null; then
    echo "skipped the calls: $python has no torch with torchvision, timm, onnx, onnxscript and onnxruntime"
    exit 77
fi
"$python" "$golden/make_onnx_networks.py" --docs "$work/docs" >"$work/log" 2>&1 || fail "a call of the docs: exit $?"
for exporter in torchscript dynamo; do
    mv "$work/docs/unet_$exporter.onnx" "$work/docs/again_$exporter.onnx"
    trains "$work/docs/again_$exporter.onnx"
done
