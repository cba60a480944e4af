#!/usr/bin/env bash
# MPICH beside Open MPI, and Intel MPI by MPICH's ABI where it is unpacked (IMPI: the folder of its bin/ and lib/): the
# launcher's module is taken, bits are the same, signals save, a lost rank ends the job, a launcher without its module is
# one line.
. "${SOURCE:?}/tests/small_run.sh" || exit
need_mpi
need_mpich
export "ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0" "TSAN_OPTIONS=${TSAN_OPTIONS:-}:detect_deadlocks=0"

for np in 1 2 3 4; do
    timeout 600 "$mpich" -np $np "$BUILD/test_comm_mpi" all 2>"$work/log" |
        grep -x "all collectives agree on $np ranks of 1 host" >/dev/null || fail "collectives on $np ranks"
done

# -- bits
small_data "$work"
config=$(small_config "$work")
job=("$DTRAIN" "$config" train.max_steps=12)
run_as() { exits 0 '' "${@:2}" "${job[@]}" run.name="$1"; } # NAME LAUNCHER …
same() { [ "$(hash "$work/runs/$1")" = "$(hash "$work/runs/$2")" ] || fail "other weights: $1, $2"; }
for np in 2 4; do
    run_as open$np "${ranks[@]}" $np
    run_as mpich$np "$mpich" -np $np
    same open$np mpich$np
done
job+=(run.reproducible=elastic)
run_as elastic
run_as elastic2 "$mpich" -np 2
same elastic elastic2
unset 'job[-1]'

# -- a run that began under Open MPI is stopped and goes on under MPICH; USR1 and TERM to mpirun save
for signal in USR1 TERM; do
    exits 75 '' "${ranks[@]}" 2 "${job[@]}" run.name=$signal run.stop_at=3
    DTRAIN_FAILPOINT=step:3:stop "$mpich" -np 2 "${job[@]}" run.name=$signal >"$work/out" 2>"$work/log" &
    pid=$!
    proxied_have_stopped() { read -r proxy <<<"$(children $pid 2>/dev/null)" && pid=$proxy have_stopped 2; }
    wait_until proxied_have_stopped
    kill -$signal $pid
    for p in "${stopped[@]}"; do wait_until is_pending $signal "$p"; done
    kill -CONT "${stopped[@]}"
    rc=0
    wait $pid || rc=$?
    [ $rc = 75 ] || [ $rc = 0 ] || fail "$signal: exit $rc" # 0: mpirun lost the ranks' code
    [ ! -e "$work/runs/$signal/result.json" ] && grep -q "stopped after step .*SIG$signal; saved" "$work/log" || fail "$signal: not saved"
    run_as $signal "$mpich" -np 2
    same open2 $signal
done

# -- a killed rank ends the job, which resumes
rc=0
DTRAIN_FAILPOINT=step:6:kill "$mpich" -np 2 "${job[@]}" run.name=killed checkpoint.every="4 steps" >"$work/out" 2>"$work/log" || rc=$?
[ $rc != 0 ] && [ ! -e "$work/runs/killed/result.json" ] || fail "a killed rank: exit $rc"
run_as killed "$mpich" -np 2
same open2 killed

# -- dtrain launch local, where mpirun is MPICH's, also in a job of a scheduler whose hosts are others
mkdir "$work/bin"
ln -s "$(realpath "$mpich")" "$work/bin/mpirun"
export PATH=$work/bin:$PATH
launch=("$DTRAIN" launch local -n 2 "${job[@]:1}")
term() { # NAME: launch local passes TERM on as USR1
    DTRAIN_FAILPOINT=step:3:stop "${launch[@]}" run.name="$1" >"$work/out" 2>"$work/log" &
    pid=$!
    launched_have_stopped() {
        local p
        mapfile -t stopped < <(pgrep -f "^$DTRAIN train .*run.name=$1( |\$)")
        [ ${#stopped[@]} = 2 ] && for p in "${stopped[@]}"; do grep -qs '^State:.T' "/proc/$p/status" || return 1; done
    }
    wait_until launched_have_stopped "$1"
    kill -TERM $pid
    for p in "${stopped[@]}"; do wait_until is_pending USR1 "$p"; done
    kill -CONT "${stopped[@]}"
    rc=0
    wait $pid || rc=$?
    [ $rc = 75 ] && grep -q "stopped after step .*SIGUSR1; saved" "$work/log" || fail "TERM to launch local: exit $rc"
}
[[ $("${launch[@]}" --print) = *"mpiexec.hydra -launcher fork -hosts localhost -np 2 "* ]] || fail "$("${launch[@]}" --print)"
SLURM_JOB_ID=4 SLURM_JOBID=4 SLURM_NODELIST=nowhere.invalid SLURM_NNODES=1 SLURM_TASKS_PER_NODE=2 exits 0 '' "${launch[@]}" run.name=local
same open2 local
DTRAIN_FAILPOINT=step:6:kill exits 0 'a rank ended by signal 9, Killed (code 137)' "${launch[@]}" run.name=again checkpoint.every="4 steps" \
    checkpoint.async=false --restarts 9
same open2 again
term local_term
exits 2 "mpirun here is MPICH's" "$DTRAIN" launch hosts --hosts "$(hostname):2" "$config"
PATH=${PATH#*:}

# -- a launcher without its module
mkdir "$work/open" "$work/mpich"
for dir in open mpich; do cp "$DTRAIN" "$BUILD/libdtrain_openmp.so" "$work/$dir"; done
cp "$BUILD/dtrain_mpi.so" "$work/open"
cp "$BUILD/dtrain_mpich.so" "$work/mpich"
wrong() { # NAME MODULE LAUNCHER …
    exits 2 "started by the launcher of $1, but its module $2 is neither in" "${@:3}" "$config" run.name=wrong
    [ "$(grep -c "started by the launcher" "$work/log")" = 1 ] || fail "more than a line of $1"
    [ ! -e "$work/runs/wrong" ] || fail "a run began without the module of $1"
}
wrong MPICH dtrain_mpich.so "$mpich" -np 2 "$work/open/dtrain"
wrong "Open MPI" dtrain_mpi.so "${ranks[@]}" 2 "$work/mpich/dtrain"

# -- Intel MPI runs what was built with MPICH
if [ -n "${IMPI:-}" ]; then
    export I_MPI_ROOT=$IMPI PATH=$IMPI/bin:$PATH LD_LIBRARY_PATH=$IMPI/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    run_as intel2 "$IMPI/bin/mpirun" -np 2
    grep -q "I_MPI_PIN=off mpirun" "$work/log" || [ "$(nproc)" = 1 ] || fail "does not say how to bind no rank to a core"
    same open2 intel2
    exits 0 '' "$DTRAIN" launch local -n 2 "${job[@]:1}" run.name=intel_local
    same open2 intel_local
    term intel_term
    exits 75 '' "$IMPI/bin/mpirun" -np 2 "${job[@]}" run.name=intel_stops run.stop_at=3
else
    echo "Intel MPI left out: IMPI is not set"
fi
echo passed
