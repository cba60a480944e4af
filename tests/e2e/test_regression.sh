#!/usr/bin/env bash
# Numbers as targets: a network learns the position of a bright square from small pictures, with the
# target normalised; mae and rmse come back in its own units and agree with each other. The same target
# from two columns of the catalog (one of numbers, one of whole numbers as text) gives the same weights.
. "${SOURCE:?}/tests/small_run.sh" || exit

py make "$work/set.tar"
new_config numbers <<YAML
    image: {kind: image, source: bmp, channels: 3, size: [24, 24], normalize: {mean: [0.1], std: [0.2]}}
    where: {kind: vector, size: [2], normalize: {mean: [195, -47.5], std: [58, 29]}}
  split: {unit: record, val: 0.1, test: 0.2}
model: {name: resnet, depth: 10, width: 8}
train:
  epochs: 60
  global_batch: 16
  micro_batch: 8
  precision: fp32
  loss: smooth_l1
  optimizer: {name: adamw, lr: 3.0e-3}
  schedule: {name: cosine, warmup: 5%}
eval: {every: 30 epochs, metrics: [loss, mae, rmse], best: mae}
YAML
steps=${STEPS:-1000}
train train.max_steps=$((steps < 600 ? 40 : 600))
py check "$work/runs/numbers/metrics.jsonl" "$work/out" "$steps" || fail "wrong errors"
train train.max_steps=12 run.name=member
train train.max_steps=12 run.name=columns 'data.fields.where={kind: vector, source: [x, y], normalize: {mean: [195, -47.5], std: [58, 29]}}'
[ "$(hash "$work/runs/member")" = "$(hash "$work/runs/columns")" ] || fail "a target from columns trains differently from one in a member"
# normalize: auto is the training split's mean and deviation, answered once: the same run with the numbers is the same;
# a run that goes on, from its config too, and an evaluation take them; without it a warning has the line
auto='data.fields.where={kind: vector, source: [x, y], normalize: auto}'
exits 75 '' "$DTRAIN" "$config" train.max_steps=12 run.name=auto "$auto" run.stop_at=6
train train.max_steps=12 run.name=auto "$auto"
py check_moments "$work/runs/auto" "$work/set.tar" "$DTRAIN" || fail "normalize: auto: $(grep normalize "$work/runs/auto/config.yaml")"
moments=$(py moments "$work/runs/auto/config.yaml")
train train.max_steps=12 run.name=given "data.fields.where={kind: vector, source: [x, y], normalize: $moments}"
[ "$(hash "$work/runs/auto")" = "$(hash "$work/runs/given")" ] || fail "normalize: auto and its answer train differently"
member='data.fields.where={kind: vector, size: 2, normalize: auto}'
train train.max_steps=12 run.name=auto_member "$member"
py check_moments "$work/runs/auto_member" "$work/set.tar" "$DTRAIN" || fail "normalize: auto of a member"
[ "$(hash "$work/runs/auto")" = "$(hash "$work/runs/auto_member")" ] || fail "normalize: auto of a member trains differently"
exits 0 "finished" "$DTRAIN" "$work/runs/auto"
exits 0 '' "$DTRAIN" eval "$work/runs/auto"
# another set is normalised as the run's own, whether the run is named by its folder or by its config
mkdir "$work/elsewhere"
py make "$work/elsewhere/set.tar" 8 100
exits 0 '' "$DTRAIN" eval "$work/runs/auto" --set "$work/set.tar"
mv "$work/out" "$work/by_run"
exits 0 '' "$DTRAIN" eval "$config" --set "$work/set.tar" run.name=auto "$auto"
cmp "$work/out" "$work/by_run" || fail "eval CONFIG --set normalises otherwise than eval RUN --set"
exits 0 '' "$DTRAIN" export "$work/runs/auto" "$work/by_run.onnx"
exits 0 '' "$DTRAIN" export "$config" "$work/by_config.onnx" run.name=auto "$auto" data.path="$work/none.tar"
cmp "$work/by_run.onnx" "$work/by_config.onnx" || fail "export CONFIG scales otherwise than export RUN"
exits 2 'auto is of the training split, and there is none' "$DTRAIN" check "$config" "$auto" data.split.val=0 data.split.test=1
# of a member: damaged records are refused, or left out under skip
exits 3 'number 1 is nan' "$DTRAIN" data order "$config" "$member" data.path="$work/elsewhere/set.tar"
exits 0 '' "$DTRAIN" data order "$config" "$member" data.path="$work/elsewhere/set.tar" data.on_error=skip
if have_mpi; then # the same path is another set on another host, or one of the same names and sizes
    apart() { # text, the other host's folder
        local words=("$config" "$member" run.name=apart train.max_steps=1 data.path=set.tar data.on_error=skip)
        exits 2 "$1" "${ranks[@]}" 1 env -C "$work" "$DTRAIN" "${words[@]}" : -np 1 env -C "$work/$2" "$DTRAIN" "${words[@]}"
    }
    apart 'rank 1 on .* has other data than rank 0' elsewhere
    mkdir "$work/mirrored"
    py make "$work/mirrored/set.tar" 7 0 mirrored
    apart 'the ranks do not read the same data: data.fields.where.normalize is ' mirrored
fi
exits 0 "add  normalize: auto" "$DTRAIN" "$config" run.name=far train.max_steps=1 'data.fields.where={kind: vector, source: [x, y], normalize: null}'
exits 0 "add  normalize: auto" "$DTRAIN" check "$config" 'data.fields.where={kind: vector, source: [x, y], normalize: null}'
exits 2 "auto is for numbers" "$DTRAIN" check "$config" data.fields.image.normalize=auto
for of in 'mean: [127]' 'std: [255]'; do
    exits 2 "data.fields.image.normalize: images of bytes have values in 0..1" "$DTRAIN" check "$config" data.fields.image.normalize="{$of}"
done
exits 0 '' "$DTRAIN" data order "$config" data.fields.image.normalize='{mean: [127]}'
# a run that goes on with a field of another column measures that
exits 75 '' "$DTRAIN" "$config" train.max_steps=12 run.name=turned "$auto" run.stop_at=6
exits 0 '' "$DTRAIN" "$config" train.max_steps=12 run.name=turned "${auto/x, y/y, x}" run.resume=force
[ "$moments" != "$(py moments "$work/runs/turned/config.yaml")" ] || fail "another column has the old one's moments"
far='data.fields.image.normalize={mean: [127]}'
exits 0 'warning: data.fields.image.normalize: images of bytes' "$DTRAIN" "$config" train.max_steps=13 run.name=auto "$auto" "$far" run.resume=force
exits 0 'warning: data.fields.image.normalize: images of bytes' "$DTRAIN" eval "$work/runs/auto"
# a vector of one column, whose size nobody says: trained, used without its values, checked without the data
one='data.fields.where={kind: vector, source: x, size: null, normalize: {mean: [195], std: [58]}}'
train train.max_steps=2 run.name=one "$one"
"$DTRAIN" predict "$work/runs/one" "$work/set.tar" >"$work/out" 2>"$work/log" || fail "predict: one column"
exits 0 "checked without the data" "$DTRAIN" check "$config" "$one" data.path="$work/none.tar"
"$DTRAIN" eval "$work/runs/numbers" >"$work/out" 2>"$work/log" || fail "eval"
grep -q '"mae"' "$work/out" || fail "eval prints no mae"
# mixing is of training: no pass of a prediction mixes numbers
new_config mixed <<YAML
    image: {kind: image, source: bmp, channels: 3, size: [24, 24]}
    x: {kind: real, source: x}
    where: {kind: vector, size: 2}
  split: {val: 0.1, test: 0.2}
  mix: {mixup: 0.4}
model: {name: fusion, encoders: {image: {name: resnet, depth: 10, width: 8}}}
train: {max_steps: 2, global_batch: 16, micro_batch: 8, precision: fp32, targets: {where: {loss: mse}}}
YAML
train
exits 0 '' "$DTRAIN" predict "$work/runs/mixed" --split test --tta flip -o "$work/mixed.jsonl"
exits 0 '' "$DTRAIN" predict "$work/runs/mixed" --split test --tta flip -o "$work/plain.jsonl" data.mix.mixup=null
cmp "$work/mixed.jsonl" "$work/plain.jsonl" || fail "--tta mixes numbers of samples"
# numbers far from 0 (times, metres): inputs of members, errors and predictions have the digits of doubles
py make_far "$work/far.csv"
exits 0 '' "$DTRAIN" pack "$work/far.csv" "$work/far.tar" --rows y
grep -aq "'descr': '<f8'" "$work/far.tar" || fail "pack --rows stores times as float32"
exits 0 '' "$DTRAIN" pack "$work/far.csv" "$work/near.tar" --rows y,t
grep -aq "'descr': '<f4'" "$work/near.tar" || fail "pack --rows stores what float32 holds as float64"
new_config times <<YAML
    x: {kind: vector, source: npy, size: 2, normalize: auto}
    y: {kind: real, normalize: auto}
  split: {unit: record, val: 0.2, test: 0.2}
model: {name: mlp, hidden: 32}
train: {epochs: 40, global_batch: 32, micro_batch: 32, precision: fp32, optimizer: {name: adamw, lr: 1.0e-2},
        targets: {y: {loss: mse}}}
eval: {every: 40 epochs, metrics: [mae, rmse, r2], best: mae}
YAML
train data.path="$work/far.tar"
for of in csv jsonl npy; do exits 0 '' "$DTRAIN" predict "$work/runs/times" --split test -o "$work/far.out.$of"; done
exits 0 '' "$DTRAIN" eval "$work/runs/times" --split test
py check_far "$work/far.csv" "$work" || fail "numbers far from 0 lose digits"
echo "numbers learned; mae and rmse in their own units"
