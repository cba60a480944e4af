#!/usr/bin/env bash
# ResNet-18 on four hosts of network namespaces (tests/cluster/hosts.sh), one rank of one thread each, at several link
# rates: dtrain beside PyTorch's DDP over gloo, in alternation, since the hosts share this machine's cores. Prints, for
# each rate and variant, medians over rounds: seconds of a step, of communication that backward did not hide, and
# gloo's step divided by dtrain's. As root, from the repository:
#   PYTHON=VENV/bin/python tests/bench/bench_hosts.sh
#   RATES="none 400mbit" ROUNDS=3 STEPS=8 VARIANTS="comm.bucket=auto comm.gradient_dtype=bf16,comm.bucket=4096" …
# With NODE_MS=50 nothing is computed: the gradients of ResNet-18 come from nodes that sleep so long, so that other work
# on this machine counts little.
# Without a PYTHON that has torch, dtrain alone.
SOURCE=$(realpath "${SOURCE:-.}") BUILD=$(realpath "${BUILD:-build}") DTRAIN=$(realpath "${DTRAIN:-build/dtrain}")
[ -z "${SHORT:-}" ] || RATES=${RATES:-1gbit} ROUNDS=1 STEPS=3 SIDE=64 MICRO=1 # see bench_short.h
steps=${STEPS:-8} micro=${MICRO:-4}
batch=$((4 * micro))
. "$SOURCE/tests/bench/hosts_net.sh"
need_hosts
read -ra variants <<<"${VARIANTS:-comm.bucket=auto}"
classes=$(ls "$work/raw" | grep -vc '\.' || true)
python=${PYTHON:-python3}
"$python" -c 'import torch, torchvision' 2>/dev/null || python=
make_hosts 4

ours() { # variant: "STEP COMM", medians of its steps
    local words
    IFS=, read -ra words <<<"$1"
    rm -rf "$work"/host1/own/*
    hosts_job 4 "$DTRAIN" "$work/net.yaml" device.threads=1 "${words[@]}"
    ends_within 600
    [ $rc = 0 ] || fail "$1: exit $rc"
    sed -n 's/.*"step":\([0-9.]*\),"data.*"comm":\([0-9.e-]*\),"other.*/\1 \2/p' "$work/host1/own/bench/metrics.jsonl" |
        tail -n +3 >"$work/steps"
    echo "$(cut -d' ' -f1 "$work/steps" | median) $(cut -d' ' -f2 "$work/steps" | median)"
}
gloo() { # SCRIPT WORD …: what rank 0 prints
    local i pids=()
    for i in 4 3 2 1; do
        on "$i" env MASTER_ADDR=10.77.0.1 MASTER_PORT=29500 RANK=$((i - 1)) WORLD_SIZE=4 GLOO_SOCKET_IFNAME=eth0 \
            OMP_NUM_THREADS=1 "$python" "$SOURCE/tests/bench/$1" "${@:2}" >"$work/gloo$i" 2>"$work/log" &
        pids+=($!)
    done
    wait "${pids[@]}" || fail "gloo"
    cat "$work/gloo1"
}
asleep() {
    hosts_job 4 "$BUILD/test_comm_mpi" bench "$NODE_MS" 1024
    ends_within 600
    [ $rc = 0 ] || fail "test_comm_mpi: exit $rc"
    sed "s/^/$1  /" "$work/out"
    [ -z "$python" ] || echo "$1  gloo: step, exposed: $(gloo peer_overlap.py "$NODE_MS") s"
}

for rate in ${RATES:-none 1gbit 400mbit 200mbit}; do
    slow_links "${rate#none}" 1 2 3 4
    rm -f "$work"/result.*
    for _ in $(seq "${ROUNDS:-3}"); do
        if [ -n "${NODE_MS:-}" ]; then
            asleep "$rate"
            continue
        fi
        for v in "${variants[@]}"; do ours "$v" >>"$work/result.$v"; done
        [ -z "$python" ] || gloo peer_ddp.py "$steps" "$micro" "$side" "${classes:-10}" | sed -n "s/^step //p" >>"$work/result.gloo"
    done
    [ -z "${NODE_MS:-}" ] || continue
    theirs=$([ -z "$python" ] || median <"$work/result.gloo")
    for v in "${variants[@]}"; do
        mine=$(cut -d' ' -f1 "$work/result.$v" | median)
        echo "$rate  $v: step $mine s, exposed $(cut -d' ' -f2 "$work/result.$v" | median) s" \
            "${theirs:+gloo $theirs s, $(awk "BEGIN {printf \"%.2f\", $theirs / $mine}") times}"
    done
done
