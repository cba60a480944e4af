#!/usr/bin/env bash
# configs/photos.yaml on pictures by class folder, packed into WebDataset shards: small BMPs that this
# script draws, and photographs if the machine has them. The shards are read by Python's tarfile too.
. "${SOURCE:?}/tests/small_run.sh" || exit
config=$SOURCE/configs/photos.yaml

shards() { # pattern, extension: Python finds image, class and metadata of every sample
    py check_shards "$@"
}

py make "$work/drawn"
"$DTRAIN" pack "$work/drawn" "$work/drawn-{000000..000003}.tar" >/dev/null 2>"$work/log" || fail "pack: exit $?"
shards "$work/drawn-{000000..000003}.tar" bmp
train run.dir="$work/runs" run.name=drawn data.path="$work/drawn-{000000..000003}.tar" \
    data.fields.image.source=bmp data.fields.image.size='[24, 24]' data.fields.class.classes=3 model.width=8 \
    train.epochs=20 train.precision=fp32 eval.metrics='[recall, macro_f1]'
py check_colours "$work/out" || fail "three colours are not told apart"

photos=$SOURCE/../shared/data/trashnet.tar
[ -e "$photos" ] || { echo "no photographs on this machine: that part is left out"; exit 0; }
"$DTRAIN" pack "$photos" "$work/photos-{000000..000003}.tar" >/dev/null 2>"$work/log" || fail "pack: exit $?"
[ "$(ls "$work"/photos-*.tar | wc -l)" = 4 ] || fail "not four shards"
shards "$work/photos-{000000..000003}.tar" jpg
train run.dir="$work/runs" data.path="$work/photos-{000000..000003}.tar" data.fields.class.classes=6 train.max_steps=6
grep -q '"accuracy"' "$work/out" || fail "no metrics of the photographs"
echo "photographs: $(tail -1 "$work/out")"
