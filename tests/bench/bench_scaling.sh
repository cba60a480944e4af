#!/usr/bin/env bash
# What `dtrain check --ranks` predicts beside what steps take: ResNet-18 on 1 to 8 ranks of this machine, and on 2 to 4
# hosts of network namespaces (tests/cluster/hosts.sh; as root), one rank of one thread each, at several link rates.
# `dtrain comm bench --save` measures the links; hosts here share this machine's cores. From the repository:
#   tests/bench/bench_scaling.sh
#   RANKS="2 8" HOSTS="4" RATES="100mbit 1gbit" ROUNDS=3 STEPS=10 tests/bench/bench_scaling.sh
# Each line has the median step of its job; predictions are made in turn with jobs. With NODE_MS=50 hosts compute nothing:
# the gradients of ResNet-18 come from nodes that sleep so long, so that other work on this machine counts little.
SOURCE=$(realpath "${SOURCE:-.}") BUILD=$(realpath "${BUILD:-build}") DTRAIN=$(realpath "${DTRAIN:-build/dtrain}")
[ -z "${SHORT:-}" ] || RANKS=${RANKS:-2} HOSTS=${HOSTS-2} RATES=${RATES:-1gbit} ROUNDS=1 STEPS=3 SIDE=64
steps=${STEPS:-10} batch=16 micro=2
. "$SOURCE/tests/bench/hosts_net.sh"

predicted() { # RANKS WORD …: seconds of a step
    "$DTRAIN" check "$work/net.yaml" --ranks "$1" "${@:2}" 2>"$work/log" |
        awk -v n="$1" 'NF > 11 && $1 == n {print $4 / 1000}'
}
measured() { sed -n 's/.*"kind":"step".*"seconds":{"step":\([0-9.]*\),.*/\1/p' "$1" | tail -n +3 | median; }
beside() { # NAME PREDICTED MEASURED
    awk -v n="$1" -v p="$2" -v m="$3" 'BEGIN {printf "%-28s predicted %7.3f s  measured %7.3f s  %+5.1f %%\n", n, p, m, 100 * (p / m - 1)}'
}

for _ in $(seq "${ROUNDS:-2}"); do
    for n in ${RANKS-1 2 4 8}; do
        p=$(predicted "$n")
        rm -rf "$work/own"
        if [ "$n" = 1 ]; then "$DTRAIN" "$work/net.yaml"; else mpi "$n" "$DTRAIN" "$work/net.yaml"; fi \
            >"$work/out" 2>"$work/log" || fail "$n ranks"
        beside "$n ranks" "$p" "$(measured "$work/own/bench/metrics.jsonl")"
    done
done
[ -n "${HOSTS-2 4}" ] || exit 0
need_hosts
cores=$(nproc)
for n in ${HOSTS-2 4}; do
    rm -f "$work"/key*
    make_hosts "$n"
    for rate in ${RATES:-100mbit 400mbit 1gbit}; do
        slow_links "$rate" $(seq "$n")
        hosts_job "$n" "$DTRAIN" comm bench --size 16 --save "$work/own/links.yaml"
        ends_within 120
        [ $rc = 0 ] || fail "comm bench: exit $rc"
        sed "s/{what/{cores: $(awk "BEGIN {print $cores / $n}"), what/" "$work/host1/own/links.yaml" >"$work/links.yaml"
        gbit=$(sed -n 's/.*host_gbit_s: \([0-9.]*\).*/\1/p' "$work/links.yaml")
        if [ -n "${NODE_MS:-}" ]; then
            hosts_job "$n" "$BUILD/test_comm_mpi" model "$gbit" "$NODE_MS"
            ends_within 300
            [ $rc = 0 ] || fail "test_comm_mpi: exit $rc"
            sed "s/^/$n hosts, $rate ($gbit Gbit\/s)  /" "$work/out"
            continue
        fi
        for _ in $(seq "${ROUNDS:-2}"); do
            p=$(predicted "$n" --fabric "$work/links.yaml" device.threads=1)
            rm -rf "$work"/host1/own/bench
            hosts_job "$n" "$DTRAIN" "$work/net.yaml" device.threads=1
            ends_within 900
            [ $rc = 0 ] || fail "$n hosts: exit $rc"
            beside "$n hosts, $rate" "$p" "$(measured "$work/host1/own/bench/metrics.jsonl")"
        done
    done
    for i in $(seq "$n"); do stop_host "$i"; done
done
