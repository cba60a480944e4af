#!/usr/bin/env bash
# make.sh OUT.tar.gz: sets and small runs of each kind, as the build in $DTRAIN writes them, with what it says of them in
# expected/. Made once for a release whose formats changed; the file of a release is never made again, since
# test_formats.sh reads each for as long as its major version lasts.
set -euo pipefail
: "${SOURCE:?}" "${DTRAIN:?}"
out=$(realpath -m "$1")
. "$SOURCE/launch/mpi_env.sh"
export OMP_WAIT_POLICY=passive
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# a copy: the runs of a sweep note the path of the program
mkdir "$work/bin" "$work/fixture" && cp "$(dirname "$(realpath "$DTRAIN")")"/{dtrain,*.so} "$work/bin"
export XDG_CACHE_HOME=$work/cache TMPDIR=$work PATH=$work/bin:$PATH
cd "$work/fixture"

dtrain synth biometric "$work/raw" --subjects 6 --impressions 10
for set in set.lmdb set.tar; do dtrain pack "$work/raw" $set --where 'finger is not null' --resize 16 --encode png; done
cp "$SOURCE/tests/compat/small.yaml" .
mkdir expected

stopped() { # NAME WORD …: a run that was stopped half-way
    local code=0
    "${ranks[@]}" dtrain small.yaml run.name="$1" run.stop_at=24 "${@:2}" >/dev/null || code=$?
    [ $code = 75 ]
    echo "run.name=$1 ${*:2}" >"expected/$1.words"
    dtrain eval "runs/$1" --which latest >"expected/$1.eval"
    cp -r runs "$work/runs" # its end, in a copy
    "${ranks[@]}" dtrain small.yaml run.name="$1" run.dir="$work/runs" "${@:2}" >"expected/$1.end"
    rm -r "$work/runs"
}
ranks=()
stopped adamw train.ema=0.9
stopped sgd train.optimizer.name=sgd train.optimizer.momentum=0.9 data.path=set.tar
stopped adafactor train.optimizer.name=adafactor train.ema=0.9
ranks=(mpirun --oversubscribe --bind-to none -np 2)
stopped sharded train.shard=optimizer
ranks=()

dtrain small.yaml run.name=ended data.path=set.tar "metrics.sinks=[jsonl, report]" >expected/ended.out
dtrain eval runs/ended --calibrate >/dev/null
for kind in csv jsonl npy; do dtrain predict runs/ended --split test -o expected/ended.$kind --logits; done
dtrain quantize runs/ended --split val -o runs/int8 >/dev/null
dtrain eval runs/int8 >expected/int8.eval
dtrain small.yaml run.name=listed data.split.file=runs/ended/split.csv data.split.val= data.split.test= >/dev/null
dtrain sweep small.yaml run.name=folds train.max_steps=16 data.split.folds=3 data.split.fold=0..2 data.split.test= >expected/folds.table

find runs \( -name log -o -name lock -o -name report.html \) -delete
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=2026-01-01 -cz -f "$out" .
