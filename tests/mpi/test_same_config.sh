#!/usr/bin/env bash
# Ranks that were started with other words, or with other settings of the library, do not train as if they were alike.
. "${SOURCE:?}/tests/small_run.sh" || exit
need_mpi

small_data "$work"
config=$(small_config "$work")
two() { # name, expected exit code, words of both, --, command of rank 1 before dtrain, --, words of rank 1
    local name=$1 want=$2 rc=0 both=() first=()
    shift 2
    while [ "$1" != -- ]; do both+=("$1"); shift; done; shift
    while [ "$1" != -- ]; do first+=("$1"); shift; done; shift
    timeout 300 "${ranks[@]}" 1 "$DTRAIN" "$config" run.name="$name" train.max_steps=2 "${both[@]}" : \
        -np 1 env "${first[@]}" "$DTRAIN" "$config" run.name="$name" train.max_steps=2 "${both[@]}" "$@" \
        >"$work/out" 2>"$work/log" || rc=$?
    [ "$rc" = "$want" ] || fail "$name: exit $rc, not $want"
}

two lr 2 -- -- train.optimizer.lr=0.5
grep -q "train.optimizer.lr is 0.5 on rank 1 (.*) and 1.0e-3 on rank 0: start all ranks with the same config" \
    "$work/log" || fail "does not say which rank, key and values"
[ -z "$(ls "$work/runs/lr/checkpoints")" ] || fail "a run of two configs has a checkpoint"
two auto 2 train.precision=auto -- -- train.precision=fp32
grep -q "train.precision is fp32 on rank 1 (.*) and auto on rank 0" "$work/log" || fail "auto counts as fp32"
two length 2 train.micro_batch=8 -- -- train.global_batch=16 # too short for two ranks on rank 0 alone: none waits
grep -q "train.global_batch is 16 on rank 1 (.*) and 8 on rank 0" "$work/log" || fail "lengths differ"
two teacher 2 -- -- train.teacher="$work/none"
grep -q "train.teacher is .*/none on rank 1 (.*) and none on rank 0" "$work/log" || fail "a teacher on one rank"
two bucket 2 -- -- comm.bucket=512 # decides what ranks exchange
grep -q "comm.bucket is 512 on rank 1 (.*) and auto on rank 0" "$work/log" || fail "buckets of other sizes"
two aside 0 -- -- metrics.every="2 steps" # changes no number

# another build of the same version
mkdir "$work/bin"
cp "$DTRAIN" "$BUILD/libdtrain_openmp.so" "$BUILD/dtrain_mpi.so" "$work/bin"
echo >>"$work/bin/dtrain"
for want in "2 elastic" "0 off"; do
    two build "${want% *}" run.reproducible="${want#* }" run.resume=never run.name="build-$want" -- \
        sh -c 'shift; exec "$0" "$@"' "$work/bin/dtrain" --
    grep -qE "computes with '.*dtrain .*\(build [0-9a-f]{8}\)', but rank 1 on .* with '" "$work/log" || fail "another build is not noticed"
done

# other data under the same path: another set, a folder with one file less
if unshare --mount true 2>/dev/null; then
    data() { # name, PATH of the data, its place on rank 1, text
        two "$1" 2 data.path="$2" -- unshare --mount sh -c 'mount --bind "$0" "$1" && shift && exec "$@"' "$3" "$2" --
        grep -qE "error: rank 1 on .* has other data than rank 0 on .*: $4: copy the data set to every host" "$work/log" ||
            fail "$1: does not say what differs"
    }
    mkdir "$work/more"
    small_data "$work/more" 6 6
    data set "$work/small.lmdb" "$work/more/small.lmdb" "lmdb .*: 72 records, .*; rank 0: lmdb .*: 60 records, .*"
    cp -r "$work/raw" "$work/one"
    rm "$(find "$work/one" -name '*.BMP' | sort | head -n 1)"
    data file "$work/raw" "$work/one" ".* 59 records, .*; rank 0: .* 60 records, .*"
fi

for name in ONEDNN_DEFAULT_FPMATH_MODE DNNL_CPU_ISA_HINTS; do
    two "$name" 2 run.reproducible=elastic -- "$name=ANY" --
    grep -q "computes with '.*', but rank 1 on .* with '.*$name=ANY" "$work/log" || fail "$name is not compared"
done
echo "ranks compare their configs and their environments"
