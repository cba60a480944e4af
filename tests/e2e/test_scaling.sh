#!/usr/bin/env bash
# dtrain check --ranks: the table, measured here and from a rate; buckets hide communication behind backward, and larger
# ones less; fabrics by name and by file; the plot. What the model of a fabric itself does is in test_bucket.c.
. "${SOURCE:?}/tests/small_run.sh" || exit
small_data "$work"
config=$(small_config "$work" 6 large)
check() { "$DTRAIN" check "$config" "$@" >"$work/out" 2>"$work/log" || fail "exit $?: $*"; }
cell() { awk -v w="$1" -v c="$2" 'NF > 11 && $1 == w {print $c; exit}' "$work/out"; }
holds() { awk "BEGIN {exit !($1)}" || { tail -n 15 "$work/out"; fail "not so: $1"; }; }

# -- measured here
check --ranks 1..4 train.max_steps=2
[ "$(grep -cE '^ +[124] +1 +16 ' "$work/out")" = 3 ] || fail "$(tail -n 6 "$work/out")"
holds "$(cell 1 5) == 0 && $(cell 2 4) > 0 && $(cell 4 6) < 1"
[ ! -e "$work/runs" ] || fail "a run directory"

# -- 2 MB of gradients over 1 Gbit/s take 10 times backward, or hide behind it
check --ranks 2,16 --fabric ethernet-1g --rate 4 comm.bucket=64
hidden=$(cell 2 5) batch=$(cell 16 3)
check --ranks 2 --fabric ethernet-1g --rate 4 comm.bucket=4194304
holds "$hidden > 0 && $(cell 2 5) > 2 * $hidden"
check --ranks 2 --fabric ethernet-1g --rate 4000 comm.bucket=64
holds "$(cell 2 5) > 5 * $hidden"
[ "$batch" = 32 ] || fail "a batch of $batch for 16 ranks"
# the weights that train.shard sends behind the commit are hidden by nothing: 1 MB of them at 1 Gbit/s
check --ranks 2 --fabric ethernet-1g --rate 4 comm.bucket=64 train.shard=optimizer
holds "$(cell 2 5) > $hidden + 4"
# more samples a step than there are
check --ranks 2..256 --fabric ethernet-1g --rate 4
grep -q 'warning: a step of [0-9]* ranks takes [0-9]* samples, and there are [0-9]* to train on' "$work/log" ||
    fail "no word about the samples"

# -- GPUs, dollars, a batch that is too large, the plot
printf 'machine,region,vcpus,gpus,usd,spot_usd,samples_per_s\nbig,x,8,B:8,8000,,\n' >"$work/own.csv"
check --ranks 8..4096 --fabric 8x400g-nvlink4,1x100g-nvlink3 --rate B:8=80 --prices "$work/own.csv" --plot "$work/plot.svg"
[ "$(grep -c '^ *1024 ' "$work/out")" = 2 ] || fail "$(cat "$work/out")"
holds "$(cell 1024 6) > 0.95 && $(cell 8 7) < 80.01 && $(cell 8 7) > 70"
grep -q '^ *4096 .*8192! ' "$work/out" && grep -q 'beyond a batch of 4096 accuracy is at risk.*arXiv' "$work/out" || fail "no word about the batch"
# 720 samples at 10 a second and GPU, 1000 dollars an hour each: 2.5 hours on 8 of them come to 0.0025 h
holds "$(cell 8 12) > 0"
[ "$(grep -c '<polyline data-label' "$work/plot.svg")" = 2 ] || fail "not two curves"
"$python" -c "import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])" "$work/plot.svg" || fail "no SVG"

# -- fabrics of one's own
echo 'ours: {ranks_per_host: 2, host_gbit_s: 10, latency_us: 20}' >"$work/own.yaml"
check --ranks 4 --fabric "$work/own.yaml" --rate 10
[ "$(cell 4 2)" = 2 ] || fail "$(cell 4 2) hosts"
refused_check() { # TEXT WORD …
    local rc=0
    "$DTRAIN" check "$config" "${@:2}" >/dev/null 2>"$work/log" || rc=$?
    [ $rc = 2 ] && grep -qF -- "$1" "$work/log" || fail "exit $rc, not 2 with: $1"
}
echo 'ours: {ranks_per_host: 2, host_gbits: 10}' >"$work/own.yaml"
refused_check "own.yaml:1:39: 'host_gbits' is no key of a fabric" --ranks 2 --fabric "$work/own.yaml"
echo 'ours: {ranks_per_host: 2, gpus: true, host_gbit_s: 10}' >"$work/own.yaml"
refused_check "fabric 'ours' needs ranks_per_host, host_gbit_s, and gpu_gb_s" --ranks 2 --fabric "$work/own.yaml"
refused_check "has no 'avian'" --ranks 2 --fabric avian
refused_check "'x' is not a number of ranks" --ranks 8..x
refused_check "--plot is for --ranks" --plot "$work/plot.svg"
refused_check "give --rate, the samples/s of one rank" --ranks 2 data.path="$work/nothing.lmdb"
