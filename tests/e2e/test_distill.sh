#!/usr/bin/env bash
# train.teacher: the gradient of a step is that of (1 - alpha) CE + alpha T^2 KL(teacher || student), computed here from
# the logits of both; the teacher does not change; stops, ranks and accumulation give the same bits; what does not fit is one
# line.
. "${SOURCE:?}/tests/small_run.sh" || exit
py make "$work"
new_config "big, reproducible: elastic" <<YAML
    x: {kind: vector, size: [4]}
    cls: {kind: class}
model: {name: mlp, hidden: 32}
train:
  epochs: 100
  max_steps: 40
  global_batch: 48
  micro_batch: 12
  precision: fp32
  targets: {cls: {loss: cross_entropy}}
  optimizer: {name: sgd, lr: 0.1, momentum: 0, weight_decay: 0}
YAML
train
student=(model.hidden=8 run.seed=9 train.max_steps=6 checkpoint.every='1 step' checkpoint.keep=20
         train.schedule.name=constant)
teach=("${student[@]}" train.teacher="$work/runs/big@latest" train.teacher_temperature=3 train.teacher_alpha=0.7)
before=$(hash "$work/runs/big")
train run.name=alone "${student[@]}"
train run.name=taught "${teach[@]}"
train run.name=weighed "${teach[@]}" 'train.class_weights=[1, 2.5, 4]'
[ "$(hash "$work/runs/big")" = "$before" ] || fail "the teacher was trained"
! grep -q 'teacher:' "$work"/runs/taught/checkpoints/step-00000006/*.safetensors || fail "the teacher is in the student's checkpoint"

# -- the head's bias after one step moved by the formula's gradient, from the logits at the step before
for run in taught weighed big; do
    which=latest
    [ $run = big ] || which=1
    "$DTRAIN" predict "$work/runs/$run" "$work/set.tar" --logits --which $which -o "$work/$run.jsonl" 2>"$work/log" ||
        fail predict
done
py check_gradients "$work" || fail "other gradients than the formula's"

# -- stopped and resumed; two ranks
exits 75 '' "$DTRAIN" "$config" run.name=stopped "${teach[@]}" run.stop_at=3
train run.name=stopped "${teach[@]}"
[ "$(hash "$work/runs/stopped")" = "$(hash "$work/runs/taught")" ] || fail "other weights after a resume"
if have_mpi; then
    train_on 2 run.name=two "${teach[@]}"
    [ "$(hash "$work/runs/two")" = "$(hash "$work/runs/taught")" ] || fail "two ranks have other weights"
fi

refused 'train.teacher_temperature has no effect without train.teacher' "${teach[@]}" train.teacher=null
exits 4 'no run' "$DTRAIN" "$config" run.name=bad "${teach[@]}" train.teacher="$work/runs/none"
refused 'data.fields.x.normalize was .* in that run and is' "${teach[@]}" 'data.fields.x.normalize={mean: [1], std: [2]}'
refused "class 2 of cls is 'cherry' there and 'date' here" "${teach[@]}" data.path="$work/other.tar"
refused 'train.teacher knows 3 classes of cls, and there are 4 here' "${teach[@]}" data.fields.cls.classes=4
# the teacher's run moved
exits 75 '' "$DTRAIN" "$config" run.name=moved "${teach[@]}" run.stop_at=3
cp -r "$work/runs/big" "$work/elsewhere"
train run.name=moved "${teach[@]}" train.teacher="$work/elsewhere@latest"
[ "$(hash "$work/runs/moved")" = "$(hash "$work/runs/taught")" ] || fail "a teacher that moved: other weights"
# the teacher went on meanwhile
exits 75 '' "$DTRAIN" "$config" run.name=stale "${teach[@]}" run.stop_at=3
train train.max_steps=45 run.resume=force
exits 2 'train.teacher has other weights' "$DTRAIN" "$config" run.name=stale "${teach[@]}"

# -- encoders with batch norms, mixed and augmented images, an average of the weights: the same bits on two replicas
small_data "$work" 6 3
config=$(small_config "$work")
keys=(run.reproducible=elastic data.mix.mixup=0.3 data.view.pairs.within=subject)
train run.name=fused "${keys[@]}" train.max_steps=4
taught=("${keys[@]}" train.max_steps=4 train.teacher="$work/runs/fused@latest" model.fusion=gated train.ema=0.5
        train.recompute=auto)
train run.name=one "${taught[@]}"
train run.name=two_replicas "${taught[@]}" device.threads=2
[ "$(hash "$work/runs/one")" = "$(hash "$work/runs/two_replicas")" ] || fail "two replicas have other weights"
"$DTRAIN" check "$config" "${taught[@]}" >"$work/check" 2>"$work/log" || fail check
"$DTRAIN" check "$config" "${keys[@]}" model.fusion=gated >"$work/plain" 2>"$work/log" || fail check
[ "$(grep '^model' "$work/check")" = "$(grep '^model' "$work/plain")" ] || fail "check counts the teacher's parameters"
"$DTRAIN" eval "$work/runs/one" >/dev/null 2>"$work/log" || fail "eval of a student"
rm -r "$work/runs/fused"
"$DTRAIN" predict "$work/runs/one" "$work/small.lmdb" -o "$work/out.csv" 2>"$work/log" || fail "predict without the teacher"
echo passed
