#!/usr/bin/env bash
# Collectives, buckets and the tree on 1 to 4 ranks; then what happens to a job that loses a rank.
. "${SOURCE:?}/tests/small_run.sh" || exit
program=$BUILD/test_comm_mpi
need_mpi

job() { # ranks, arguments
    local np=$1
    shift
    timeout 600 "${ranks[@]}" "$np" "$program" "$@"
}

for np in 1 2 3 4; do
    job "$np" all 2>"$work/log" | grep -x "all collectives agree on $np ranks of 1 host" || fail "np=$np"
done

# without a launcher: alone, no MPI; in a Slurm step without PMI: refused, before or after MPI starts
clean=(env -u OMPI_COMM_WORLD_RANK -u OMPI_COMM_WORLD_SIZE -u PMIX_RANK -u PMI_RANK -u PMI_SIZE)
[ "$("${clean[@]}" "$program" name)" = "self 1" ] || fail "a lone process is not 'self'"
rc=0
"${clean[@]}" SLURM_PROCID=1 SLURM_STEP_ID=0 SLURM_NTASKS=4 "$program" name 2>"$work/log" || rc=$?
[ $rc = 2 ] && grep -q "srun --mpi=pmix" "$work/log" || fail "singletons under srun: exit $rc"

# a lost rank: seconds, not minutes, and a line that names it
lost() { # mode, expected message, allowed exit codes
    local rc=0 begin=$SECONDS
    job 3 "$1" 1 >"$work/out" 2>"$work/log" || rc=$?
    [ $((SECONDS - begin)) -le 120 ] || fail "$1: took $((SECONDS - begin)) s"
    grep -q "$2" "$work/log" "$work/out" || fail "$1: nothing names rank 1"
    case " $3 " in *" $rc "*) ;; *) fail "$1: exit $rc, not one of $3" ;; esac
    echo "$1: exit $rc after $((SECONDS - begin)) s: $(grep -h -m1 "$2" "$work/log" "$work/out")"
}
lost stop "rank 1 on $(uname -n | cut -c1-63).* did not take part in the all-reduce" 240
lost kill "rank 1 " "137 240"
lost late "the barrier.*destroyed" 240
