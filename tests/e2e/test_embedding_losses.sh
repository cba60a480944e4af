#!/usr/bin/env bash
# Losses of embeddings on subjects that training has not seen: ArcFace and the batch-hard triplet loss, with micro-batches
# of some samples of each subject, lower the EER; the same bits on two ranks; what does not fit is one line.
. "${SOURCE:?}/tests/small_run.sh" || exit

small_data "$work" 24 6
new_config "small, reproducible: elastic" "$work/small.lmdb" <<YAML
    fingerprint: {kind: image, channels: 1, size: [26, 24], normalize: {mean: [0.5], std: [0.25]}}
    subject:     {kind: class, classes: 24}
  split: {unit: subject, val: 0, test: 0.4}
  balance: subject
  m_per_class: 4
model: {name: cnn}
train:
  epochs: 1000
  max_steps: 50
  global_batch: 32
  micro_batch: 16
  precision: fp32
  optimizer: {name: adamw, lr: 1.0e-3, weight_decay: 0.01}
  schedule: {name: constant}
eval: {every: 1000000 steps, metrics: [loss, eer, pair_auc]}
YAML
triplet=(train.triplet_weight=1 train.triplet_margin=0.3 'train.targets={subject: {loss: cross_entropy, weight: 0}}')
arcface=(train.loss=arcface train.arcface_margin=0.3 train.arcface_scale=16)

eer() { py value "$work/out" 'next(v for k, v in r.items() if k.endswith("eer"))'; } # of the test part with the last weights
train run.name=untrained "${arcface[@]}" train.optimizer.lr=1e-30 train.max_steps=2
before=$(eer)
for loss in triplet arcface; do
    declare -n words=$loss
    train run.name=$loss "${words[@]}"
    after=$(eer)
    echo "$loss: EER $before -> $after"
    sanitized || awk "BEGIN {exit !($after < 0.5 * $before)}" || fail "$loss does not lower the EER: $before -> $after"
done
if have_mpi; then
    train_on 2 run.name=two "${triplet[@]}"
    [ "$(hash "$work/runs/two")" = "$(hash "$work/runs/triplet")" ] || fail "two ranks have other weights"
fi

# -- micro-batches hold four samples of each subject that they have
"$DTRAIN" data order "$config" --steps 2 2>/dev/null >"$work/order"
py check_order "$work/order" || fail "other samples than four of each subject"
refused 'needs a train.micro_batch that is a multiple of 5' data.m_per_class=5
refused 'data.m_per_class has no effect without data.balance' data.balance=null
refused 'a class that is not mixed' "${triplet[@]}" data.mix.mixup=0.2
refused 'arcface does not fit' train.loss=arcface data.mix.mixup=0.2
echo passed
