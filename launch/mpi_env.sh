# Source this: what Open MPI wants on a laptop or in a container (root, more ranks than cores).
# `mpi NP COMMAND …` runs COMMAND on NP ranks of this machine.
if [ "$(id -u)" = 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
mpi() {
    local np=$1
    shift
    # binding a rank to one core would leave it one thread; dtrain divides the cores itself
    mpirun --oversubscribe --bind-to none -np "$np" "$@"
}
