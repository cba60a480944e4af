#!/usr/bin/env bash
# train.class_weights: the loss is that of torch.nn.CrossEntropyLoss, of given weights and of balanced ones, with label
# smoothing and of mixed samples; the same on every number of ranks. train.pos_weight: that of BCEWithLogitsLoss. Both of
# one of several targets.
. "${SOURCE:?}/tests/small_run.sh" || exit
py make "$work/set.tar"
new_config plain <<YAML
    x: {kind: vector, size: [4]}
    cls: {kind: class}
model: {name: mlp, hidden: 16}
train:
  max_steps: 1
  global_batch: 48
  micro_batch: 12
  targets: {cls: {loss: cross_entropy}}
  precision: fp32
  optimizer: {name: sgd, lr: 1.0e-30, weight_decay: 0}
YAML
train
train run.name=given 'train.class_weights=[1, 2.5, 4]'
train run.name=named 'train.class_weights={2: 4, 1: 2.5}' # the others have 1
losses() { py value "$work/runs/$1/metrics.jsonl" '[x["loss"] for x in rows if x["kind"] == "step"]'; }
[ "$(losses named)" = "$(losses given)" ] || fail "by name: $(losses named), by number: $(losses given)"
refused "train.class_weights: 'two' is no class; expected one of 0, 1, 2" 'train.class_weights={two: 4}'
refused "train.class_weights.2: expected a number above 0" 'train.class_weights={2: none}'
train run.name=balanced train.class_weights=balanced
train run.name=smooth 'train.class_weights=[1, 2.5, 4]' train.targets.cls.label_smoothing=0.2
train run.name=focal 'train.class_weights=[1, 2.5, 4]' train.targets.cls='{loss: focal, label_smoothing: 0.2, focal_gamma: 0}'
"$DTRAIN" predict "$work/runs/given" "$work/set.tar" --logits --which latest -o "$work/logits.jsonl" 2>"$work/log" || fail predict
py check_losses "$work" || fail "other losses"

# -- labels, and two targets with weights of their own
labels=('data.fields.labels={kind: vector, source: [a, b], size: [2]}')
both=("${labels[@]}" 'train.targets.labels={loss: bce, pos_weight: [3, 0.5]}')
train run.name=both "${both[@]}" 'train.targets.cls={loss: cross_entropy, class_weights: [1, 2.5, 4], label_smoothing: 0.2}'
train run.name=balanced_labels "${labels[@]}" train.targets.cls= 'train.targets.labels={loss: bce, pos_weight: balanced}'
for run in both balanced_labels; do
    "$DTRAIN" predict "$work/runs/$run" "$work/set.tar" --logits --which latest -o "$work/$run.jsonl" 2>"$work/log" || fail "predict $run"
done
py check_labels "$work" || fail "other losses of labels"
refused 'train.class_weights is for a single target' "${both[@]}" 'train.class_weights=[1, 2, 3]'
refused 'train.targets.cls.pos_weight is a key of bce' 'train.targets.cls.pos_weight=[1, 2, 3]'
refused 'train.targets.labels.pos_weight has 2 numbers; there are 3 labels' 'data.fields.labels={kind: vector, source: [a, b, a], size: [3]}' \
    'train.targets.labels={loss: bce, pos_weight: [3, 0.5]}'

# -- mixed samples: their weight is that of their shares
mix=(model.name=resnet model.hidden= model.depth=10 model.width=4 data.fields.x=null
     'data.fields.image={kind: image, source: bmp, channels: 3, size: [16, 16]}'
     data.mix.mixup=1 train.optimizer.lr=0.1 train.max_steps=6 train.epochs=6 run.reproducible=elastic)
train run.name=mixed "${mix[@]}" 'train.class_weights=[1, 2.5, 4]'
train run.name=unweighted "${mix[@]}"
train run.name=ones "${mix[@]}" 'train.class_weights=[1, 1, 1]'
[ "$(hash "$work/runs/ones")" = "$(hash "$work/runs/unweighted")" ] || fail "weights of 1 are not without effect"
[ "$(hash "$work/runs/mixed")" != "$(hash "$work/runs/unweighted")" ] || fail "mixed samples have no weights"
# shares that are not mixed are classes; torch divides their loss by their number, not by their weights
one=("${mix[@]}" 'train.class_weights=[1, 2.5, 4]' train.max_steps=1 train.targets.cls.label_smoothing=0.1)
train run.name=shares "${one[@]}" data.mix.p=0
train run.name=classes "${one[@]}" data.mix=null
py check_shares "$work"/runs/{shares,classes}/metrics.jsonl || fail "shares have another loss"
if have_mpi; then
    train_on 2 run.name=two "${mix[@]}" 'train.class_weights=[1, 2.5, 4]'
    [ "$(hash "$work/runs/mixed")" = "$(hash "$work/runs/two")" ] || fail "two ranks have other weights"
fi

refused 'has 2 numbers; there are 3 classes' 'train.class_weights=[1, 2]'
refused "'balancd' is neither balanced" train.class_weights=balancd
refused "'-1' is neither balanced nor a number above 0" 'train.class_weights=[1, 2, -1]'
refused 'train.clip_norm is given, too' train.clip_norm=1 train.clip_agc=0.01
echo passed
