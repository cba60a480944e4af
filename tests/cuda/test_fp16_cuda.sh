#!/usr/bin/env bash
# train.precision: fp16 on an imitated GPU (pretending_module.c): whatever the micro-batch, the loss scale begins where
# PyTorch's is 65536 for the mean over it, and the first steps of networks are finite. (Residual networks whose batch
# norms see a few values skip steps there too: ResNet-18 on four images of 32x32 five, in PyTorch.) Networks of ONNX files
# and of layers have the CPU's losses, in fp32 and, within their rounding, in bf16 and fp16.
. "${SOURCE:?}/tests/small_run.sh" || exit
! sanitized || { echo "skipped: the module takes no sanitizer along"; exit 77; }
mkdir "$work/bin"
cp "$DTRAIN" "$BUILD/pretending/dtrain_cuda.so" "$work/bin"
export LD_LIBRARY_PATH="$BUILD/pretending${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
DTRAIN=$work/bin/dtrain
py make "$work/set.tar"

finite() { # SCALE BATCH MODEL
    train run.name=r "run.resume=never" "train.global_batch=$2" "train.micro_batch=$2" "model=$3"
    py check "$work/runs/r/metrics.jsonl" "$1" || fail "the first steps of $3 with a batch of $2"
    rm -r "$work/runs"
}
config_of() { # FIELD
    new_config r <<YAML
    $1
    cls: {kind: class, classes: 4}
model: {name: mlp}
train: {max_steps: 2, epochs: 1000, precision: fp16, optimizer: {name: sgd, lr: 1.0e-3}, targets: {cls: {loss: cross_entropy}}}
YAML
    sed -i 's/^device: .*/device: {kind: cuda, time_engines: false}/; s/every: 100 steps/every: 1 steps/' "$config"
}

config_of 'x: {kind: vector, size: [16]}'
finite 65536 1 '{name: mlp, hidden: 64}'
finite 16384 3 '{name: mlp, hidden: 64}'
finite 4096 16 '{name: mlp, hidden: 64}'
finite 256 256 '{name: mlp, hidden: 64}'
finite 2048 32 '{name: cnn1d, width: 8}'
config_of 'image: {kind: image, source: bmp, channels: 3, size: [32, 32], normalize: imagenet}'
finite 65536 1 '{name: vit, size: ti, patch: 16}'

# every launch with its bytes, the time that they need at least, and the imitation's: the last row has the sums
"$DTRAIN" check "$config" --kernels train.micro_batch=4 train.global_batch=4 'model={name: cnn}' >"$work/out" 2>"$work/log" || fail "check --kernels"
awk '$4 != "%" { next }
    $NF == "all" { good = times["convolution"] == 4 && times["matmul"] && !unsorted && $1 > 0 && $2 > 0 && $6 > 0 && $8 == n; next }
    n && $1 > floor { unsorted = 1 }
    { floor = $1; n += $8; times[$9] = $8 }
    END { exit !good }' "$work/out" ||
    fail "check --kernels: $(cat "$work/out")"
finite 16384 4 '{name: cnn}'
finite 1024 64 '{name: resnet, depth: 10, width: 4}'

beside() { # MODEL
    train run.name=cpu device.kind=cpu device.threads=1 train.precision=fp32 "model=$1"
    train run.name=fp32 train.precision=fp32 "model=$1"
    train run.name=bf16 train.precision=bf16 train.recompute=auto "model=$1"
    train run.name=fp16 "model=$1"
    py near "$work/runs" || fail "$1: other losses than the CPU's"
    rm -r "$work/runs"
}
sed -i 's/train: {max_steps: 2,/train: {max_steps: 2, global_batch: 8, micro_batch: 8,/' "$config"
for file in onnx/convnext_18 onnx_networks/{gates,shufflenet,swin,unet}_dynamo; do
    beside "{name: onnx, onnx: $SOURCE/tests/golden/$file.onnx}"
done
beside '{name: layers, layers: [{conv: {out: 8, kernel: 7, stride: 4, pad: 3, bias: true}}, batch_norm, silu, global_pool]}'
echo passed
