#!/usr/bin/env bash
# dtrain launch local: ranks with no variable set, their exit code, signals, pipes that close, and what killed jobs left.
. "${SOURCE:?}/tests/small_run.sh" || exit
need_mpi
unset "${!OMPI_@}" "${!PRTE_@}"

small_data "$work"
config=$(small_config "$work")
job=("$DTRAIN" launch local -n 2 "$config" train.max_steps=12)

# -- the same bits as under mpirun, and the ranks' exit code
"${job[@]}" run.name=calm >"$work/out" 2>"$work/log" || fail "exit $?"
(. "$SOURCE/launch/mpi_env.sh"; mpi 2 "$DTRAIN" "$config" train.max_steps=12 run.name=mpirun) >/dev/null 2>&1
[ "$(hash "$work/runs/calm")" = "$(hash "$work/runs/mpirun")" ] || fail "other weights than under mpirun"
grep -q ": 2 ranks" "$work/log" || fail "not two ranks"
"${job[@]}" run.name=auto train.precision=auto >/dev/null 2>"$work/log" || fail "exit $?"
[ "$(grep -c 'train.precision: auto' "$work/log")" -le 1 ] || fail "the check logs what the ranks log again: $(cat "$work/log")"
for at in 4 8; do
    rc=0
    "${job[@]}" run.name=stops run.stop_at=$at --restarts 3 >/dev/null 2>"$work/log" || rc=$?
    [ $rc = 75 ] || fail "run.stop_at: exit $rc"
    ! grep -q again "$work/log" || fail "started again after run.stop_at"
done
rc=0
"${job[@]}" run.name=stops run.resume=never >/dev/null 2>"$work/log" || rc=$?
[ $rc = 2 ] || fail "an error of the ranks: exit $rc"
"${job[@]}" run.name=stops >/dev/null 2>"$work/log" || fail "exit $?"
[ "$(hash "$work/runs/calm")" = "$(hash "$work/runs/stops")" ] || fail "other weights after two stops"

# -- signals: a checkpoint, 75, and no start again
for signal in TERM INT HUP; do
    DTRAIN_FAILPOINT=step:5:stop "${job[@]}" run.name=$signal --restarts 3 >/dev/null 2>"$work/log" &
    pid=$!
    launched_have_stopped() { read -r mpirun <<<"$(children $pid)" && pid=$mpirun have_stopped 2; }
    wait_until launched_have_stopped
    kill -$signal $pid
    for p in "${stopped[@]}"; do wait_until is_pending USR1 "$p"; done
    kill -CONT "${stopped[@]}"
    rc=0
    wait $pid || rc=$?
    [ $rc = 75 ] || fail "$signal: exit $rc"
    [ "$(ls "$work/runs/$signal/checkpoints" | wc -l)" = 1 ] || fail "$signal: no checkpoint, or more"
done

# -- mpirun that starts no rank and takes no signal: TERM ends it
mkdir "$work/stuck"
printf '#!/bin/sh\ntrap "" USR1 TERM\necho begun >"$0.begun"\nwhile :; do sleep 1; done\n' >"$work/stuck/mpirun"
chmod +x "$work/stuck/mpirun"
PATH=$work/stuck:$PATH "${job[@]}" run.name=stuck 2>"$work/log" &
pid=$!
wait_until test -e "$work/stuck/mpirun.begun"
kill -TERM $pid
rc=0
wait $pid || rc=$?
[ $rc = 75 ] || fail "TERM to mpirun that takes none: exit $rc"
"${job[@]}" run.name=TERM >/dev/null 2>"$work/log" || fail "exit $?"
[ "$(hash "$work/runs/calm")" = "$(hash "$work/runs/TERM")" ] || fail "other weights after TERM"

# -- readers that go away
"${job[@]}" run.name=pipe metrics.every="1 steps" 2>&1 | head -1 >"$work/first"
[ "${PIPESTATUS[0]}" = 0 ] || fail "| head -1: exit ${PIPESTATUS[0]}"
[ -s "$work/first" ] || fail "nothing came through the pipe"
[ -e "$work/runs/pipe/result.json" ] || fail "the run did not end"
# -- what a killed job leaves is removed by the next start, what a living one has is not
host=$(hostname -s) sessions=ompi.$(hostname -s).$(id -u)
leave() { # what Open MPI makes for its mpirun $1 and a rank of it, PMIx 5, and the daemon $1 of Open MPI 5
    mkdir -p "$work/$sessions/pid.$1/0" "$work/prted.$host.$1.$(id -u)"
    : >"$work/$sessions/pid.$1/contact.txt"
    : >"$work/pmix-gds-shmem.$host-77.jobdata.$1"
}
mkdir -p "$work/$sessions"/jf.{7,8} # of daemons, of which 8 lives
sh -c 'exit' & gone=$!
wait $gone
leave $gone
leave $$
# in a folder of its own: any start of dtrain on this machine cleans /dev/shm
mkdir "$work/shm"
export OMPI_MCA_btl_vader_backing_directory=$work/shm OMPI_MCA_btl_sm_backing_directory=$work/shm
segment=$work/shm/vader_segment.$host.$(id -u).dead$gone.0
truncate -s 4096 "$segment" "$segment.mapped"
touch -d '1 minute ago' "$segment" "$segment.mapped"
"$python" "$SOURCE/tests/call.py" "$this_test" hold "$segment.mapped" "$work/mapped" ess_base_jobid $((8 << 16)) &
pid=$!
wait_until [ -e "$work/mapped" ]
"${job[@]}" run.name=cleans train.max_steps=1 >/dev/null 2>"$work/log" || fail "exit $?"
left=$(ls "$segment"* 2>/dev/null || true)
kill $pid
rm -f "$segment" "$segment.mapped"
[ "$left" = "$segment.mapped" ] || fail "of the segments is left: $left"
left=$(cd "$work" && ls -d $sessions/* prted.* pmix-gds-shmem.* | tr '\n' ' ')
[ "$left" = "$sessions/jf.8 $sessions/pid.$$ pmix-gds-shmem.$host-77.jobdata.$$ prted.$host.$$.$(id -u) " ] ||
    fail "of the sessions is left: $left"
echo passed
