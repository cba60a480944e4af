#!/usr/bin/env bash
# One of two ranks hangs: before comm.timeout ends the job, the log says where both are. A job that goes well has each
# rank's times in metrics.jsonl.
. "${SOURCE:?}/tests/small_run.sh" || exit
need_mpi
small_data "$work"
config=$(small_config "$work")
# heartbeats bring them: the job trains until they have come
"${ranks[@]}" 2 "$DTRAIN" "$config" run.name=well train.max_steps=1000000 train.epochs=1000000 2>"$work/log" &
pid=$!
wait_until grep -qsE '"kind":"ranks".*"imbalance":[0-9.]+,"slowest":[01],"data_s":\[[0-9.]+,[0-9.]+\],"compute_s":\[[0-9.]+,[0-9.]+\],"rss_bytes":\[[0-9]{7,},[0-9]{7,}\]' \
    "$work/runs/well/metrics.jsonl"
kill -USR1 $pid
rc=0
wait $pid || rc=$?
[ $rc = 75 ] || fail "exit $rc"
! grep -q 'Positions of the ranks' "$work/log" || fail "a report of a job that does not hang"

words=("$DTRAIN" "$config" comm.timeout=12s run.name=hung)
rc=0
timeout 120 "${ranks[@]}" 1 "${words[@]}" : -np 1 -x DTRAIN_FAILPOINT=step:5:hang "${words[@]}" >"$work/out" 2>"$work/log" || rc=$?
[ $rc = 240 ] || fail "exit $rc"
at=$(grep -n 'no progress for [67] s; after 12 s the job ends (comm.timeout). Positions of the ranks:' "$work/log" | cut -d: -f1)
[ "$(wc -w <<<"$at")" = 1 ] || fail "not one report, but at lines: $at" # its own lines are no progress
end=$(grep -n 'did not take part in' "$work/log" | head -1 | cut -d: -f1)
[ "$end" -gt "$at" ] || fail "the report comes behind the end"
grep -qE 'rank 0 on [^ ]+: step 5, waiting for gradient bucket 1 of [0-9]+, for [0-9]+ s$' "$work/log" || fail "where rank 0 is"
grep -qE 'rank 1 on [^ ]+: step 5, after the step, for [0-9]+ s$' "$work/log" || fail "where rank 1 is"

# a rank that is stopped gives no sign: the watch ends the job, and the sinks hear it
words=("$DTRAIN" "$config" comm.timeout=8s run.name=stopped "metrics.sinks=[jsonl, prometheus]"
    metrics.linger=60 "metrics.textfile=$work")
rc=0
timeout 120 "${ranks[@]}" 1 "${words[@]}" : -np 1 -x DTRAIN_FAILPOINT=step:5:stop "${words[@]}" >"$work/out" 2>"$work/log" || rc=$?
[ $rc = 240 ] || fail "exit $rc"
grep -qE 'rank 1 on [^ ]+: step [0-5], .*, for [0-9]+ s, no heartbeat for [3-9] s$' "$work/log" || fail "since when rank 1 is silent"
tail -1 "$work/runs/stopped/metrics.jsonl" | grep '^{"kind":"end","step":5,"status":240,"message":".*no heartbeat' >/dev/null ||
    fail "metrics.jsonl has no end: $(tail -1 "$work/runs/stopped/metrics.jsonl")"
grep -q '^dtrain_exit_status{run="stopped",reason="peer"} 240$' "$work/dtrain-stopped.prom" || fail "the textfile has no end"
"$DTRAIN" watch "$work/runs/stopped" | grep 'stopped  Failed: ' >/dev/null || fail "$("$DTRAIN" watch "$work/runs/stopped")"
