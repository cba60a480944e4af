#!/usr/bin/env bash
# Weights to and from timm without training: dtrain init makes a run of step 0; dtrain export writes its weights under
# timm's names and shapes (of MobileNetV3's and ConvNeXt's odd tensors, too); a run that begins with that file has the same
# weights, is evaluated and predicts.
. "${SOURCE:?}/tests/small_run.sh" || exit
py make "$work/set.tar"
new_config small <<YAML
    image: {kind: image, source: bmp, channels: 3, size: [32, 32]}
    cls: {kind: class}
  split: {val: 0.25, test: 0.25}
model: {name: vit, patch: 8, dim: 16, heads: 2, blocks: 2}
train: {max_steps: 1, global_batch: 4, micro_batch: 4, precision: fp32}
YAML
there_and_back() { # NAME NAMES WORD …
    local name=$1 names=$2 file=$work/$1.$2.safetensors
    shift 2
    [ -e "$work/runs/$name" ] || exits 0 '' "$DTRAIN" init "$config" "$work/runs/$name" "$@"
    exits 0 "$file: written from [1-9][0-9]* tensors, [0-9.]* [kM]*B in [0-9.]* s" "$DTRAIN" export "$work/runs/$name" "$file" --names "$names"
    exits 0 '' "$DTRAIN" init "$config" "$work/runs/$name.$names" "$@" model.init="$file" run.seed=7
    [ "$(hash "$work/runs/$name")" = "$(hash "$work/runs/$name.$names")" ] || fail "$name: other weights through names of $names"
}
there_and_back vit timm
there_and_back vit torchvision
there_and_back vit dtrain
there_and_back convnext timm model.name=convnext model.patch= model.dim= model.heads= model.blocks=
there_and_back mobilenet timm model.name=mobilenet_v3 model.size=s model.patch= model.dim= model.heads= model.blocks=
py check_names "$work"
exits 0 '' "$DTRAIN" eval "$work/runs/vit.timm"
grep -q '"step": *0' "$work/out" || fail "eval: $(cat "$work/out")"
exits 0 '' "$DTRAIN" predict "$work/runs/vit.timm" "$work/set.tar" -o "$work/p.csv"
train run.name=vit.timm run.seed=7 model.init="$work/vit.timm.safetensors"
grep -q 'resuming at step 0 of 1' "$work/log" || fail "training does not go on from step 0"

exits 2 "'run.name=vit2' stands where RUN" "$DTRAIN" init "$config" run.name=vit2
[ ! -e run.name=vit2 ] || fail "a key became a folder"
exits 2 'has checkpoints already' "$DTRAIN" init "$config" "$work/runs/vit"
exits 0 'saved at step 0; nothing is trained yet' "$DTRAIN" init "$config" "$work/runs/se" model.name=resnet model.depth=10 model.width=8 model.se=true model.patch= model.dim= model.heads= model.blocks=
exits 2 'torchvision has no network such as' "$DTRAIN" export "$work/runs/se" "$work/x.safetensors" --names torchvision
exits 0 '' "$DTRAIN" export "$work/runs/se" "$work/x.safetensors" --names timm
exits 2 'names is for weights' "$DTRAIN" export "$work/runs/vit" "$work/x.onnx" --names timm
exits 2 'are for a network' "$DTRAIN" export "$work/runs/vit" "$work/x.safetensors" --preprocess
exits 0 '' "$DTRAIN" init "$config" "$work/runs/cnn" model.name=cnn model.patch= model.dim= model.heads= model.blocks=
exits 2 'timm has no network such as' "$DTRAIN" export "$work/runs/cnn" "$work/x.safetensors" --names timm
exits 4 "tensors differ so: the file is of another size" "$DTRAIN" init "$config" "$work/runs/other" model.dim=32 model.init="$work/vit.timm.safetensors"
exits 4 "tensors [0-9]* are not there: layer" "$DTRAIN" init "$config" "$work/runs/other" model.name=resnet model.depth=18 model.patch= model.dim= model.heads= model.blocks= model.init="$work/mobilenet.timm.safetensors"
exits 4 "look like timm's names" "$DTRAIN" init "$config" "$work/runs/other" model.name=cnn model.patch= model.dim= model.heads= model.blocks= model.init="$work/vit.timm.safetensors"
echo passed
