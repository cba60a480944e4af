# Source this: what Open MPI wants on a laptop or in a container (root, more ranks than cores).
# `mpi NP COMMAND …` runs COMMAND on NP ranks of this machine.
if [ "$(id -u)" = 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
mpi() {
    local np=$1 rc=0 pid apart=(setsid)
    shift
    # What the keyboard sends goes to all processes of the foreground: mpirun is to be none of them. An
    # interactive shell takes care of that itself, and there setsid would not wait.
    case $- in *m*) apart=() ;; esac
    # Binding a rank to one core would leave it one thread; dtrain divides the cores itself.
    # Open MPI answers SIGTERM, SIGINT and SIGHUP with exit 1 and kills the ranks a second later; SIGUSR1 it
    # passes on, and the ranks save and exit 75. So TERM, INT and HUP become USR1 here.
    "${apart[@]}" mpirun --oversubscribe --bind-to none -np "$np" "$@" &
    pid=$!
    trap 'kill -USR1 $pid 2>/dev/null' TERM INT HUP
    wait $pid || rc=$?
    while kill -0 $pid 2>/dev/null; do # wait was interrupted by the trap
        rc=0
        wait $pid || rc=$?
    done
    trap - TERM INT HUP
    return $rc
}
