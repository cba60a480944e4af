#!/usr/bin/env bash
# train.clip_norm, clip_value and clip_agc: what a step of plain SGD moves is lr times the clipped gradient.
. "${SOURCE:?}/tests/small_run.sh" || exit
small_data "$work" 6 4
config=$(small_config "$work")
keys=('train.optimizer={name: sgd, momentum: 0, lr: 0.5, weight_decay: 0}' train.schedule.name=constant
      train.schedule.warmup=0 train.max_steps=2 checkpoint.every='1 step' train.clip_norm=null)
train run.name=none "${keys[@]}"
train run.name=norm "${keys[@]}" train.clip_norm=0.125
train run.name=value "${keys[@]}" train.clip_value=0.002
train run.name=agc "${keys[@]}" train.clip_agc=0.01
py check "$work/runs" || fail "clipped otherwise"
echo passed
