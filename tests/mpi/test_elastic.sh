#!/usr/bin/env bash
# run.reproducible=elastic: 200 steps give the same model.safetensors on 1, 2, 3, 4 and 8 ranks, and
# when a run is stopped and resumed at other world sizes; in fp32, and in bf16 where the CPU has it.
. "${SOURCE:?}/tests/small_run.sh" || exit
command -v mpirun >/dev/null || { echo "skipped: no mpirun"; exit 77; }
[ -e "$BUILD/dtrain_mpi.so" ] || { echo "skipped: built without MPI"; exit 77; }

small_data "$work"
config=$(small_config "$work")
steps=${STEPS:-200}
common=(run.reproducible=elastic train.max_steps="$steps" checkpoint.every="100000 steps")

check() { # precision label run: its hash must equal the reference
    local got
    got=$(hash "$work/runs/$3")
    echo "$1 $2: $got"
    [ -n "${reference:-}" ] || reference=$got
    [ "$got" = "$reference" ] || { echo "FAILED: $1 $2 differs from $reference"; exit 1; }
}

precisions=(fp32)
grep -q avx512_bf16 /proc/cpuinfo && precisions+=(bf16)
for precision in "${precisions[@]}"; do
    reference=
    for np in 1 2 3 4 8; do
        mpi $np "$DTRAIN" "$config" "${common[@]}" train.precision=$precision run.name=$precision-np$np \
            >/dev/null 2>"$work/log" || { cat "$work/log"; exit 1; }
        check $precision "np=$np" $precision-np$np
    done
    # stop twice on the way, go on with another number of ranks
    name=$precision-changing
    at=0
    for np in 3 1 4; do
        at=$((at + steps / 3))
        rc=0
        mpi $np "$DTRAIN" "$config" "${common[@]}" train.precision=$precision run.name=$name \
            run.stop_at=$([ $np = 4 ] && echo 1000000 || echo $at) >/dev/null 2>"$work/log" || rc=$?
        [ $rc = 0 ] || [ $rc = 75 ] || { cat "$work/log"; exit 1; }
    done
    check $precision "np=3, 1, 4 in turn" $name
done
