#!/usr/bin/env bash
# model.encoders.FIELD.init: an encoder begins with the weights of a network of its own, by names of torchvision or timm, or
# with those of a fusion's encoder; heads are left out, other encoders and fusion's own layers are those of the seed.
. "${SOURCE:?}/tests/small_run.sh" || exit
small_data "$work"
config=$(small_config "$work")
vit='{name: vit, patch: 4, dim: 16, heads: 2, blocks: 1}'
cat >"$work/one.yaml" <<YAML
run: {name: one, dir: $work/runs, seed: 9}
device: {kind: cpu, threads: 1}
data:
  path: $work/small.lmdb
  where: eye is not null
  fields:
    iris: {kind: image, channels: 3, size: [16, 20], normalize: imagenet}
    subject: {kind: class, classes: 6}
model: $vit
train: {max_steps: 1, global_batch: 4, micro_batch: 2, precision: fp32}
YAML
one=$work/runs/one encoder="model.encoders.iris={name: vit, patch: 4, dim: 16, heads: 2, blocks: 1, depth: , width: , stem: }"
exits 0 '' "$DTRAIN" init "$work/one.yaml" "$one"
exits 0 '' "$DTRAIN" export "$one" "$work/timm.safetensors" --names timm --which latest
exits 0 '' "$DTRAIN" init "$config" "$work/runs/plain" "$encoder"
for file in "$one" "$work/timm.safetensors"; do
    run=$work/runs/$(basename "$file" .safetensors).tuned
    exits 0 "model.encoders.iris.init: 18 of 18 tensors from .*; left out: head" \
        "$DTRAIN" init "$config" "$run" "$encoder" model.encoders.iris.init="$file"
    py check "$run" "$one" "$work/runs/plain" iris || fail "$file: other weights"
done
exits 0 "model.encoders.fingerprint.init: 60 of 60 tensors from .* under fingerprint" \
    "$DTRAIN" init "$config" "$work/runs/again" "$encoder" run.seed=8 model.encoders.fingerprint.init="$work/runs/plain"
py check_encoder "$work/runs/again" "$work/runs/plain" || fail "the encoder of a fusion"
exits 4 "model.encoders.iris.init: .* looks like model.encoders.iris.blocks 1, the config says 2" \
    "$DTRAIN" init "$config" "$work/runs/bad" "$encoder" model.encoders.iris.blocks=2 model.encoders.iris.init="$one"
