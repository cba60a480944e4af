#!/usr/bin/env bash
# README and the how-to pages do what they say: every block of theirs runs as it stands, a page after the other, each in a
# folder of its own with what the pages begin with (photographs, tables, sets and finished runs of the names that they use,
# configs/), but for those that test_how_to.py names with a reason. Synthetic sets are small, and trainings short: by
# key=value behind the config, as the pages themselves say. Each YAML block is a config that check takes. What a page shows
# of a command's output is what the command prints, but for numbers.
. "${SOURCE:?}/tests/small_run.sh" || exit
"$python" -c 'import yaml' 2>/dev/null || { echo "skipped: no python3-yaml"; exit 77; }
export PATH=$work/bin:$PATH PYTHON=$python OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
mkdir "$work/bin" "$work/raw" "$work/base" "$work/base/build"
base=$work/base
ln -s "$work/raw" "$base" # is only read
cat >"$work/bin/dtrain" <<SH
#!/usr/bin/env bash
# dtrain, for which sets are small and trainings short
dtrain=$(realpath "$DTRAIN")
SH
cat >>"$work/bin/dtrain" <<'SH'
quick=(train.max_steps=2 device.threads=1 train.precision=fp32 device.time_engines=false)
[[ " $* " != *trace.steps* ]] || quick[0]=train.max_steps=32
case "$1 ${2:-}" in
synth*)
    words=(--n 100)
    [ "$2" != biometric ] || words=(--subjects 10 --impressions 8)
    [ "${4:-}" = --n ] && set -- "${@:1:3}"
    set -- "$@" "${words[@]}" ;;
"data bench") set -- "$@" --seconds 1 ;;
"launch local"* | sweep* | train* | init* | *.yaml*)
    words=()
    for word; do
        words+=("$word")
        [ "$1" != init ] || [ $word = init ] || word=${words[1]} # key=value comes behind RUN
        [ "$1" != init ] || [ ${#words[@]} = 3 ] || continue
        case $word in
        *fusion.yaml) words+=("${quick[@]}" "data.fields.fingerprint.size=[26, 24]" "data.fields.iris.size=[24, 32]") ;;
        photos.yaml) words+=("${quick[@]}" model.width=8 model.depth=10 "data.fields.image.size=[32, 32]") ;;
        *.yaml) words+=("${quick[@]}") ;;
        esac
    done
    set -- "${words[@]}" ;;
esac
exec "$dtrain" "$@"
SH
printf '#!/bin/sh\n[ -s "$1" ]\n' >"$work/bin/xdg-open"
for scheduler in sbatch kubectl; do printf '#!/bin/sh\ncat >/dev/null\n' >"$work/bin/$scheduler"; done
chmod +x "$work/bin"/*
ln -s "$work/bin/dtrain" "$base/build/dtrain"
cp -r "$SOURCE/configs" "$base"
cd "$base"

# sets
run() { "$work/bin/dtrain" "$@" >"$work/out" 2>"$work/log" </dev/null || fail "exit $?: dtrain $*"; }
run synth lens raw/lens
run synth acoustic raw/acoustic
py make
py commands "$SOURCE" "$work/pages" # makes photos.yaml of README's, too
run pack raw/lens new-survey.tar --pattern '{label}/{id}.fits' --join raw/lens/lens.csv
ln -s new-survey.tar survey.tar
cp -r raw/lens/images/other new_images
for set in photos new; do run pack $set $set.lmdb --pattern '{label}/{camera}_{n}.ppm' --quality; done
ln -s new.lmdb test.lmdb
ln -s new.lmdb val.lmdb
run pack photos 'photos-{000000..000003}.tar'
"$DTRAIN" synth photos raw/imagenet --n 128 2>"$work/log" || fail "synth photos"
run pack raw/imagenet 'imagenet-{000000..000127}.tar'
pictures=(raw/imagenet/*/*.jpg)
cp "${pictures[0]}" a.jpg
mkdir lsun
ln -s ../photos.lmdb lsun/bedroom_train_lmdb
ln -s photos.lmdb day.lmdb
run pack photos 'night-{0..1}.tar' --pattern '{label}/{camera}_{n}.ppm' --quality
run pack heads heads.tar --pattern '{pose}/{subject}_{sunglasses}_{n}.ppm'
run pack prices.csv prices.lmdb --rows price
run synth biometric raw/biometric
mkdir datasets
run pack raw/biometric raw/biometric.lmdb --quality
ln -s "$work/raw/biometric.lmdb" datasets

# configs and runs
cat >configs/photos.yaml <<'YAML'
run: {name: photos}
data:
  path: photos.lmdb
  fields:
    image: {kind: image, source: ppm, size: [32, 32], normalize: imagenet}
    label: {kind: class}
  split: {val: 0.2, test: 0.2}
model: {name: resnet, depth: 10, width: 8, dropout: 0.1}
train: {global_batch: 8, micro_batch: 8, precision: fp32}
YAML
cp configs/photos.yaml CONFIG.yaml
cat >configs/prices.yaml <<'YAML'
run: {name: prices}
data:
  path: prices.lmdb
  fields:
    house: {kind: vector, source: npy, size: 2, normalize: auto}
    price: {kind: real, normalize: auto}
  split: {val: 0.2}
model: {name: mlp}
train: {global_batch: 8, micro_batch: 8, targets: {price: {loss: mse}}}
YAML
for run in photos photos2 photos3 a b c; do run configs/photos.yaml run.name=$run run.seed=${#run}; done
run configs/photos.yaml run.name=resnet50 model.depth=50 'data.fields.image.size=[224, 224]' train.max_steps=1
run configs/photos.yaml run.name=resnet18 model.depth=18
run export runs/resnet18 resnet18.safetensors
ln -s resnet18.safetensors resnet18-f37072fd.pth
run configs/prices.yaml
run configs/fusion.yaml
mapfile -t labels < <(py labels)
run configs/photos.yaml run.name=findings eval.threshold=f1 "${labels[@]}"
run predict runs/photos new_photos -o new.npy

# pages
made() { # what a page makes is not there before
    case $1 in
    fingerprint-iris | ranks | resume | sweep | shard | split) rm -rf runs/fusion ;;&
    fingerprint-iris) rm -r datasets ;;
    README | first-config) rm -rf runs ;;
    pack) rm -r photos.lmdb photos-* ;;
    esac
}
for page in "$work"/pages/*.sh; do
    name=$(basename "$page" .sh)
    grep -qv '^: \|^set \|^wait$' "$page" || continue
    rm -rf "$work/folder"
    cp -r "$base" "$work/folder"
    cd "$work/folder"
    made "$name"
    begin=$SECONDS
    bash -x "$page" >"$work/$name.out" 2>"$work/log" </dev/null || fail "exit $?: a command of $name.md, the last one above"
    case $name in # what a page shows; not the live displays of README and watch-a-run, and fine-tune's other weights
    quantize) py shows "$work/pages/shown/$name" "$work/$name.out" ;;
    metadata-tables)
        ! dtrain pack xrays all.lmdb --join metadata.csv 2>"$work/log" || fail "a table with mistakes is packed"
        [ "$(tr -s ' \n' ' ' <"$work/log")" = "$(tr -s ' \n' ' ' <"$work/pages/shown/$name")" ] ;;
    fingerprint-iris) [ -s runs/fusion/report.html ] ;; # as README and watch-a-run promise of every run
    README) # the files of a run
        for file in $(sed -n 's/^  \([^ …]*\).*/\1/p' "$work/pages/shown/$name"); do
            compgen -G "runs/photos/$file*" >/dev/null || fail "a run has no $file, which README shows"
        done ;;
    esac || fail "$name.md shows what is not printed"
    echo "$name: $((SECONDS - begin)) s"
done
echo "every block of README and docs/how-to: $(cat "$work"/pages/*.sh | grep -c dtrain) commands and configs"
