#!/usr/bin/env bash
# run.reproducible=elastic on the full-size fusion network: the hash of model.safetensors after STEPS
# steps on 1, 2, 3, 4 and 8 ranks, in fp32 and, where the CPU has it, bf16.
#   STEPS=200 NPS="1 2 3 4 8" tests/bench/bench_elastic.sh [BUILD]
# Needs datasets/biometric.lmdb (launch/quickstart.sh makes it). With two cores 200 steps take about half
# an hour a precision.
set -euo pipefail
cd "$(dirname "$0")/../.."
. launch/mpi_env.sh
build=${1:-build}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

short=()
[ -z "${SHORT:-}" ] || STEPS=2 NPS="1 2" short=(train.global_batch=2 train.micro_batch=1 data.split.val=0 data.split.test=0) # see bench_short.h
precisions=(fp32)
[ -n "${SHORT:-}" ] || [[ "$("$build/dtrain" info)" != *"bf16 native"* ]] || precisions+=(bf16)
for precision in "${precisions[@]}"; do
    for np in ${NPS:-1 2 3 4 8}; do
        begin=$(date +%s)
        OMP_WAIT_POLICY=passive mpi $np "$build/dtrain" configs/fusion.yaml run.dir="$work" run.name=$precision-$np \
            run.reproducible=elastic train.precision=$precision train.max_steps="${STEPS:-20}" \
            eval.every="100000 steps" checkpoint.every="100000 steps" ${short[@]+"${short[@]}"} >/dev/null 2>"$work/log" || { tail -5 "$work/log"; exit 1; }
        printf '%s np=%d: %s in %d s\n' $precision $np \
            "$(sha256sum <"$work/$precision-$np"/checkpoints/step-*/model.safetensors | cut -c1-16)" \
            "$(($(date +%s) - begin))"
    done
done
