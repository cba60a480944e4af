#!/usr/bin/env bash
# What configs/acoustic.yaml and configs/pose.yaml reach as they are, against what docs/how-to states: the digits of
# FSDD (the tar that the config names; 0.9 of the test split must be right), the angles of 12,000 invented heads (mean
# absolute error of 2 degrees at most). Prints a line for each; fails if one falls short. Half a minute for the
# digits, six minutes for the heads, on two cores.
#   tests/bench/bench_quality.sh [BUILD [FSDD.tar [key=value …]]]
set -euo pipefail
build=${1:-build} fsdd=${2:-../shared/data/fsdd.tar}
shift $(($# < 2 ? $# : 2))
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0 heads=${HEADS:-12000} short=()
[ -z "${SHORT:-}" ] || heads=200 short=(train.max_steps=2) # see bench_short.h

judge() { # name, metric, awk condition on it
    local value
    value=$(grep -o "\"$2\": *[-0-9.e]*" "$work/out" | tail -1 | sed 's/.*: *//')
    if [ -n "$value" ] && [ -n "${SHORT:-}" ]; then
        echo "$1: $2 $value, not judged"
    elif [ -n "$value" ] && awk -v x="$value" "BEGIN { exit !($3) }"; then
        echo "$1: $2 $value"
    else
        echo "$1: $2 ${value:-missing} falls short of what is stated ($3)"; failed=1
    fi
}

run() { # config, set, key=value …
    local config=$1 set=$2
    shift 2
    "$build/dtrain" "$source/configs/$config.yaml" data.path="$set" run.dir="$work/runs" ${short[@]+"${short[@]}"} "$@" >"$work/out" 2>"$work/log" || {
        tail -5 "$work/log"; exit 1; }
}

if [ -e "$fsdd" ]; then
    "$build/dtrain" pack "$fsdd" "$work/fsdd.lmdb" --pattern '{digit}_{speaker}_{index}.wav' >/dev/null 2>&1
    run acoustic "$work/fsdd.lmdb" "$@"
    judge acoustic accuracy 'x >= 0.9'
else
    echo "acoustic: skipped: no $fsdd"
fi
"$build/dtrain" synth pose "$work/pose" --n $heads >/dev/null 2>&1
"$build/dtrain" pack "$work/pose/images" "$work/pose-{000000..000003}.tar" --join "$work/pose/pose.csv" >/dev/null 2>&1
run pose "$work/pose-{000000..000003}.tar" "$@"
judge pose mae 'x <= 2'
exit $failed
