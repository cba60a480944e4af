# Source this: what Open MPI wants on a laptop or in a container (root, more ranks than cores).
# `mpi NP COMMAND …` runs COMMAND on NP ranks of this machine.
if [ "$(id -u)" = 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
mpi() {
    local np=$1 rc=0 pid
    shift
    # Binding a rank to one core would leave it one thread; dtrain divides the cores itself.
    # Open MPI answers SIGTERM and SIGINT with exit 1 and kills the ranks a second later; SIGUSR1 it
    # passes on, and the ranks save and exit 75. So TERM and INT become USR1 here.
    mpirun --oversubscribe --bind-to none -np "$np" "$@" &
    pid=$!
    trap 'kill -USR1 $pid 2>/dev/null' TERM INT
    wait $pid || rc=$?
    while kill -0 $pid 2>/dev/null; do # wait was interrupted by the trap
        rc=0
        wait $pid || rc=$?
    done
    trap - TERM INT
    return $rc
}
