#!/usr/bin/env bash
# Images of 72 megapixels: JPEG and PNG are packed smaller, verified and trained on row by row; a progressive JPEG is
# refused with the key that lets it in.
. "${SOURCE:?}/tests/small_run.sh" || exit
"$python" -c 'import PIL' 2>/dev/null || { echo "skipped: no Pillow"; exit 77; }
py make "$work/raw"
exits 0 '' "$DTRAIN" pack "$work/raw" "$work/set.tar"
exits 0 '' "$DTRAIN" data verify "$work/set.tar"
exits 0 '' "$DTRAIN" pack "$work/raw" "$work/small.tar" --resize 32
py check_colours "$work/small.tar"
# 206 MiB of pixels
sanitized || py peak_below 110 "$DTRAIN" pack "$work/raw" "$work/again.tar" --resize 32 --threads 1 2>"$work/log"
new_config large <<YAML
    image: {kind: image, source: jpg, channels: 3, size: [16, 18], normalize: imagenet}
    class: {kind: class, source: label, classes: 2}
  workers: 2
  where: key not like '%b'
model: {name: layers, layers: [global_pool, {linear: {out: 2}}]}
train: {max_steps: 1, global_batch: 2, micro_batch: 2, precision: fp32, optimizer: {name: sgd, lr: 0.1}}
YAML
train
train run.name=png data.fields.image.source=png data.where="key like '%b'"
sanitized || py peak_below 200 "$DTRAIN" "$config" run.name=peak data.workers=1 2>"$work/log"
exits 0 '' "$DTRAIN" check "$config"
[ "$(sed -n 's/.*decoding, at most *\([0-9]*\)\..*/\1/p' "$work/out" "$work/log")" = 1408 ] || # 2 x 64 Mi x 11
    fail "check: $(grep decoding "$work/out" "$work/log")"
if command -v kubectl >/dev/null; then # a pod's memory, with 512 MiB beside it
    exits 0 '' "$DTRAIN" launch k8s --print --namespace ml --image x "$config"
    [ "$(sed -n 's/.* memory: \([0-9]*\)Mi.*/\1/p' "$work/out" | tail -1)" -ge 1920 ] || fail "launch k8s: $(grep memory "$work/out")"
fi
# of two images of a record, the columns describe the first
py make_pairs "$work/pairs.tar"
exits 0 '' "$DTRAIN" pack "$work/pairs.tar" "$work/pairs-packed.tar"
pairs=(run.name=pairs data.path="$work/pairs-packed.tar" data.where=null data.workers=1 data.fields.image.source=b.png
    data.fields.class.source=cls)
exits 0 '' "$DTRAIN" check "$config" "${pairs[@]}"
grep -q 'decoding, at most *704.0' "$work/out" || fail "check of pairs: $(grep decoding "$work/out")" # 64 Mi x 11
exits 0 '' "$DTRAIN" check "$config" run.name=small data.path="$work/small.tar"
grep -q 'decoding, at most *0.0' "$work/out" || fail "check of small images: $(grep decoding "$work/out")"
for class in red blue; do mkdir -p "$work/more/$class" && for n in 1 2 3 4; do ln "$work/raw/$class/a.jpg" "$work/more/$class/$n.jpg"; done; done
exits 0 '' "$DTRAIN" data config "$work/more"
grep -q 'channels: 3' "$work/out" || fail "data config: $(cat "$work/out")"

py add_progressive "$work/raw"
large='c.jpg.*9000 x 8000 pixels: more than the limit of 67108864 [^;]*; --max-pixels sets another; --on-error skip leaves [a-z ]*$'
exits 3 "$large" "$DTRAIN" pack "$work/raw" "$work/all.tar" --resize 32
exits 0 '' "$DTRAIN" pack "$work/raw" "$work/most.tar" --resize 32 --on-error skip
py check_colours "$work/most.tar"
exits 0 '' "$DTRAIN" pack "$work/raw" "$work/raised.tar" --resize 32 --max-pixels 100000000
exits 0 '' "$DTRAIN" pack "$work/raw" "$work/set.tar" --overwrite
large='9000 x 8000 pixels: more than the limit of 67108864 .*; data.max_pixels sets another, data.on_error: skip leaves'
exits 3 "$large" "$DTRAIN" "$config" run.name=fails train.global_batch=3 train.micro_batch=3
train run.name=raised train.global_batch=3 train.micro_batch=3 data.max_pixels=100000000
exits 3 'no such data set' "$DTRAIN" "$config" run.name=unstarted data.path="$work/none.tar"
exits 2 "unstarted: the run did not start: .*/unstarted/log says why" "$DTRAIN" eval "$work/runs/unstarted"
exits 3 'more than the limit of 1000000; data.max_pixels' "$DTRAIN" "$config" run.name=low data.max_pixels=1000000
echo passed
