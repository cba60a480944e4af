#!/usr/bin/env bash
# Fine-tuning beats training from scratch: a network learns from 400 images of one survey; its weights file, and random
# weights, go on for as many steps with 90 images of another survey, on whose other images they are judged. FULL=1: with
# three seeds, of which each must be better.
. "${SOURCE:?}/tests/small_run.sh" || exit
config=$SOURCE/configs/lens_resnet18.yaml
survey() { # NAME N SEED
    "$DTRAIN" synth lens "$work/$1" --n "$2" --seed "$3" >/dev/null 2>"$work/log" || fail "synth $1"
    "$DTRAIN" pack "$work/$1" "$work/$1.tar" --pattern '{label}/{id}.fits' --join "$work/$1/lens.csv" \
        >/dev/null 2>"$work/log" || fail "pack $1"
}
survey old 400 1
survey new 300 2
small=(run.dir="$work/runs" model.depth=10 model.width=16 train.micro_batch=8 train.precision=fp32 device.threads=1
    'metrics.sinks=[jsonl]' 'checkpoint.every=1000000 steps')
train "${small[@]}" run.name=old data.path="$work/old.tar" data.split.test=null train.epochs=4
cp "$(ls -d "$work"/runs/old/checkpoints/step-* | tail -1)/model.safetensors" "$work/old.safetensors"

steps=(data.path="$work/new.tar" 'data.split={val: null, test: 0.7}' train.epochs=100 train.max_steps=30 train.global_batch=16
    train.optimizer.lr=5e-4 'eval.every=1000000 steps')
auc() { grep -o '"roc_auc": *[0-9.]*' "$work/out" | tail -1 | sed 's/.*: *//'; }
printf '%s\n' "| seed | from scratch | fine-tuned |" "|---|---|---|"
for seed in 1 ${FULL:+2 3}; do
    train "${small[@]}" "${steps[@]}" run.name=scratch$seed run.seed=$seed
    scratch=$(auc)
    train "${small[@]}" "${steps[@]}" run.name=tuned$seed run.seed=$seed model.init="$work/old.safetensors"
    tuned=$(auc)
    echo "| $seed | $scratch | $tuned |"
    awk "BEGIN { exit !($tuned > $scratch + 0.01) }" || fail "not better (roc_auc on the images of the new survey that were held out)"
done
