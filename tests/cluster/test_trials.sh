#!/usr/bin/env bash
# Four hosts train, all ranks stop themselves behind a step, and then something happens to one of them: its link goes down,
# it is gone, its rank stays stopped, is killed, crashes; rank 0's disk is full; the data are read-only on one host; a
# clock is an hour off. Soon the job has ended with the right exit code, a line has named rank, host and what was
# going on, no process is left on any host and nothing in /dev/shm; and the same command again, three trials later, ends
# with the undisturbed run's weights. FULL=1: 100 trials, each with a run of its own, with any rank and step, and
# comm.timeout as users have it, and each within 30 s, on a machine that has nothing else to do (LIMIT=120: on another);
# KINDS="link stop": only these;
# FROM=68 TRIALS=100: the rest of them.
. "${SOURCE:?}/tests/small_run.sh" || exit
. "$SOURCE/tests/cluster/hosts.sh"
need_hosts
make_hosts 4
small_data "$work"
config=$(small_config "$work")
sed -i '/^comm:/d' "$config"
cc -O1 -shared -fPIC -o "$work/clock.so" "$SOURCE/tests/cluster/wrong_clock.c" -ldl
common=(train.global_batch=8 train.max_steps=40 "checkpoint.every=3 steps" "eval.every=1000 steps" run.dir="$work/own")
job() { hosts_job 4 "$DTRAIN" "$config" "${common[@]}" "$@"; }

# The ranks' processes, in the order of ranks, once all have stopped themselves.
all_stopped() {
    local i p
    victims=()
    for i in 1 2 3 4; do
        p=$(sleepers "$i")
        [ -n "$p" ] || return 1
        victims+=("$p")
    done
}
signal() { kill "-$1" "${victims[$2]}" 2>/dev/null || true; } # signal, rank: it may have ended with the others
go_on() { # all but rank R
    local r
    for r in 0 1 2 3; do [ "$r" = "$1" ] || signal CONT $r; done
}
says() { grep -Eq -- "$1" "$work/log" || fail "trial $n, $kind of rank $rank: no line like: $1"; }
own_codes= # Open MPI 5's mpirun: 0, 14 or 255 where it loses a host or a rank
[[ $(mpirun --version) != *' 5.'* ]] || own_codes=1
ends() { # exit codes: one of them
    ends_within $limit
    case " $* " in *" $rc "*) ;; *) [ $own_codes ] || fail "trial $n, $kind of rank $rank: exit $rc, not $*" ;; esac
}
named() { says "(error|warning): .*after step $step: (no heartbeat from )?rank $rank on host$((rank + 1)) "; }

do_link() {
    cut_link $((rank + 1))
    go_on none
    ends 240 205
    named
}
do_gone() {
    crash_host $((rank + 1))
    go_on $rank
    ends 240 205
    named
    mend=boot_host
}
do_stop() {
    go_on $rank
    ends 240
    named
}
do_kill() {
    signal KILL $rank
    go_on $rank
    ends 137 240
    says "rank $rank\b.*host$((rank + 1))\b|host$((rank + 1))\b.*rank $rank\b"
}
do_segv() {
    signal SEGV $rank
    go_on none
    ends 139 240
    says "dtrain\[$rank\]: error: after step $step: a segmentation fault on host$((rank + 1));"
}
end() { on "$1" kill -9 $(processes_on "$1" | awk -v c="$2" '$3 ~ c {print $1}'); } # host, command
do_daemon() { # Open MPI's, on the rank's host
    end $((rank + 1)) "(or|pr)ted$"
    go_on none
    ends 240 205
    says "host$((rank + 1))\b"
}
do_mpirun() {
    end 1 "^mpirun$|prterun$"
    go_on none
    ends 137
}
do_full() {
    on 1 dd if=/dev/zero of="$work/own/fill" bs=1M 2>/dev/null || true
    go_on none
    ends 5
    says 'error: .*own/trial[0-9]+/.*No space left'
    on 1 rm "$work/own/fill"
}

calm() { # the weights of the run, as host 1 sees them
    on 1 bash -c "sha256sum <\"\$(ls -d $work/own/$1/checkpoints/step-* | sort | tail -1)/model.safetensors\"" | cut -c1-16
}

on 1 mount -t tmpfs -o size=256m own "$work/own"
job run.name=calm
ends_within 120
[ $rc = 0 ] || fail "undisturbed: exit $rc"
want=$(calm calm)
at_peace || fail "undisturbed: $unrest"

trial() { # number, kind, rank, steps that this start makes, step that it comes to, run, whether this is the run's last trial
    local own run=$6
    n=$1 kind=$2 rank=$3 step=$5 mend= rc=0
    case $kind in
        readonly) on $((rank + 1)) mount --bind -o ro "$work/small.lmdb" "$work/small.lmdb" ;;
        clock) hosts_options=(-x "LATE_HOST=host$((rank + 1))" -x "LD_PRELOAD=$work/clock.so") ;;
        *)
            DTRAIN_FAILPOINT=step:$4:stop job run.name="$run" ${timeout[@]+"${timeout[@]}"}
            wait_until all_stopped
            do_"$kind"
            ;;
    esac
    [ $kind != link ] || mend_link $((rank + 1))
    [ -z "$mend" ] || $mend $((rank + 1))
    [ -z "${SHOW:-}" ] || cat "$work/log"
    echo "trial $n: $kind of rank $rank behind step $step: exit ${rc:-} after ${took:-} s: $(grep -m1 -E "error: |no heartbeat|on signal" "$work/log" || true)"
    own=$SECONDS
    until at_peace; do
        [ $((SECONDS - own)) -le $limit ] || fail "trial $n, $kind of rank $rank: $limit s later: $unrest"
        sleep 0.5
    done
    [ $# = 7 ] || return 0
    job run.name="$run"
    ends_within 600
    [ $rc = 0 ] || fail "trial $n, $kind of rank $rank: exit $rc when run again"
    [ -z "$(find "$work"/host?/tmp -mindepth 1)" ] || fail "trial $n, $kind of rank $rank: folders are left behind"
    [ "$(calm "$run")" = "$want" ] || fail "trial $n, $kind of rank $rank: other weights"
    hosts_options=()
    [ $kind != readonly ] || on $((rank + 1)) umount "$work/small.lmdb"
    on 1 rm -rf "$work/own/$run"
}

timeout=(comm.timeout=8s checkpoint.async=false) limit=180
[ "${FULL:-0}" != 1 ] || timeout=() limit=${LIMIT:-30}
kinds=(${KINDS:-link gone stop kill segv daemon full mpirun readonly clock})
last=${TRIALS:-$([ "${FULL:-0}" = 1 ] && echo 100 || echo ${#kinds[@]})}
for n in $(seq "${FROM:-1}" "$last"); do
    kind=${kinds[$(((n - 1) % ${#kinds[@]}))]}
    rank=$((n % 4))
    case $kind in link | gone | daemon) rank=$((n % 3 + 1)) ;; esac # mpirun itself is on rank 0's host
    if [ "${FULL:-0}" = 1 ]; then
        trial "$n" "$kind" "$rank" $((1 + n * 5 % 8)) $((1 + n * 5 % 8)) "trial$n" yes
    else # a start goes on at step 0, 3, 6 in turn
        at=$(((n - ${FROM:-1}) % 3)) ends=
        [ $at != 2 ] && [ "$n" -lt 8 ] && [ "$n" != "$last" ] || ends=yes # those behind 8 make no start of their own
        trial "$n" "$kind" "$rank" 4 $((4 + 3 * at)) "trial$(((n - 1) / 3))" $ends
    fi
done
