#!/usr/bin/env bash
# dtrain data show: the picture has what the network gets: pixels after augmentation and mixing, sounds as spectrograms.
. "${SOURCE:?}/tests/expect.sh" || exit
command -v "$python" >/dev/null || { echo "skipped: no python3"; exit 77; }

py make
cat >c.yaml <<'END'
run: {name: r}
data:
  path: pictures
  fields:
    image: {kind: image, channels: 1, size: [4, 4]}
    label: {kind: class}
  split: {val: 0.25, stratify: label}
  augment: {image: [{flip: {axis: horizontal, p: 1}}]}
model: {name: resnet, width: 4}
train: {epochs: 1, global_batch: 4, micro_batch: 2}
END
"$dtrain" data show c.yaml train.png --n 4 >train.txt 2>err.txt || fail "$(cat err.txt)"
"$dtrain" data show c.yaml val.png --split val >val.txt 2>err.txt || fail "$(cat err.txt)"
"$dtrain" data show c.yaml mix.png --n 6 data.mix.mixup=1 >mix.txt 2>err.txt || fail "$(cat err.txt)"
[ "$(wc -l <train.txt)" = 4 ] && [ "$(wc -l <val.txt)" = 2 ] || fail "lines: $(cat train.txt val.txt)"
grep -qE '^1,1	[ab]/[0-9]	label=[ab]$' train.txt || fail "lines: $(cat train.txt)"
sed -i 's,path: pictures,path: sounds,; s/image: {kind.*/image: {kind: audio, rate: 8000, seconds: 1, n_mels: 32}/; /augment:/d' c.yaml
"$dtrain" data show c.yaml sounds.png --n 4 >sounds.txt 2>err.txt || fail "$(cat err.txt)"
py check_pictures
# -- bands side by side, stretched by asinh, series as lines
py make_bands
sed 's,path: sounds,path: bands,; s/image: {kind.*/image: {kind: image, channels: 2, dtype: f32, size: [16, 16]}/' c.yaml >bands.yaml
sed 's,path: sounds,path: series,; s/image: {kind.*/image: {kind: audio, rate: 50, seconds: 1.28, channels: 2, features: waveform}/; s/model: .*/model: {name: cnn1d}/' c.yaml >series.yaml
sed 's,path: bands,path: faint,' bands.yaml >faint.yaml
for name in bands faint series; do
    "$dtrain" data show $name.yaml $name.png --n 1 data.split.val=0 train.global_batch=2 >out.txt 2>err.txt || fail "$name: $(cat err.txt)"
done
py check_bands
# -- dtrain check: values far from what a network expects are told, with the way to bring them there
py make_scales
sed 's/image: {kind.*/image: {kind: image, size: 32, channels: 1, dtype: f32}/; s/path: .*/path: fine/' c.yaml >f32.yaml
for set in tiny huge; do
    "$dtrain" check f32.yaml data.path=$set >out.txt 2>&1 || fail "$(cat out.txt)"
    grep -q "data.fields.image: the network gets values of -3e[-+]12 to 3e[-+]12 .*normalize: {mean: \[" out.txt || fail "$set: $(cat out.txt)"
    good=$(sed -n 's/.*give normalize: //p' out.txt)
    "$dtrain" check f32.yaml data.path=$set data.fields.image.normalize="$good" >out.txt 2>&1 || fail "$(cat out.txt)"
    ! grep -q "the network gets" out.txt || fail "$set with $good: $(cat out.txt)"
done
"$dtrain" check f32.yaml >out.txt 2>&1 || fail "$(cat out.txt)"
! grep -q "the network gets" out.txt || fail "fine: $(cat out.txt)"

# -- predictions: what is wrong comes first
sed 's,path: sounds,path: pictures,; s/image: {kind.*/image: {kind: image, channels: 1, size: [4, 4]}/' c.yaml >p.yaml
part=(--split val data.split.val=0.5)
"$dtrain" data show p.yaml all.png "${part[@]}" >all.txt 2>err.txt || fail "$(cat err.txt)"
awk -F'\t' 'BEGIN { print "key,path,label,label.probability" } { sub("label=", "", $3); print $2 ",x," (NR == 3 ? ($3 == "a" ? "b" : "a") : $3) ",0.9" }' all.txt >predicted.csv
"$dtrain" data show p.yaml hits.png "${part[@]}" --n 4 --predicted predicted.csv >hits.txt 2>err.txt || fail "$(cat err.txt)"
wrong=$(sed -n 3p all.txt | cut -f2)
sed 's/^[^,]*,/x,/; 1s/.*/key,path,label,label.probability/' predicted.csv >others.csv
if "$dtrain" data show p.yaml none.png "${part[@]}" --predicted others.csv 2>err.txt; then fail "no prediction is shown"; fi
grep -q "others.csv has no row for a sample of the" err.txt || fail "no predictions: $(cat err.txt)"
[ "$(wc -l <hits.txt)" = 4 ] && head -n 1 hits.txt | grep "	$wrong	label=[ab]	predicted=[ab]$" >/dev/null || fail "predictions: $(cat hits.txt)"
awk -F'\t' '{ sub("label=", "", $3); sub("predicted=", "", $4); wrong += $3 != $4 } END { exit wrong != 1 }' hits.txt || fail "predictions: $(cat hits.txt)"
[ "$(cut -f2 hits.txt | sort -u | wc -l)" = 4 ] || fail "a sample twice: $(cat hits.txt)"
py check_edges

# -- nothing to show
sed '/image:/d' c.yaml >none.yaml
code=0
"$dtrain" data show none.yaml x.png 2>err.txt || code=$?
[ $code = 2 ] && grep -qF "no image or audio field" err.txt || fail "nothing to show: $code $(cat err.txt)"
code=0
"$dtrain" data show c.yaml 2>err.txt || code=$?
[ $code = 2 ] && grep -qF "CONFIG.yaml OUT.png" err.txt || fail "no OUT: $code $(cat err.txt)"
code=0
"$dtrain" data show . x.png 2>err.txt || code=$?
[ $code = 2 ] && grep -qF ".: no run, which is a directory with a config.yaml" err.txt || fail "a set for a config: $code $(cat err.txt)"
echo OK
