#!/usr/bin/env bash
# A process that crashes says so, with host and step, and ends by the signal that it got.
. "${SOURCE:?}/tests/small_run.sh" || exit
sanitized && { echo "skipped: a sanitizer makes its own report, and exit code"; exit 77; }

small_data "$work"
config=$(small_config "$work")
for signal in SEGV BUS; do
    DTRAIN_FAILPOINT=step:3:stop "$DTRAIN" "$config" run.name=$signal >/dev/null 2>"$work/log" &
    pid=$!
    wait_until have_stopped 0
    kill -$signal $pid
    kill -CONT $pid
    rc=0
    wait $pid || rc=$?
    [ $rc = $((128 + $(kill -l $signal))) ] || fail "SIG$signal: exit $rc"
    grep -Eq "^dtrain: error: after step 3: a (segmentation fault|bus error).* on $(uname -n | cut -c1-63)" "$work/log" || fail "SIG$signal: no line"
done
