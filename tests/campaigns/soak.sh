#!/usr/bin/env bash
# A small network trained for STEPS steps (75,000) through FAULTS faults (25) that SEED orders: a SIGKILL, a disk that is
# full or slow, a server that answers one request in five with an error, a rank that is lost, a clock that jumps by a month.
# Then weights and the metrics of every step are those of the run that nobody disturbed, whose resident memory stays flat,
# as do the descriptors of each life. Without libfaketime (package faketime) the clock does not jump.
. "${SOURCE:?}/tests/small_run.sh" || exit
need_mpi
RANDOM=${SEED:-1} steps=${STEPS:-75000} faults=${FAULTS:-25}
mkdir "$work/bucket"
py make_table "$work/table.csv" "${SEED:-1}"
exits 0 '' "$DTRAIN" pack "$work/table.csv" "$work/bucket/set.tar" --rows label
config=$work/small.yaml
serve() { # options: a server of the set as $server, at the same port each time
    [ -z "${server:-}" ] || { kill "$server"; wait "$server" 2>/dev/null || true; }
    rm -f "$work/port"
    "$python" "$SOURCE/tests/fault/range_server.py" "$work/bucket" "$work/port" --port "${port:-0}" "$@" &
    server=$! pid=$!
    wait_until test -e "$work/port"
    port=$(cat "$work/port")
}
serve
cat >"$config" <<YAML
run: {name: soak, dir: $work/runs, seed: ${SEED:-1}, reproducible: elastic}
device: {kind: cpu, threads: 1}
data:
  path: http://127.0.0.1:$port/set.tar
  fields: {numbers: {kind: vector, size: 3, source: npy}, label: {kind: class, classes: 2}}
  split: {stratify: label, val: 0.2, test: 0.2}
model: {name: mlp}
train: {epochs: 1000000, max_steps: $steps, global_batch: 16, micro_batch: 8, precision: fp32, optimizer: {name: adamw, lr: 1.0e-4}}
eval: {every: 1000 steps, metrics: [accuracy, loss]}
checkpoint: {every: 500 steps}
metrics: {every: 20 steps, sinks: [terminal, jsonl, report]}
comm: {timeout: 60}
YAML
train run.name=calm

watch_descriptors() { # of process $1: the most of the first second, and of all
    local n most=0 first=0 i=0
    while n=$(ls "/proc/$1/fd" 2>/dev/null | wc -l) && [ "$n" -gt 0 ]; do
        [ "$n" -le "$most" ] || most=$n
        [ $((i++)) -gt 10 ] || first=$most
        nap 0.1
    done
    [ "$most" -le $((first + 8)) ] || echo "descriptors grew from $first to $most" >"$work/grown"
}
one_of() { shift $((RANDOM % $#)); echo "$1"; }
clock=$(ls /usr/lib/*/faketime/libfaketime.so.1 2>/dev/null | head -n 1 || true)
kinds=(kill full slow storm rank ${clock:+clock})
life() { # KIND, steps of this life
    local at=$((1 + RANDOM % $2)) call=$((1 + RANDOM % 300)) rc=0 job=("$DTRAIN" "$config" run.stop_at="$3")
    case $1 in
    kill) job=(env DTRAIN_FAILPOINT=step:$at:kill "${job[@]}") ;;
    full) job=(env DTRAIN_FAILPOINT=io:$call:enospc "${job[@]}") ;;
    slow) job=(env DTRAIN_FAILPOINT=io:$call:slow "${job[@]}") ;;
    storm) serve --faults 0.2 --seed $((RANDOM)) ;;
    rank) job=("${ranks[@]}" 2 sh -c '[ $OMPI_COMM_WORLD_RANK = 0 ] || export DTRAIN_FAILPOINT=step:$0:kill; exec "$@"' "$at" "${job[@]}") ;;
    clock) job=(env LD_PRELOAD="$clock" FAKETIME="$(one_of +30d -30d)" FAKETIME_DONT_FAKE_MONOTONIC=1 "${job[@]}") ;;
    esac
    timeout 600 "${job[@]}" >/dev/null 2>"$work/log" &
    local job_pid=$!
    nap 0.05
    watch_descriptors "$(children $job_pid || echo $job_pid)" &
    wait $job_pid || rc=$?
    wait $! || true
    case $1 in
    kill) [ $rc = 137 ] ;;
    full) [[ $rc = 75 || $rc = 5 ]] ;;
    rank) [ $rc != 0 ] && [ $rc != 124 ] ;;
    slow | storm | clock) [ $rc = 75 ] ;;
    esac || fail "exit $rc in a life with the fault $1"
    [ "$1" != storm ] || serve
    [ "$1" != full ] || ! grep -q 'metrics are lost' "$work/log" || lost=lost # the disk was full for metrics.jsonl, and it said so
    [ ! -e "$work/grown" ] || fail "$(cat "$work/grown") with the fault $1"
}
met=() lost=none
for ((n = 1; n <= faults; n++)); do
    kind=${kinds[$((RANDOM % ${#kinds[@]}))]}
    life "$kind" $((steps / (faults + 1))) $((n * steps / (faults + 1)))
    met+=("$kind")
done
train
py compare_runs "$work/runs/calm" "$work/runs/soak" $lost
echo "$steps steps and ${met[*]}: weights and metrics are equal and memory is flat"
