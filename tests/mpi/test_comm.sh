#!/usr/bin/env bash
# Collectives, buckets and the tree on 1 to 4 ranks; then what happens to a job that loses a rank.
. "${SOURCE:?}/tests/small_run.sh" || exit
program=$BUILD/test_comm_mpi
need_mpi

job() { timeout 600 "${ranks[@]}" "$@"; } # ranks, command

for np in 1 2 3 4; do
    job "$np" "$program" all 2>"$work/log" | grep -x "all collectives agree on $np ranks of 1 host" || fail "np=$np"
done

# on a host data go through memory that its ranks share: rank 0 of four sends a dozen messages, and none with data. Where
# ranks share a host's name and no memory, as in containers, they go in messages; both ways give the same sums
if command -v mpicc >/dev/null && ! sanitized; then
    mpicc -O1 -shared -fPIC -o "$work/count.so" "$SOURCE/tests/bench/count_messages.c"
    messages() { # WORD …: what rank 0 sent in an all-reduce of 16 MB
        job 4 -x LD_PRELOAD="$work/count.so" -x COUNT_DIR="$work" "$@" "$program" reduce 4000000 >/dev/null 2>"$work/log" ||
            fail "counting: $*"
        sed 's/.*"bytes": \([0-9]*\),.*/\1/' "$work/0"
    }
    n=$(messages)
    [ "$n" -lt 10000 ] || fail "rank 0 sent $n bytes"
    apart=(--mca btl "tcp,self" unshare --pid --fork --mount-proc)
    if [ "$(id -u)" = 0 ] && "${apart[@]:3}" true 2>/dev/null; then
        n=$(messages "${apart[@]}")
        [ "$n" -gt 20000000 ] || fail "apart: rank 0 sent $n bytes"
        job 4 "${apart[@]}" "$program" all 2>"$work/log" | grep -x "all collectives agree on 4 ranks of 1 host" >/dev/null || fail "apart"
    fi
fi

# without a launcher: alone, no MPI; in a Slurm step without PMI: refused, before or after MPI starts
clean=(env -u OMPI_COMM_WORLD_RANK -u OMPI_COMM_WORLD_SIZE -u PMIX_RANK -u PMI_RANK -u PMI_SIZE)
[ "$("${clean[@]}" "$program" name)" = "self 1" ] || fail "a lone process is not 'self'"
rc=0
"${clean[@]}" SLURM_PROCID=1 SLURM_STEP_ID=0 SLURM_NTASKS=4 "$program" name 2>"$work/log" || rc=$?
[ $rc = 2 ] && grep -q "srun --mpi=pmix" "$work/log" || fail "singletons under srun: exit $rc"

# a lost rank: seconds, not minutes, and a line that names it
lost() { # mode, expected message, allowed exit codes, rank, ranks
    local rc=0 begin=$SECONDS
    job "${5:-3}" "$program" "$1" "${4:-1}" >"$work/out" 2>"$work/log" || rc=$?
    [ $((SECONDS - begin)) -le 120 ] || fail "$1: took $((SECONDS - begin)) s"
    grep -q "$2" "$work/log" "$work/out" || fail "$1: nothing names rank ${4:-1}"
    case " $3 " in *" $rc "*) ;; *) fail "$1: exit $rc, not one of $3" ;; esac
    echo "$1: exit $rc after $((SECONDS - begin)) s: $(grep -h -m1 "$2" "$work/log" "$work/out")"
}
lost stop "rank 1 on $(uname -n | cut -c1-63).* did not take part in the all-reduce" 240
lost kill "rank 1 " "137 240"
# heartbeats go down a tree, in which rank 11 is below rank 1
lost late "rank 11 on .* did not take part in the barrier.*destroyed" 240 11 12
! grep 'did not take part' "$work/log" | grep -v ': rank 11 on ' >/dev/null || fail "others than rank 11 are blamed"
