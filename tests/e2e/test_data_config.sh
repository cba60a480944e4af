#!/usr/bin/env bash
# dtrain data config: from a folder to a trained network in three commands, of sets of each kind. What it writes passes
# check, names what is in the set, and trains as written, here for some steps.
. "${SOURCE:?}/tests/small_run.sh" || exit
cd "$work"
py make
quick=(device.threads=1 device.time_engines=false train.precision=fp32)

# SET METRIC LIMIT STEPS TEXT …: the config of SET.tar, or of the words in `sets`, has each TEXT; !TEXT: it has not
three() {
    local name=$1 text
    exits 0 '' "$DTRAIN" data config "${sets[@]:-$1.tar}" "${options[@]}"
    cp out "$name.yaml"
    rm -rf "runs/$name"
    for text in "${@:5}"; do
        if [[ $text == !* ]]; then
            ! grep -q -- "${text#!}" "$name.yaml" || fail "$name.yaml has ${text#!}: $(cat "$name.yaml")"
        else
            grep -qF -- "$text" "$name.yaml" || fail "$name.yaml has no $text: $(cat "$name.yaml")"
        fi
    done
    [ "$(awk 'length > 122' "$name.yaml" | wc -l)" = 0 ] || fail "long lines: $(cat "$name.yaml")"
    exits 0 '' "$DTRAIN" check "$name.yaml"
    exits 0 '' "$DTRAIN" "$name.yaml" "${quick[@]}" train.max_steps="$4"
    py learned "runs/$name" "$2" "$3" || fail "$name has not learned: $(cat "$name.yaml")"
}
packed() { exits 0 '' "$DTRAIN" pack "$@"; }
sets=() options=()

packed colours colours.tar
three colours accuracy 0.8 60 'size: [48, 48]' 'fit: crop' 'flip: horizontal' 'class_weights: balanced' 'classes: 3' \
    '# init: resnet18.pth' 'unit: record, stratify: label' '!source: bmp'
sets=(colours)
three folder loss 0.8 30 'path: colours' 'classes: 3' # the folder itself
packed digits digits.tar --pattern '{split}/{digit}_{n}.pgm'
sets=()
three digits accuracy 0.7 80 'channels: 1 ' "test: \"split = 'test'\"" 'letters or digits' 'size: [56, 56]' '!flip:'
packed wrist wrist.tar --pattern '{motion}_{person}_{n}.csv'
three wrist accuracy 0.8 40 'unit: person' 'name: cnn1d' 'channels: 3 ' 'rate: 1 # undecided: files do not state it: write the' 'seconds: 200 '
packed wrist windows.tar --pattern '{motion}_{person}_{n}.csv' --segment 8.16 --rate 12.5
three windows accuracy 0.8 40 'rate: 12.5 ' 'seconds: 8.16 '
packed brain brain.tar --pattern '{state}_{n}.edf'
three brain loss 0.9 24 'rate: 100 ' 'seconds: 1 ' 'channels: 2 ' 'name: cnn1d'
packed tones tones.tar --pattern '{pitch}_{room}_{n}.wav'
three tones accuracy 0.8 40 'undecided: room could be the target' 'rate: 16000' 'seconds: 0.5' '!flip:'
options=(--target room)
three tones loss 1.2 4 'room: {kind: class' 'undecided: pitch'
options=()
packed maps maps.tar
three maps accuracy 0.8 40 'layout: chw' 'channels: 2 ' 'dtype: f32' '!flip:'
packed eyes eyes.tar --pattern 'left/{age_class}_{id}.bmp|right/{age_class}_{id}.bmp' --group id
three eyes accuracy 0.8 30 'left:' 'right:' 'name: fusion' '!view:'
packed houses houses.tar --join tables/houses.csv
three houses price.mae 9000 30 'price: {kind: real' 'source: [floors, area, rooms]' 'targets: {price: {loss: smooth_l1}}' '!flip:' \
    'zone: {kind: class, source: zone, input: embedding}'
exits 0 "first is 7 (it has no 'rooms'; data.columns can fill it: case when" "$DTRAIN" check houses.yaml
exits 0 '' "$DTRAIN" check houses.yaml 'data.columns={r: "case when rooms is null then 0 else rooms end"}' \
    data.fields.columns.source='[floors, area, r]'
grep -q '120 samples' out || fail "a filled value does not count: $(cat out)"
packed tables/iris.csv iris.tar --rows species
three iris accuracy 0.8 60 'kind: vector' 'size: 2 ' 'normalize: auto' 'name: mlp'
packed tables/prices.csv prices.tar --rows price,kind
three prices price.mae 30000 100 'targets: {price: {loss: smooth_l1}}' 'kind: {kind: class' 'name: mlp'

# the systems of docs/how-to, small
small_data "$work" 6 4
sets=(small.lmdb)
three people loss 0.98 24 'view: {pairs: {fields: [fingerprint, iris], within: subject}}' 'subject: {kind: class' \
    'channels: 1 ' 'name: fusion' 'finger, gender' '!flip:'
for kind in acoustic lens pose; do "$DTRAIN" synth $kind "raw/$kind" --n 150 2>log || fail "synth $kind"; done
packed raw/acoustic acoustic.tar --pattern 'leak{leak}_pipe{pipe}_{hz}_{n}.wav'
sets=()
three acoustic loss 1 40 'unit: pipe' 'leak: {kind: class' 'features: logmel' 'n_mels: 64' '!flip:' '!hz'
packed raw/lens lens.tar --pattern '{label}/{id}.fits' --join raw/lens/lens.csv
three lens loss 1 40 'channels: 4 ' 'stretch: asinh' 'flip: both' 'size: [64, 64]' 'einstein_radius'
# real galaxies in five bands, a cube each, where the data is there
cubes=$SOURCE/../shared/data/lens_des.tar
if [ -f "$cubes" ]; then
    mkdir des && tar xf "$cubes" -C des --strip-components 4 --wildcards '*.fits' '*/map.txt'
    awk 'BEGIN { print "key,sigma_v" } NR > 1 { printf "0-%05d,%s\n", NR - 2, $1 }' des/map.txt >des.csv
    rm des/map.txt
    for band in g r i z Y; do mv des/$band.fits des/0_$band.fits; done
    packed des cubes.tar --slices --pattern '{sky}_{band}.fits' --group sky
    packed cubes.tar des.tar --join des.csv
    options=(--target sigma_v)
    three des mae 100 3 'name: fusion' 'stretch: asinh' 'y: [{flip: both}, {rotate: 180}]' 'sigma_v: {kind: real, ' 'size: [96, 96]'
    options=()
fi
packed raw/pose/images pose.tar --join raw/pose/pose.csv --duplicates drop
three pose loss 0.9 24 'source: [pitch, roll, yaw]' 'loss: smooth_l1' '!flip:'

# two sets, of which one is the test; what cannot be a target; a damaged set
sets=(colours.tar iris.tar)
three both loss 0.9 20 'path: [colours.tar, iris.tar]' 'unit: record'
packed alone alone.tar
exits 2 'no column can be the target' "$DTRAIN" data config alone.tar
exits 2 'nowhere: no such column' "$DTRAIN" data config tones.tar --target nowhere
exits 3 '' "$DTRAIN" data config nothing.tar
mkdir broken && for i in 1 2; do mkdir broken/$i && for n in 1 2 3 4; do printf 'P5 9 9 255\n' >broken/$i/$n.pgm; done; done
exits 3 'broken' "$DTRAIN" data config broken
echo passed
