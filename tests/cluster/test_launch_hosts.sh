#!/usr/bin/env bash
# dtrain launch hosts on three hosts with an sshd each: the undisturbed bits; a host that is away, has another version,
# config or data is named before anything starts; with --restarts a lost host is done without, or (FULL=1) waited for.
. "${SOURCE:?}/tests/small_run.sh" || exit
. "$SOURCE/tests/cluster/hosts.sh"
need_hosts
make_hosts 3
small_data "$work"
config=$(small_config "$work")
sed -i '/^comm:/d' "$config"
unset "${!OMPI_@}" "${!PRTE_@}"
launch() { # words of dtrain launch hosts; in the background, as $pid
    (cd "$work" && exec nsenter -t "${inits[1]}" --net --uts --pid --mount -- env TMPDIR="$work/tmp" \
        OMPI_MCA_odls_base_sigkill_timeout=1 "$DTRAIN" launch hosts --ssh "${agent:-ssh -F $work/ssh_config}" "$config" \
        train.global_batch=6 train.max_steps=9 "checkpoint.every=3 steps" "$@") >"$work/out" 2>"$work/log" &
    pid=$!
}
all=(--hosts host1:1,host2:1,host3:1)
wrong() { # expected line, words: exit 2 and nothing started
    local line=$1
    shift
    launch run.name=wrong "$@"
    ends_within 60
    [ $rc = 2 ] || fail "exit $rc, not 2: $*"
    grep -q "$line" "$work/log" || fail "no line like: $line"
    [ "$(grep -c error "$work/log")" = 1 ] || fail "more than one line"
    [ ! -e "$work/runs/wrong" ] || fail "started all the same: $*"
}

# -- the bits of a run of one rank, with run directories that only rank 0's host has
"$DTRAIN" "$config" train.global_batch=6 train.max_steps=9 run.reproducible=elastic run.name=calm >/dev/null 2>"$work/log" ||
    fail "exit $?"
launch "${all[@]}" run.reproducible=elastic run.dir="$work/own" run.name=apart
ends_within 120
[ $rc = 0 ] || fail "exit $rc"
[ "$(hash "$work/host1/own/apart")" = "$(hash "$work/runs/calm")" ] || fail "other weights than one rank"
grep -q ": 3 ranks" "$work/log" || fail "not three ranks"

# -- rank 0 is on the first host, wherever this is
launch --hosts host2:1,host3:1,host1:1 run.dir="$work/own" run.name=first train.max_steps=1
ends_within 120
[ $rc = 0 ] && [ -e "$work/host2/own/first/metrics.jsonl" ] || fail "rank 0 is not on the first host: exit $rc"

# -- what is wrong is said before the start
wrong "host nowhere does not respond: .*resolve" --hosts host1:1,nowhere:1
wrong "'host1:x' is no host with its ranks" --hosts host1:x
wrong "host2 is given twice" --hosts host2:1,host2:1
wrong "4 ranks cannot share the 3 micro-batches" --hosts host1:2,host2:2
echo "host1 slots=1
host2 seats=1" >"$work/list"
wrong "$work/list:2: 'host2 seats=1' is no host" --hostfile "$work/list"
cut_link 3
wrong "host host3 does not respond" "${all[@]}"
mend_link 3
mkdir "$work/other"
printf '#!/bin/sh\necho dtrain 0.0.1\n' >"$work/other/dtrain"
chmod +x "$work/other/dtrain"
on 2 mount --bind "$work/other/dtrain" "$DTRAIN"
wrong "host host2 has dtrain 0.0.1, and this is dtrain " "${all[@]}"
on 2 umount "$DTRAIN"
cp "$config" "$work/other.yaml"
echo "# more" >>"$work/other.yaml"
on 3 mount --bind "$work/other.yaml" "$config"
wrong "host host3 has another config" "${all[@]}"
on 3 umount "$config"
mkdir "$work/empty"
on 3 mount --bind "$work/empty" "$work/small.lmdb"
wrong "host host3 does not see the data: .*data.mdb" "${all[@]}"
on 3 umount "$work/small.lmdb"
on 2 mount --bind "$config" "$work/small.lmdb/data.mdb"
wrong "host host2 has other data" "${all[@]}"
on 2 umount "$work/small.lmdb/data.mdb"
cp -r "$work/raw" "$work/less"
rm "$(find "$work/less" -name '*.BMP' | sort | head -n 1)"
on 2 mount --bind "$work/less" "$work/raw"
wrong "host host2 has other data (names in .*/raw/.: " "${all[@]}" data.path="$work/raw"
on 2 umount "$work/raw"

# -- a signal: 75, a checkpoint, no start again
all_stopped() {
    local i
    stopped=()
    for i in 1 2 3; do
        stopped+=("$(sleepers $i)")
        [ -n "${stopped[-1]}" ] || return 1
    done
}
go_on() { for i in "$@"; do kill -CONT "${stopped[$((i - 1))]}"; done; }
export DTRAIN_FAILPOINT=step:4:stop
AWS_SECRET_ACCESS_KEY=hidden-$$ launch "${all[@]}" --restarts 3 run.name=signal
wait_until all_stopped
tr '\0' '\n' <"/proc/${stopped[2]}/environ" | grep -x "AWS_SECRET_ACCESS_KEY=hidden-$$" >/dev/null || fail "credentials are not passed on"
! ps -eo args | grep "[h]idden-$$" || fail "a list of processes shows a secret"
on 1 kill -TERM "$(processes_on 1 | awk '/dtrain launch hosts/ {print $1; exit}')" # $pid is nsenter
go_on 1 2 3
ends_within 60
stopped=()
[ $rc = 75 ] || fail "TERM: exit $rc"
ls "$work/runs/signal/checkpoints"/step-* >/dev/null || fail "TERM: no checkpoint"

# -- daemon and ranks of a host are killed: what they left there is gone with the next start
left() { on 2 find /dev/shm "$work/tmp" -mindepth 1; }
three_stopped() { [ "$({ sleepers 1; sleepers 2; } | wc -w)" = 3 ]; }
launch --hosts host1:1,host2:2 run.name=killed
wait_until three_stopped
on 2 kill -9 $(processes_on 2 | awk '{print $1}')
kill -CONT $(sleepers 1) 2>/dev/null || true # mpirun may have been faster
ends_within 60
[ "$(left | wc -l)" -gt 3 ] || fail "killed processes left nothing: $(left)"
DTRAIN_FAILPOINT='' launch --hosts host1:1,host2:2 run.name=killed
ends_within 60
[ $rc = 0 ] && [ -z "$(left)" ] || fail "exit $rc; left behind: $(left)"

# -- a host is lost: 240, and a line names rank, host and what the others waited for
launch "${all[@]}" run.name=lost
wait_until all_stopped
crash_host 3
go_on 1 2
ends_within 30
[ $rc = 240 ] || fail "a lost host: exit $rc"
grep -Eq '(error|warning): .*after step 4: (no heartbeat from )?rank 2 on host3 ' "$work/log" || fail "a lost host: no line names it"
boot_host 3

# -- a host is lost for good: fewer ranks, the same bits
launch "${all[@]}" --restarts 3 run.name=fewer run.reproducible=elastic
wait_until all_stopped
crash_host 3
go_on 1 2
next=$(($(date +%s) + 120))
until grep -qs "the job continues with the [12] ranks of the other hosts" "$work/log"; do # 1: host2 was slow to answer, and is taken back
    [ "$(date +%s)" -lt $next ] || fail "the lost host is not noticed"
    sleep 0.2
done
keep_going() { # the second start stops at its fourth step, too
    local p
    p=$(sleepers 1; sleepers 2)
    [ -z "$p" ] || kill -CONT $p
}
while kill -0 $pid 2>/dev/null; do keep_going; nap 0.2; [ "$(date +%s)" -lt $next ] || fail "it does not end"; done
ends_within 1
[ $rc = 0 ] || fail "exit $rc"
grep -q "steps (.* s) since the checkpoint of step 3 are lost; start 1 of 3" "$work/log" || fail "what was lost is not said"
[ "$(hash "$work/runs/fewer")" = "$(hash "$work/runs/calm")" ] || fail "other weights with fewer ranks"

# -- it comes back: the job saves at a checkpoint and continues with all ranks; nothing is lost, no start is counted
boot_host 3
DTRAIN_FAILPOINT=step:1:nap launch "${all[@]}" --restarts 1 run.name=back run.reproducible=elastic train.max_steps=1000000 train.epochs=1000000
wait_until bash -c "ls $work/runs/back/checkpoints/step-* >/dev/null 2>&1"
crash_host 3
begin=$SECONDS
wait_until grep -q "the job continues with the 2 ranks of the other hosts" "$work/log"
echo "a lost host is done without after $((SECONDS - begin)) s"
wait_until grep -q "runs/back: 2 ranks" "$work/log"
boot_host 3
begin=$SECONDS
of_three() { [ "$(grep -c "runs/back: 3 ranks" "$work/log")" = 2 ]; }
wait_until of_three
echo "it is back after $((SECONDS - begin)) s"
last=$(sed -n 's/.*stopped after step \([0-9]*\).*/\1/p' "$work/log")
[ "$(grep -c "are lost; start" "$work/log")" = 1 ] && grep -q "step $last\b.*resum\|resum.*step $last\b" "$work/log" || fail "something was lost for a host that came back"
on 1 kill -TERM "$(processes_on 1 | awk '/dtrain launch hosts/ {print $1; exit}')"
ends_within 60
[ $rc = 75 ] || fail "exit $rc"
crash_host 3

[ "${FULL:-}" ] || { echo passed; exit 0; }
boot_host 3
# -- mpirun's daemons do not start: said after a minute
printf '#!/bin/sh\ncase "$*" in *orted*) exec sleep 1000 ;; esac\nexec ssh -F %s/ssh_config "$@"\n' "$work" >"$work/agent"
chmod +x "$work/agent"
agent=$work/agent DTRAIN_FAILPOINT='' launch "${all[@]}" run.name=silent
wait_until grep -q "mpirun has started no rank for 6[0-9] s: ssh reaches all 3 hosts" "$work/log"
on 1 kill -TERM "$(processes_on 1 | awk '/dtrain launch hosts/ {print $1; exit}')"
ends_within 60

# -- otherwise it is waited for
launch "${all[@]}" --restarts 3 run.name=waits
wait_until all_stopped
crash_host 3
go_on 1 2
next=$(($(date +%s) + 120))
until grep -qs "host host3 does not respond: .*: waiting up to" "$work/log"; do
    [ "$(date +%s)" -lt $next ] || fail "the lost host is not noticed"
    sleep 0.2
done
boot_host 3
while kill -0 $pid 2>/dev/null; do
    ! all_stopped || go_on 1 2 3
    sleep 0.1
    [ "$(date +%s)" -lt $next ] || fail "it does not end"
done
ends_within 1
[ $rc = 0 ] || fail "exit $rc"
stopped=()
unset DTRAIN_FAILPOINT
launch "${all[@]}" run.name=undisturbed
ends_within 120
[ "$(hash "$work/runs/waits")" = "$(hash "$work/runs/undisturbed")" ] || fail "other weights after the wait"
echo passed
