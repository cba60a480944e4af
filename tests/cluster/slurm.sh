# Sourced first: a Slurm of four nodes on this machine. Each has a host name, a network interface and a node-local folder
# of its own. The test runs again in namespaces, which end with it, and all processes with them.
#   start_slurm            sets SLURM_CONF; $work/node is the node-local folder, another one on each node
#   job_state ID           PENDING, RUNNING, COMPLETED …
#   wait_for_job ID STATE… until it is in one of them
#   wait_for_line FILE TEXT
need_slurm() {
    local program
    PATH+=:/usr/sbin
    for program in slurmctld slurmd munged sbatch unshare ip; do
        command -v $program >/dev/null || { echo "skipped: no $program (Debian: slurm-wlm, munge)"; exit 77; }
    done
    [ "$(id -u)" = 0 ] || { echo "skipped: nodes of their own need root"; exit 77; }
    [ -z "${IN_NAMESPACES:-}" ] || return 0
    unshare --net --mount --uts --pid --fork true 2>/dev/null || { echo "skipped: no namespaces here"; exit 77; }
    IN_NAMESPACES=1 exec unshare --net --mount --pid --fork --kill-child --mount-proc bash "$0"
}
need_slurm

start_node() { # name number: a slurmd with eth0 10.98.0.NUMBER
    local name=$1 number=$2 node
    mkdir -p "$work/slurm/spool/$name" "$work/disk/$name"
    unshare --mount --uts --net bash -c 'hostname "$1"; mount --bind "$2" "$3"; ip link set lo up
        until ip link set eth0 up 2>/dev/null; do sleep 0.05; done
        ip addr add "10.98.0.$4/24" dev eth0
        exec slurmd -D -N "$1"' - "$name" "$work/disk/$name" "$work/node" "$number" >"$work/slurm/log/out.$name" 2>&1 &
    node=$!
    while [ "$(readlink /proc/$node/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
    ip link add "veth$number" type veth peer name eth0 netns $node
    ip link set "veth$number" master nodes up
}

start_slurm() { # memory of a node is not checked, cores are shared
    local s=$work/slurm n
    mkdir -p "$s"/{munge,state,spool,log} "$work/node"
    chmod 700 "$s/munge"
    head -c 128 /dev/urandom >"$s/munge/key"
    chmod 400 "$s/munge/key"
    munged --foreground --force --key-file="$s/munge/key" --socket="$s/munge/socket" --pid-file="$s/munge/pid" \
        --log-file="$s/munge/log" --seed-file="$s/munge/seed" >/dev/null 2>&1 &
    ip link set lo up
    ip link add nodes type bridge
    ip addr add 10.98.0.254/24 dev nodes
    ip link set nodes up
    cat >"$s/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=$(hostname -s)(10.98.0.254)
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
AuthInfo=socket=$s/munge/socket,cred_expire=5
MailProg=/bin/true
StateSaveLocation=$s/state
SlurmdSpoolDir=$s/spool/%n
SlurmctldPidFile=$s/ctld.pid
SlurmdPidFile=$s/%n.pid
SlurmctldLogFile=$s/log/ctld
SlurmdLogFile=$s/log/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
KillWait=10
ReturnToService=0
SchedulerParameters=batch_sched_delay=0,sched_interval=1
SlurmdParameters=config_overrides
NodeName=n[1-4] NodeHostname=n[1-4] NodeAddr=10.98.0.[1-4] CPUs=4 RealMemory=1000
PartitionName=main Nodes=n[1-4] Default=YES State=UP OverSubscribe=NO
CONF
    echo "PMIxCliTmpDirBase=$work/node" >"$s/mpi.conf"
    export SLURM_CONF=$s/slurm.conf
    for _ in {1..100}; do [ ! -S "$s/munge/socket" ] || break; sleep 0.1; done
    slurmctld -D >/dev/null 2>&1 &
    for n in 1 2 3 4; do start_node n$n $n; done
    for _ in {1..300}; do
        [ "$(sinfo -h -o %D -t idle 2>/dev/null)" != 4 ] || return 0
        sleep 0.2
    done
    tail -n 5 "$s"/log/* >&2
    fail "the Slurm of this test does not start"
}

job_state() { scontrol show job "$1" 2>/dev/null | sed -n 's/.*JobState=\([A-Z_]*\).*/\1/p' | sort -u | tr '\n' ' '; }

wait_for_job() { # minutes are for what hangs
    local id=$1 begin=$SECONDS state
    shift
    while :; do
        state=$(job_state "$id")
        [[ " $* " != *" ${state% } "* ]] || return 0
        if [ $((SECONDS - begin)) -gt 300 ]; then
            tail -n 20 ./*"$id"*.out >&2
            fail "job $id is $state and not $*"
        fi
        nap 0.5
    done
}

wait_for_line() {
    local begin=$SECONDS
    until grep -qs -- "$2" "$1"; do
        if [ $((SECONDS - begin)) -gt 300 ]; then
            tail -n 20 "$1" >&2
            fail "$1 does not say: $2"
        fi
        nap 0.2
    done
}
