#!/usr/bin/env bash
# Predicting beside evaluating: the same network (ResNet-18 of half width, fp32, one thread a rank) over the same
# photographs by eval, by predict, and by an ensemble of three runs on one rank and on two. In turn, ROUNDS times; the
# least seconds of each count, start included.
#   tests/bench/bench_predict.sh [BUILD [ROUNDS]]
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
dtrain=$(realpath "${1:-build}/dtrain") rounds=${2:-3} n=1500
[ -z "${SHORT:-}" ] || n=60 rounds=1 # see bench_short.h
. "$source/launch/mpi_env.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export OMP_WAIT_POLICY=passive
"$dtrain" synth photos raw --n "$n" >/dev/null 2>&1
"$dtrain" pack raw set.lmdb >/dev/null 2>&1
for seed in 1 2 3; do
    "$dtrain" "$source/configs/photos.yaml" data.path=set.lmdb data.fields.class.classes=10 data.split.val=null data.split.test=null \
        data.split.stratify=null model.depth=18 train.precision=fp32 train.max_steps=1 device.threads=1 run.seed=$seed run.name=r$seed \
        >log 2>&1 || { tail -3 log; exit 1; }
done
ranks=(mpirun --oversubscribe --bind-to none -np 2)
names=(eval predict "ensemble of 3" "ensemble of 3, 2 ranks")
run() {
    case $1 in
    0) "$dtrain" eval runs/r1 --set set.lmdb ;;
    1) "$dtrain" predict runs/r1 set.lmdb --which latest ;;
    2) "$dtrain" predict runs/r1 runs/r2 runs/r3 set.lmdb --which latest ;;
    3) "${ranks[@]}" "$dtrain" predict runs/r1 runs/r2 runs/r3 set.lmdb --which latest ;;
    esac >out 2>log || { tail -3 log; exit 1; }
}
best=(1e9 1e9 1e9 1e9)
for ((round = 0; round < rounds; round++)); do
    for i in 0 1 2 3; do
        begin=$(date +%s.%N)
        run $i
        best[i]=$(awk -v a="$begin" -v b="$(date +%s.%N)" -v c="${best[i]}" 'BEGIN { s = b - a; print s < c ? s : c }')
    done
done
for i in 0 1 2 3; do
    awk -v s="${best[i]}" -v n="$n" -v name="${names[i]}" 'BEGIN { printf "%-24s %7.2f s %8.0f photographs/s\n", name, s, n / s }'
done
awk -v e="${best[0]}" -v p="${best[1]}" -v a="${best[2]}" -v b="${best[3]}" 'BEGIN {
    printf "predict: %.2f of eval'"'"'s rate; two ranks: %.2f times one\n", e / p, a / b }'
