# Source this: what Open MPI wants on a laptop or in a container (root, more ranks than cores).
# `mpi NP COMMAND …` runs COMMAND on NP ranks of this machine.
if [ "$(id -u)" = 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
# Where mpirun itself gets TERM, it sends its ranks TERM after so many seconds, and KILL after as many again. In between
# they finish or drop the step and save; Open MPI's default of 1 s is too short for that. A job that fails ends as late,
# so it is not more: set it to more than a checkpoint takes, twice.
export OMPI_MCA_odls_base_sigkill_timeout=${OMPI_MCA_odls_base_sigkill_timeout:-5}
# A host that is lost: its daemon and mpirun notice each other's silence, and end the ranks, after 3 s + 3 probes of 1 s.
# Open MPI has 300 + 9 probes of 20 s.
for setting in time=3 intvl=1 probes=3; do
    for name in OMPI_MCA_oob_tcp_keepalive_${setting%=*} PRTE_MCA_oob_tcp_keepalive_${setting%=*}; do # Open MPI 4; 5
        export "$name=${!name:-${setting#*=}}"
    done
done
unset setting name
mpi() {
    local np=$1 rc=0 pid apart=(setsid setpriv --pdeathsig USR1) asked='' traps
    shift
    # What the keyboard sends goes to all processes of the foreground: mpirun is to be none of them, and is
    # informed when this shell is gone. An interactive shell takes care of the first itself, and there setsid
    # would not wait.
    case $- in *m*) apart=() ;; esac
    # In a job of Slurm mpirun would take the job's nodes. Open MPI 4; 5
    [ -z "${SLURM_JOB_ID:-}" ] ||
        apart+=(env "OMPI_MCA_ras=${OMPI_MCA_ras:-^slurm}" "OMPI_MCA_plm=${OMPI_MCA_plm:-^slurm}"
                "PRTE_MCA_ras=${PRTE_MCA_ras:-^slurm}" "PRTE_MCA_plm=${PRTE_MCA_plm:-^slurm}")
    # Binding a rank to one core would leave it one thread; dtrain divides the cores itself.
    # Open MPI answers SIGTERM, SIGINT and SIGHUP with exit 1 and kills the ranks soon after; SIGUSR1 it
    # passes on, and the ranks save and exit 75. So TERM, INT and HUP become USR1 here, but a second INT,
    # two seconds or more behind the first, is for those who will not wait.
    "${apart[@]}" mpirun --oversubscribe --bind-to none -np "$np" "$@" &
    pid=$!
    traps=$(trap -p TERM INT HUP)
    trap 'kill -USR1 $pid 2>/dev/null' TERM HUP
    trap 'if [ -n "$asked" ] && [ $((SECONDS - asked)) -ge 2 ]; then kill -TERM $pid; else kill -USR1 $pid; fi 2>/dev/null
          asked=${asked:-$SECONDS}' INT
    wait $pid || rc=$?
    while kill -0 $pid 2>/dev/null; do # wait was interrupted by the trap
        rc=0
        wait $pid || rc=$?
    done
    trap - TERM INT HUP
    eval "$traps"
    return $rc
}
