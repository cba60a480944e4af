#!/usr/bin/env bash
# dtrain launch local --restarts: after a killed rank the job goes on by itself to the undisturbed bits and says what was
# lost; two ends at the same step are the last; a signal in between ends it.
. "${SOURCE:?}/tests/small_run.sh" || exit
need_mpi
export "ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0" # of Open MPI in ranks

small_data "$work"
config=$(small_config "$work")
job=("$DTRAIN" launch local -n 2 "$config" train.max_steps=14 checkpoint.every="4 steps" checkpoint.async=false)
ranks_have_stopped() { read -r mpirun <<<"$(children $pid)" && pid=$mpirun have_stopped 2; }

# in a job of a scheduler whose hosts are others (Grid Engine is what Debian's Open MPI knows besides Slurm)
echo 'nowhere.invalid 4 all.q UNDEFINED' >"$work/hosts"
SGE_ROOT=/x ARC=/x PE_HOSTFILE=$work/hosts JOB_ID=4 "${job[@]}" run.name=calm >/dev/null 2>"$work/log" || fail "exit $?"

# -- one of two ranks is killed at step 6
DTRAIN_FAILPOINT=step:6:stop "${job[@]}" run.name=killed --restarts 1 >/dev/null 2>"$work/log" &
pid=$!
wait_until ranks_have_stopped
kill -9 "${stopped[1]}"
kill -CONT "${stopped[0]}" 2>/dev/null || true # mpirun may have been faster
go_on() { # the second start stops at its step 6, too
    local p mpirun
    read -r mpirun <<<"$(children $pid 2>/dev/null)"
    for p in $(children "${mpirun:-none}" 2>/dev/null); do kill -CONT $p 2>/dev/null || true; done
    ! kill -0 $pid 2>/dev/null
}
begin=$SECONDS
until go_on; do
    [ $((SECONDS - begin)) -lt 300 ] || fail "not in five minutes"
    sleep 0.1
done
rc=0
wait $pid || rc=$?
[ $rc = 0 ] || fail "exit $rc"
grep -q "a rank ended by signal 9, Killed (code 137) after step [456]; about [0-2] steps (.* s) since the checkpoint of step 4 are lost; start 1 of 1 again in 1 s" \
    "$work/log" || fail "the line about what was lost: $(grep again "$work/log")"
[ "$(hash "$work/runs/calm")" = "$(hash "$work/runs/killed")" ] || fail "other weights"

# -- each start gets six steps further, and the last one to the end
DTRAIN_FAILPOINT=step:6:kill "${job[@]}" run.name=steps --restarts 9 >/dev/null 2>"$work/log" || fail "exit $?"
[ "$(grep -c "again in" "$work/log")" = 3 ] || fail "$(grep again "$work/log")"
[ "$(hash "$work/runs/calm")" = "$(hash "$work/runs/steps")" ] || fail "other weights"

# -- the same step twice is a bug, and a third time nobody tries
rc=0
DTRAIN_FAILPOINT=step:3:kill "${job[@]}" run.name=bug --restarts 9 >/dev/null 2>"$work/log" || rc=$?
[ $rc = 137 ] || fail "exit $rc"
[ "$(grep -c "again in" "$work/log")" = 1 ] || fail "$(grep again "$work/log")"
grep -q "as before: not started again" "$work/log" || fail "does not say why it ended"

# -- restarts are counted, and without them nothing is repeated
for n in 0 1; do
    rc=0
    DTRAIN_FAILPOINT=step:6:kill "${job[@]}" run.name=counted$n $([ $n = 0 ] || echo --restarts $n) >/dev/null 2>"$work/log" || rc=$?
    [ $rc = 137 ] || fail "exit $rc"
    [ "$(grep -c "again in" "$work/log")" = $n ] || fail "--restarts $n: $(grep again "$work/log")"
done
grep -q "and --restarts is used up" "$work/log" || fail "does not say that --restarts is used up"

# -- without metrics.jsonl nobody knows whether it got further: it is started again. And a host that is back before its
# file systems are is waited for. mpirun loses a host twice; the second answer of the host is that of one without a folder
mkdir "$work/bin"
cat >"$work/bin/mpirun" <<SH
#!/bin/sh
echo >>"$work/starts"
[ "\$(wc -l <"$work/starts")" = 3 ] || exit 240
mkdir -p "$work/runs/far" && touch "$work/runs/far/result.json"
SH
cat >"$work/bin/agent" <<SH
#!/bin/sh
case "\$2" in *'echo begin'*)
    echo >>"$work/asked"
    [ "\$(wc -l <"$work/asked")" != 2 ] || { echo begin; echo "sh: 1: cd: can't cd to /mnt"; echo end; exit; } ;;
esac
exec sh -c "\$2"
SH
chmod +x "$work"/bin/*
PATH=$work/bin:$PATH "$DTRAIN" launch hosts --ssh "$work/bin/agent" --hosts far:2 --restarts 2 "$config" run.name=far 'metrics.sinks=[terminal]' \
    >/dev/null 2>"$work/log" || fail "a host that is back before its file systems: exit $?"
grep -q "host far cannot run .*can't cd to /mnt: waiting up to" "$work/log" || fail "does not say what is waited for"
grep -q "(code 240); what was done is lost: no checkpoint yet; start 2 of 2 again" "$work/log" || fail "$(grep again "$work/log")"

# -- an mpirun that outlives its ranks after a signal is ended; the code of a rank whose save failed is the job's
printf '#!/bin/sh\ntrap "exit $CODE" TERM\ntrap : USR1\ntouch %s/began\nwhile :; do sleep 0.1; done\n' "$work" >"$work/bin/mpirun"
for code in 5 75 143; do
    rm -f "$work/began"
    CODE=$code PATH=$work/bin:$PATH "${job[@]}" run.name=outlived >/dev/null 2>"$work/log" &
    pid=$!
    wait_until test -e "$work/began"
    kill -TERM $pid
    rc=0
    wait $pid || rc=$?
    [ $rc = $((code == 5 ? 5 : 75)) ] || fail "an mpirun that ended late with $code: exit $rc"
done

# -- a signal between two starts
rm "$work/log"
DTRAIN_FAILPOINT=step:6:kill "${job[@]}" run.name=pause --restarts 9 >/dev/null 2>"$work/log" &
pid=$!
wait_until grep -qs "again in" "$work/log"
kill -TERM $pid
rc=0
wait $pid || rc=$?
[ $rc = 75 ] || fail "TERM in between: exit $rc"
echo passed
