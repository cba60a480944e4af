#!/usr/bin/env bash
# train.precision: fp16 on a fake GPU (fake_module.c): whatever the micro-batch, the loss scale begins where
# PyTorch's is 65536 for the mean over it, and the first steps of every network are finite. Where PyTorch skips steps, too,
# a case has more samples: batch norms that see two or four values a channel (EfficientNet's depthwise ones at any size;
# bn_eps tames them), and ConvNeXt on one or two images. Networks of ONNX files and of layers have the CPU's losses, in
# fp32 and, within their rounding, in bf16 and fp16; in fp16 the same bits captured or not, recomputed or not.
. "${SOURCE:?}/tests/small_run.sh" || exit
! sanitized || { echo "skipped: the module takes no sanitizer along"; exit 77; }
mkdir "$work/bin"
cp "$DTRAIN" "$BUILD/libdtrain_openmp.so" "$BUILD/fake/dtrain_cuda.so" "$work/bin"
export LD_LIBRARY_PATH="$BUILD/fake${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
DTRAIN=$work/bin/dtrain
py make "$work/set.tar"

cases=
finite() { # BATCHES MODEL WORD …
    local batch power runs=$work/runs
    cases+="$2"$'\n'
    for batch in $1; do
        power=1 # of two, the nearest
        while ((2 * power * power <= batch * batch)); do power=$((2 * power)); done
        train run.name=r train.global_batch=$batch train.micro_batch=$batch "model=$2" "${@:3}"
        [ "$(grep -c "\"loss_scale\":$((65536 / power))," $runs/r/metrics.jsonl)" = 2 ] || fail "the first steps with a batch of $batch: ${*:2}"
        rm -r $runs
    done
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

x='x: {kind: vector, size: [16]}' image='image: {kind: image, source: bmp, size: [32, 32]' golden=$SOURCE/tests/golden
small='{name: resnet, depth: 10, width: 4, stem: small'
config_of "$x"
finite '1 3 16 256' '{name: mlp, hidden: 64}'
finite '16 256' '{name: cnn1d, width: 8}'
finite 4 '{name: mlp, hidden: 64}' train.global_batch=16
finite '1 6' '{name: mlp, hidden: 64}' device.kind=cpu device.threads=1
config_of "$image, channels: 1, normalize: {mean: [0.5], std: [0.25]}}"
finite 2 '{name: audio_cnn}'
finite 1 '{name: ast_tiny}'
config_of "$image, channels: 3, normalize: imagenet}"
sed "s/^    image/    $x\n    image/" "$config" >"$work/both.yaml"
finite '1 2 4 16 64 256' '{name: vit, dim: 16, heads: 2, blocks: 2}'
finite 4 '{name: cnn}'
finite '1 4 16' "$small}"
finite '2 16' "$small, se: true, avg_down: true}"
finite 64 '{name: resnet, depth: 10, width: 4, se: true, avg_down: true, stem: deep}'
finite 4 '{name: resnet, depth: 50, width: 4, groups: 2, stem: small, zero_init: true, drop_path: 0.2}'
finite 4 '{name: convnext}'
finite '4 16' '{name: mobilenet_v3, size: s}'
finite 4 '{name: efficientnet, bn_eps: 1}'
finite '1 16' '{name: lens_multiscale, scales: [16, 32], depth: 10, width: 4, stem: small}'
finite '1 16 256' '{name: layers, layers: [{conv: {out: 8, kernel: 7, stride: 4, pad: 3, bias: true}}, batch_norm, silu, global_pool]}'
finite '1 64' "{name: onnx, onnx: $golden/onnx/resnet_21.onnx}"
finite 16 "{name: onnx, onnx: $golden/onnx/vit_20.onnx}"
images=$config config=$work/both.yaml
for fusion in concat gated cross_attention; do
    finite '1 16' "{name: fusion, fusion: $fusion, encoders: {image: $small}}}"
done
config=$images
for model in $("$DTRAIN" info | sed -n 's/^model *\([^ ]*\).*/\1/p'); do
    [[ $cases == *"{name: $model"[,}]* ]] || fail "no case for $model"
done

# convolutions make a batch norm's sums only where device.fp16_sums says so
for sums in false true; do
    train run.name=r train.global_batch=4 train.micro_batch=4 device.time_engines=true device.fp16_sums=$sums data.cache_dir="$work/cache-$sums" "model=$small}"
    found=false
    ! grep -q ' sums' "$work/cache-$sums"/engines-*.txt || found=true
    [ $found = $sums ] || fail "device.fp16_sums: $sums: engines with sums: $found"
    rm -r "$work/runs/r"
done

# every launch with its bytes, the time that they need at least, and the fake device's: the last row has the sums
"$DTRAIN" check "$config" --kernels train.micro_batch=4 train.global_batch=4 'model={name: cnn}' >"$work/out" 2>"$work/log" || fail "check --kernels"
awk '$4 != "%" { next }
    $NF == "all" { good = times["convolution"] == 4 && times["matmul"] && !unsorted && $1 > 0 && $2 > 0 && $6 > 0 && $8 == n; next }
    n && $1 > floor { unsorted = 1 }
    { floor = $1; n += $8; times[$9] = $8 }
    END { exit !good }' "$work/out" ||
    fail "check --kernels: $(cat "$work/out")"

beside() { # MODEL
    train run.name=cpu device.kind=cpu device.threads=1 train.precision=fp32 "model=$1"
    train run.name=fp32 train.precision=fp32 "model=$1"
    train run.name=bf16 train.precision=bf16 train.recompute=auto "model=$1"
    train run.name=fp16 "model=$1"
    train run.name=plain device.capture=false train.recompute=auto "model=$1"
    [ "$(hash "$work/runs/fp16")" = "$(hash "$work/runs/plain")" ] || fail "$1: other bits where steps are not captured"
    py near "$work/runs" || fail "$1: other losses than the CPU's"
    rm -r "$work/runs"
}
sed -i 's/train: {max_steps: 2,/train: {max_steps: 2, global_batch: 8, micro_batch: 8,/' "$config"
for file in onnx/convnext_18 onnx_networks/{gates,shufflenet,swin,unet}_dynamo; do
    beside "{name: onnx, onnx: $golden/$file.onnx}"
done
beside '{name: layers, layers: [{conv: {out: 8, kernel: 7, stride: 4, pad: 3, bias: true}}, batch_norm, silu, global_pool]}'
echo passed
