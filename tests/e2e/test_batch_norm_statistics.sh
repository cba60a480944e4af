#!/usr/bin/env bash
# model.sync_bn: two ranks with half a batch each are one rank with the whole, weights and running statistics;
# eval.recalibrate_bn: running statistics are torch's update_bn over the training batches, on any number of ranks, and
# training does not see it.
. "${SOURCE:?}/tests/small_run.sh" || exit
py make "$work/set.tar"
new_config whole <<YAML
    image: {kind: image, source: bmp, channels: 3, size: [16, 16]}
    cls: {kind: class}
model: {name: resnet, depth: 18, width: 4, stem: small}
train:
  epochs: 100
  max_steps: 4
  global_batch: 32
  micro_batch: 16
  precision: fp32
  optimizer: {name: sgd, lr: 0.05}
YAML
sed -i 's/every: 1000000 steps/every: 1 steps, keep: 20/' "$config"
compare() { # RUN RUN STEP TOLERANCE WHAT: largest difference of tensors, relative to each one's size
    py compare "$work/runs" "$@"
}

# -- sync_bn: alone it is the usual batch norm; two ranks of 8 are one of 16
one=(train.global_batch=16 train.optimizer.lr=0.005)
train "${one[@]}"
train run.name=alone "${one[@]}" model.sync_bn=true
compare whole alone 3 1e-3 "" || fail "another batch norm"
if have_mpi; then
    train_on 2 run.name=synced "${one[@]}" model.sync_bn=true train.micro_batch=8
    train_on 2 run.name=apart "${one[@]}" train.micro_batch=8
    compare whole synced 3 1e-3 "" || fail "two ranks of half a batch are another batch"
    ! compare whole apart 3 1e-2 running || fail "the test sees no difference"
    train_on 2 run.name=accumulated model.sync_bn=true train.micro_batch=4 # the same bits, after a stop, too
    exits 75 '' "${ranks[@]}" 2 "$DTRAIN" "$config" run.name=again model.sync_bn=true train.micro_batch=4 run.stop_at=2
    train_on 2 run.name=again model.sync_bn=true train.micro_batch=4
    [ "$(hash "$work/runs/again")" = "$(hash "$work/runs/accumulated")" ] || fail "other bits"
    exits 2 "do not divide the step's 3" "${ranks[@]}" 2 "$DTRAIN" "$config" run.name=bad model.sync_bn=true \
        train.micro_batch=8 train.global_batch=24
fi
refused 'model.sync_bn makes results depend' model.sync_bn=true run.reproducible=elastic
refused 'leave device.replicas out' model.sync_bn=true device.replicas=2 device.threads=2

# -- recalibrate_bn: with a rate of 0 the weights stay, and one step's statistics are moved by momentum 1 in effect
keys=(run.reproducible=elastic 'data.split={val: 0.25}' eval.every="2 steps" train.optimizer.momentum=0 train.ema=0.5
      train.schedule.name=constant)
train run.name=plain "${keys[@]}"
train run.name=fresh "${keys[@]}" eval.recalibrate_bn=1
py check_training "$work/runs" || fail "training saw the recalibration"
! compare plain fresh 4 1e-3 running || fail "nothing was recalibrated"
# the statistics of the averaged weights on the first step's batch: those that a step with them moves to by 0.1
train run.name=probe "${keys[@]}" train.ema=0 model.init="$work/runs/fresh@4" train.optimizer.lr=1e-30 train.max_steps=1 \
    eval.every='1000 steps'
py check_means "$work/runs" || fail "not the means over the training batches"
if have_mpi; then
    train_on 2 run.name=fresh2 "${keys[@]}" eval.recalibrate_bn=1
    [ "$(hash "$work/runs/fresh2")" = "$(hash "$work/runs/fresh")" ] || fail "two ranks have other statistics"
fi
exits 75 '' "$DTRAIN" "$config" run.name=stopped "${keys[@]}" eval.recalibrate_bn=1 run.stop_at=3
train run.name=stopped "${keys[@]}" eval.recalibrate_bn=1
[ "$(hash "$work/runs/stopped")" = "$(hash "$work/runs/fresh")" ] || fail "other statistics after a resume"
refused 'of which there are 4' "${keys[@]}" eval.recalibrate_bn=5
echo passed
