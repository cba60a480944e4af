#!/usr/bin/env bash
# What this machine's program (BUILD, default build) and the one for arm64 (build-arm, run by qemu-user) make of the same:
#   to the byte   synthetic data, but for last bits of lens and biometric where the C libraries are of different releases;
#                 shards, LMDBs, indexes; exported weights of a run of either side; samples and columns of predictions
#   1e-5          probabilities from the same weights
# A run of one side goes on at the other with a warning, or, under run.reproducible: elastic, ends in one line.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=${ARM_ROOT:-$PWD/.cache/arm-root} arm_build=${ARM_BUILD:-$PWD/build-arm}
command -v qemu-aarch64-static >/dev/null || { echo "skipped: arm/across.sh: no qemu-aarch64-static (package qemu-user-static)"; exit 77; }
[ -e "$root/complete" ] || { echo "skipped: arm/across.sh: no root of arm64 in $root (tests/arm/run.sh makes it)"; exit 77; }
[ -x "$arm_build/dtrain" ] || { echo "skipped: arm/across.sh: no $arm_build/dtrain (tests/arm/run.sh builds it)"; exit 77; }
export SOURCE=$PWD BUILD=${BUILD:-$PWD/build}
export DTRAIN=$BUILD/dtrain
. tests/small_run.sh
printf '#!/bin/sh\nexec qemu-aarch64-static -L %s -E LD_LIBRARY_PATH=%s %s/dtrain "$@"\n' "$root" "$arm_build" "$arm_build" >"$work/arm"
printf '#!/bin/sh\nexec %s "$@"\n' "$DTRAIN" >"$work/x86"
chmod +x "$work/arm" "$work/x86"

# -- data sets
for kind in biometric lens acoustic pose photos; do
    [ $kind = biometric ] && few=(--subjects 3 --impressions 2) || few=(--n 12)
    for side in x86 arm; do exits 0 '' "$work/$side" synth $kind "$work/$side-$kind" "${few[@]}"; done
    case $kind in
    lens | biometric) # the last bit is the C library's
        py compare_values "$work/x86-$kind" "$work/arm-$kind" || fail "synth $kind: other values" ;;
    *) diff -r "$work/x86-$kind" "$work/arm-$kind" >/dev/null || fail "synth $kind: other bytes" ;;
    esac
done
for side in x86 arm; do
    exits 0 '' "$work/$side" pack "$work/x86-biometric" "$work/$side-set.tar" --quality
    exits 0 '' "$work/$side" pack "$work/x86-biometric" "$work/$side-set.lmdb"
done
for file in set.tar set.tar.index set.lmdb/data.mdb set.lmdb/data.mdb.index; do
    cmp "$work/x86-$file" "$work/arm-$file" || fail "$file: other bytes"
done

# -- runs: each side begins one, and both go on with it
small_data "$work"
config=$(small_config "$work")
steps=("metrics.every=1 steps" train.epochs=1 train.max_steps=2 "eval.every=1000 steps")
other() { [ "$1" = x86 ] && echo arm || echo x86; }
for side in x86 arm; do
    for way in resume elastic; do
        exits 75 '' "$work/$side" "$config" "${steps[@]}" run.name=$side-$way run.reproducible=$way run.stop_at=1
    done
    far=$(other $side) run=$work/runs/$side-resume
    exits 0 '' "$work/$far" ckpt verify "$run"
    for at in $side $far; do exits 0 '' "$work/$at" export "$run" "$work/$at.safetensors"; done
    cmp "$work/x86.safetensors" "$work/arm.safetensors" || fail "weights of $side's run: other bytes"
    for at in $side $far; do
        exits 0 '' "$work/$at" predict "$run" "$work/small.lmdb" --which latest --split val -o "$work/$at.jsonl"
    done
    py compare_predictions "$work/x86.jsonl" "$work/arm.jsonl" || fail "other predictions from $side's weights"
    exits 2 "this run began on 'cpu .* here is 'cpu .*: run.reproducible=elastic promises equal bits" \
        "$work/$far" "$config" "${steps[@]}" run.name=$side-elastic run.reproducible=elastic
    [ "$(grep -c error "$work/log")" = 1 ] || fail "$side's elastic run at $far: more than one line"
    exits 0 "this run began on 'cpu .* and continues with 'cpu .*: bits will differ" \
        "$work/$far" "$config" "${steps[@]}" run.name=$side-resume
done
echo "arm64 and this machine: passed"
