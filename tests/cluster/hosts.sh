# Source this behind small_run.sh: hosts that are not there. Each is a network, PID, mount and UTS namespace with a name,
# an address on one bridge, an sshd, and its own /dev/shm, $work/tmp (TMPDIR) and $work/own (for run directories).
#   need_hosts           ends the test as skipped, with the reason, where they cannot be made
#   make_hosts N         makes host1 … hostN (10.77.0.1 …); removed at exit with all that runs on them
#   on I COMMAND …       runs COMMAND on host I
#   hosts_job NP CMD …   mpirun on host1 over all hosts, a rank a host in turn; sets $pid, output in $work/out and $work/log
#   ends_within S        waits for the job; sets $rc and $took; the test fails where it takes longer
#   at_peace             true when nothing but the hosts themselves runs on them, and nothing lies in /dev/shm or TMPDIR
#   processes_on I       what runs there
#   sleepers I           ids, as this script has them, of the dtrain processes there that have stopped themselves
#   cut_link I, mend_link I; crash_host I (no link, no process), boot_host I
#   slow_links RATE I …  tc's tbf on the links of these hosts, both ways ("400mbit"); "" takes it away; what waits
#                        for longer than link_queue (50ms) is dropped

need_hosts() {
    need_mpi
    local tool
    [ "$(id -u)" = 0 ] || { echo "skipped: namespaces need root"; exit 77; }
    for tool in ip tc unshare nsenter ssh ssh-keygen /usr/sbin/sshd; do
        command -v $tool >/dev/null || { echo "skipped: no $tool (launch/packages.sh --tests)"; exit 77; }
    done
    unshare --net --uts --pid --mount --fork true 2>/dev/null || { echo "skipped: no namespaces here"; exit 77; }
    ip netns add "dt$$-net" 2>/dev/null && ip -n "dt$$-net" link add br0 type bridge 2>/dev/null || {
        ip netns del "dt$$-net" 2>/dev/null || true
        echo "skipped: no network namespaces or bridges here"
        exit 77
    }
    ip -n "dt$$-net" link set br0 up
    trap remove_hosts EXIT
}

remove_hosts() {
    local i
    for i in ${!inits[@]}; do stop_host "$i"; done
    ip netns del "dt$$-net" 2>/dev/null || true
    clean_up
}

stop_host() { # the namespace's first process ends all others
    [ -z "${inits[$1]:-}" ] || kill -9 "${inits[$1]}" 2>/dev/null || true
    [ -z "${holders[$1]:-}" ] || wait "${holders[$1]}" 2>/dev/null || true
    inits[$1]= holders[$1]=
    ip -n "dt$$-net" link del "p$1" 2>/dev/null || true
    ip netns del "dt$$-h$1" 2>/dev/null || true
}

on() {
    local i=$1
    shift
    nsenter -t "${inits[$i]}" --net --uts --pid --mount -- "$@"
}

boot_host() {
    local i=$1 ns=dt$$-h$1 other
    ip netns add "$ns"
    ip -n "dt$$-net" link add "p$i" type veth peer name eth0 netns "$ns"
    ip -n "dt$$-net" link set "p$i" master br0 up
    ip -n "$ns" link set lo up
    ip -n "$ns" addr add "10.77.0.$i/24" dev eth0
    ip -n "$ns" link set eth0 up
    rm -rf "$work/host$i/tmp" # Debian empties /tmp when a host boots
    mkdir -p "$work/host$i/own" "$work/host$i/tmp" "$work/own" "$work/tmp" /run/sshd
    setpriv --pdeathsig KILL ip netns exec "$ns" unshare --uts --pid --mount --fork --kill-child --mount-proc bash -c "
        hostname host$i
        mount -t tmpfs -o size=256m shm /dev/shm
        mount --bind $work/host$i/own $work/own
        mount --bind $work/host$i/tmp $work/tmp
        mount --bind $work/etc_hosts /etc/hosts
        /usr/sbin/sshd -D -f $work/sshd_config -E $work/host$i/sshd.log &
        echo ready >$work/host$i/ready
        while :; do sleep 1000 & wait \$!; done" >/dev/null 2>&1 &
    holders[$i]=$!
    pid=$! wait_until test -e "$work/host$i/ready"
    rm "$work/host$i/ready"
    inits[$i]=$(children "${holders[$i]}" | tr -d ' ')
    pid=${holders[$i]} wait_until on "$i" bash -c 'exec 2>/dev/null; : </dev/tcp/127.0.0.1/22'
    for other in ${!inits[@]}; do # one that comes back has another hardware address
        [ -z "${inits[$other]}" ] || on "$other" ip neigh flush dev eth0
    done
}

make_hosts() {
    local i
    n_hosts=$1
    inits=() holders=()
    ssh-keygen -q -t ed25519 -N '' -f "$work/key"
    cat >"$work/sshd_config" <<END
HostKey $work/key
AuthorizedKeysFile $work/key.pub
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
PidFile none
SetEnv TMPDIR=$work/tmp HOME=$work/own
END
    cat >"$work/ssh_config" <<END
IdentityFile $work/key
StrictHostKeyChecking no
UserKnownHostsFile /dev/null
LogLevel ERROR
END
    echo '127.0.0.1 localhost' >"$work/etc_hosts"
    for i in $(seq "$n_hosts"); do echo "10.77.0.$i host$i" >>"$work/etc_hosts"; done
    for i in $(seq "$n_hosts"); do boot_host "$i"; done
}

hosts_job() {
    local np=$1 list
    shift
    list=$(seq -s, -f 'host%g' "$n_hosts")
    TMPDIR=$work/tmp on 1 mpirun --oversubscribe --bind-to none --map-by node -np "$np" -host "$list" \
        --mca plm_rsh_agent "ssh -F $work/ssh_config" -x TMPDIR -x OMP_WAIT_POLICY \
        ${DTRAIN_FAILPOINT:+-x DTRAIN_FAILPOINT} ${hosts_options[@]+"${hosts_options[@]}"} "$@" \
        >"$work/out" 2>"$work/log" &
    pid=$!
}
hosts_options=()

ends_within() {
    local begin=$SECONDS
    rc=0
    while kill -0 "$pid" 2>/dev/null && [ $((SECONDS - begin)) -le "$1" ]; do nap 0.1; done
    took=$((SECONDS - begin))
    ! kill -0 "$pid" 2>/dev/null || fail "it still runs after $took s"
    wait "$pid" || rc=$?
}

processes_on() { # "PID STATE COMMAND" as the host sees them: all but its own init, sleep and sshd
    on "$1" ps -eo pid=,stat=,args= | grep -vE '^ *[0-9]+ +[^ ]+ +(bash -c .*hostname host|sleep 1000$|(sshd: )?/usr/sbin/sshd -D|ps -eo|.*<defunct>)' || true
}

sleepers() { # without processes of its own: it is asked again and again
    local p stat found=()
    for p in /proc/[0-9]*; do
        [ "$p/exe" -ef "$DTRAIN" ] && [ "$p/ns/pid" -ef "/proc/${inits[$1]}/ns/pid" ] || continue
        read -r stat 2>/dev/null <"$p/stat" && [[ ${stat##*) } == T* ]] && found+=("${p#/proc/}")
    done
    echo "${found[*]}"
}

at_peace() {
    local i
    unrest=
    for i in $(seq "$n_hosts"); do
        [ -n "${inits[$i]}" ] || continue
        unrest+=$(processes_on "$i" | sed "s/^/host$i: process /; s/\$/; /")
        # a daemon that is killed leaves its folder of sessions, which the next start removes
        unrest+=$(on "$i" find /dev/shm "$work/tmp" \( -path '*/ompi.*' -o -path '*/prte*' -o -name 'pmix-gds-*' \) -prune -o -type f -printf "host$i: %p; ")
    done
    [ -z "$unrest" ]
}

cut_link() { ip -n "dt$$-net" link set "p$1" down; }
mend_link() { ip -n "dt$$-net" link set "p$1" up; }
crash_host() {
    cut_link "$1"
    stop_host "$1"
}

slow_links() {
    local i rate=$1
    shift
    for i in "$@"; do
        ip netns exec "dt$$-net" tc qdisc del dev "p$i" root 2>/dev/null || true
        on "$i" tc qdisc del dev eth0 root 2>/dev/null || true
        [ -n "$rate" ] || continue
        ip netns exec "dt$$-net" tc qdisc add dev "p$i" root tbf rate "$rate" burst 256kb latency "${link_queue:-50ms}"
        on "$i" tc qdisc add dev eth0 root tbf rate "$rate" burst 256kb latency "${link_queue:-50ms}"
    done
}
