#!/usr/bin/env bash
# Collectives, buckets and the tree on 1 to 4 ranks; then what happens to a job that loses a rank.
set -euo pipefail
program=$BUILD/test_comm_mpi
command -v mpirun >/dev/null || { echo "skipped: no mpirun"; exit 77; }
[ -f "$BUILD/dtrain_mpi.so" ] || { echo "skipped: built without MPI"; exit 77; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# Open MPI's own lock orders, and what it keeps until the process ends, are not ours to judge
export TSAN_OPTIONS="${TSAN_OPTIONS:-}:detect_deadlocks=0" ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

mpi() { # ranks, arguments
    local np=$1
    shift
    timeout 120 mpirun --oversubscribe --bind-to none -np "$np" "$program" "$@"
}
fail() {
    echo "FAILED: $*" >&2
    cat "$tmp"/err >&2 || true
    exit 1
}

for np in 1 2 3 4; do
    mpi "$np" all 2>"$tmp/err" | grep -x "all collectives agree on $np ranks" || fail "np=$np"
done

# without a launcher: alone, no MPI; in a Slurm step without PMI: refused, before or after MPI starts
clean=(env -u OMPI_COMM_WORLD_RANK -u OMPI_COMM_WORLD_SIZE -u PMIX_RANK -u PMI_RANK -u PMI_SIZE)
[ "$("${clean[@]}" "$program" name)" = "self 1" ] || fail "a lone process is not 'self'"
rc=0
"${clean[@]}" SLURM_PROCID=1 SLURM_STEP_ID=0 SLURM_NTASKS=4 "$program" name 2>"$tmp/err" || rc=$?
[ $rc = 2 ] && grep -q "srun --mpi=pmix" "$tmp/err" || fail "singletons under srun: exit $rc"

# a lost rank: seconds, not minutes, and a line that names it
lost() { # mode, expected message, allowed exit codes
    local rc=0 begin=$SECONDS
    mpi 3 "$1" 1 >"$tmp/out" 2>"$tmp/err" || rc=$?
    [ $((SECONDS - begin)) -le 20 ] || fail "$1: took $((SECONDS - begin)) s"
    grep -q "$2" "$tmp/err" "$tmp/out" || fail "$1: nothing names rank 1"
    case " $3 " in *" $rc "*) ;; *) fail "$1: exit $rc, not one of $3" ;; esac
    echo "$1: exit $rc after $((SECONDS - begin)) s: $(grep -h -m1 "$2" "$tmp/err" "$tmp/out")"
}
lost stop "rank 1 on $(uname -n | cut -c1-63) did not take part in the all-reduce" 240
lost kill "rank 1 " "137 240"
