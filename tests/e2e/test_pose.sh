#!/usr/bin/env bash
# configs/pose.yaml from invented heads to angles: synth, pack with a joined table, train; the error in
# degrees falls well below that of guessing the mean.
. "${SOURCE:?}/tests/small_run.sh" || exit
config=$SOURCE/configs/pose.yaml

"$DTRAIN" synth pose "$work/pose" --n 400 2>/dev/null
"$DTRAIN" pack "$work/pose/images" "$work/pose-{000000..000001}.tar" --join "$work/pose/pose.csv" --resize 64 --encode jpeg:90 \
    >/dev/null 2>"$work/log" || fail "pack"
grep -q "400 of 400 files have a row" "$work/log" || fail "the join found other rows"

steps=90
! sanitized || steps=4
train data.path="$work/pose-{000000..000001}.tar" run.dir="$work/runs" device.threads=1 train.precision=fp32 \
    'data.fields.image.size=[48, 48]' model.width=12 train.epochs=100 train.max_steps=$steps train.global_batch=32 train.micro_batch=16 \
    eval.every="1000 epochs" checkpoint.every="1000 epochs"
py check "$work/out" "$work/pose/pose.csv" $steps || fail "the angles were not learned"
