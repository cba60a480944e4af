#!/usr/bin/env bash
# The how-to pages of practice (splits, predictions, evaluation, sweeps, several targets, fine-tuning, ONNX) do what they
# say: each command runs as it stands, on small sets and runs of the names that the pages use, and each YAML block is a
# config that check takes.
. "${SOURCE:?}/tests/small_run.sh" || exit
"$python" -c 'import yaml' 2>/dev/null || { echo "skipped: no python3-yaml"; exit 77; }
mkdir "$work/bin" "$work/folder" "$work/folder/configs"
ln -s "$(realpath "$DTRAIN")" "$work/bin/dtrain"
export PATH=$work/bin:$PATH
cd "$work/folder"

# sets
py make
pack() { dtrain pack "$@" >/dev/null 2>"$work/log" || fail "pack $*"; }
for set in photos new; do pack $set $set.lmdb --pattern '{label}/{camera}_{n}.ppm'; done
ln -s new.lmdb test.lmdb
pack heads heads.tar --pattern '{pose}/{subject}_{sunglasses}_{n}.ppm'
small_data . 6 10

# configs and runs
cat >configs/photos.yaml <<'YAML'
run: {name: photos}
device: {threads: 1}
data:
  path: photos.lmdb
  fields:
    image: {kind: image, source: ppm, size: [32, 32], normalize: imagenet}
    label: {kind: class}
  split: {val: 0.2, test: 0.2}
model: {name: resnet, depth: 10, width: 8, dropout: 0.1}
train: {global_batch: 8, micro_batch: 8, precision: fp32}
YAML
config=$(small_config .)
sed 's/name: small/name: folds/; s/max_steps: 40/max_steps: 2/; s|dir: ./runs|dir: runs|; s/^eval:.*/eval: {every: 1 epoch}/' "$config" >configs/fusion.yaml
train_run() { dtrain "$@" >/dev/null 2>"$work/log" || fail "train $*"; }
for run in photos a b c; do train_run configs/photos.yaml run.name=$run run.seed=${#run}; done
train_run configs/photos.yaml run.name=resnet50 model.depth=50
train_run configs/photos.yaml run.name=resnet18 model.depth=18 train.max_steps=1
train_run configs/fusion.yaml run.name=fusion
mapfile -t labels < <(py labels)
train_run configs/photos.yaml run.name=findings eval.threshold=f1 "${labels[@]}"

py commands "$SOURCE/docs/how-to" "$work/pages"
for page in "$work"/pages/*; do
    while read -r line; do
        case $line in mpirun*) have_mpi || continue ;; esac
        rm -rf runs/folds # another page's sweep
        eval "${line/#mpirun/mpirun --oversubscribe --bind-to none}" >"$work/out" 2>"$work/log" </dev/null ||
            fail "exit $? of a command of docs/how-to/$(basename "$page").md: $line"
        [ "${line#*-o }" != "$line" ] || [ -s "$work/out" ] || [ "${line#*export}" != "$line" ] ||
            [ "${line#dtrain pack}" != "$line" ] || fail "says nothing: $line"
    done <"$page"
done
echo "$(cat "$work"/pages/* | wc -l) commands and configs of docs/how-to"
