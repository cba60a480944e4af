#!/usr/bin/env bash
# configs/resnet50.yaml and configs/vit.yaml: `check` takes them as they are; small ones train on made-up
# photographs, with all augmentation; a run begins with another run's weights (model.init), and with the head
# left out where the classes differ.
. "${SOURCE:?}/tests/small_run.sh" || exit

for name in resnet50 vit; do
    "$DTRAIN" check "$SOURCE/configs/$name.yaml" >"$work/out" 2>"$work/log" || fail "check $name: exit $?"
done
"$DTRAIN" synth photos "$work/photos" --n 60 >/dev/null 2>"$work/log" || fail "synth: exit $?"
"$DTRAIN" pack "$work/photos" "$work/photos-{000000..000001}.tar" >/dev/null 2>"$work/log" || fail "pack: exit $?"

small=(run.dir="$work/runs" data.path="$work/photos-{000000..000001}.tar" 'data.fields.image={size: [32, 32], short_side: 36}'
    data.fields.class.classes=10 data.split.val=0.2 train.global_batch=8 train.micro_batch=4 train.max_steps=4
    train.precision=fp32 'train.schedule={warmup: 2 steps}' 'metrics.sinks=[jsonl]')
config=$SOURCE/configs/vit.yaml
train "${small[@]}" model.patch=8 model.dim=48 model.heads=3 model.blocks=2
config=$SOURCE/configs/resnet50.yaml
train "${small[@]}" model.width=8 train.optimizer.lr=0.05
weights=$(ls -d "$work"/runs/resnet50/checkpoints/step-*4)/model.safetensors

# no step of learning: what was loaded is what is saved
train "${small[@]}" model.width=8 run.name=again model.init="$weights" train.optimizer.lr=0 train.max_steps=1
grep -q "model.init: 267 of 267 tensors" "$work/runs/again/log" || fail "not all tensors are said to be loaded"
"$DTRAIN" ckpt diff "$work/runs/resnet50" "$work/runs/again" >"$work/out" 2>&1 || true
grep -q "running_mean" "$work/out" || fail "ckpt diff does not compare"
! grep -q "model.safetensors .*weight" "$work/out" || fail "the run did not begin with the weights of the file: $(grep -m1 "model.safetensors .*weight" "$work/out")"

# RUN is its best checkpoint; RUN@WHICH another one; the head of other classes is drawn anew unless told otherwise
check() { exits "$1" "$2" "$DTRAIN" check "$config" "${small[@]}" model.width=8 run.name=new "${@:3}"; }
run=$work/runs/resnet50
for which in "" @latest @best @4; do
    check 0 "267 of 267 tensors from $run/checkpoints/step-00000004/model.safetensors" model.init="$run$which"
done
check 4 "model.init: .*no checkpoint '7'; there are latest and steps .*4" model.init="$run@7"
check 4 "no run: .*give RUN, not RUN/checkpoints/step-N" model.init="$run/checkpoints/step-00000004"
check 0 "model.init: 265 of 267 tensors.* 2 initial" data.fields.class.classes=12 model.init="$run"
grep -q "fc.weight, fc.bias" "$work/log" || fail "the head is not left out"
check 4 "model.init_keep=fc" data.fields.class.classes=12 model.init="$run" model.init_keep=conv1
check 4 "looks like model.depth 50, the config says 34" model.depth=34 model.init="$run"
echo "ResNet-50 and ViT: configs, small runs, and weights of another run"
