#!/bin/bash
# Every custom kernel on the fake device with its threads in 1,000 random orders, and none races (fake_fibers.c): the
# programs that look for races, one after the other, and the sums over them. For the night: FULL=1.
set -eu
[ -n "${FULL:-}" ] || { echo "skipped: it takes a core for ten minutes; FULL=1 runs it"; exit 77; }
unset FULL # the programs' own counts stay small
orders=${ORDERS:-1000}
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT
cd "$SOURCE"
for test in fake_cuda kernels_cuda commit_cuda ops_normed_cuda ops_augment_cuda ops_custom_cuda ops_dnnl_cuda trainer_cuda; do
    more=2 # some kernels run only twice or thrice, and a launch takes a quarter
    case $test in ops_augment_cuda | ops_custom_cuda) more=1 ;; esac
    FAKE_CUDA_ORDERS=$((more * orders)) "$BUILD/test_$test" >"$tmp/$test" 2>&1 || { tail -n 20 "$tmp/$test"; echo "FAILED: test_$test"; exit 1; }
done
awk -v orders="$orders" '/ orders of a block: / {n[$NF] += $1}
    END {for (k in n) {kernels++; if (n[k] < orders) {few++; print n[k], k}}
         print kernels " kernels, " few + 0 " of them in fewer than " orders " orders"; exit few || !kernels}' "$tmp"/*
