#!/usr/bin/env bash
# The timeline of three steps on two ranks whose clocks are 1000 s apart, and of ten steps on a signal.
. "${SOURCE:?}/tests/small_run.sh" || exit
need_mpi
sanitized && { echo "skipped: a sanitizer wants to be preloaded first"; exit 77; }
small_data "$work"
config=$(small_config "$work")
cc -O1 -shared -fPIC -o "$work/behind.so" "$SOURCE/tests/monitoring/behind.c" -ldl
words=("$DTRAIN" "$config" metrics.trace.steps=5..8 "eval.every=6 steps" "checkpoint.every=1 steps" comm.bucket=16)
exits 0 'trace.json: the timeline' "${ranks[@]}" 1 "${words[@]}" : -np 1 -x LD_PRELOAD="$work/behind.so" "${words[@]}"
py check_ranks "$work/runs/small/trace.json" || fail "trace.json"
exits 0 '' "$DTRAIN" report "$work/runs/small" --trace
grep -qE 'critical path, rank [01] of 2: [0-9.]+ ms, .*backward [0-9.]+%.*commit' "$work/out" || fail "the critical path"
[ "$(grep -cE '^communication of rank [01]: [0-9.]+ ms, [0-9.]+% of it overlapped with backward$' "$work/out")" = 2 ] || fail "overlap"
# reads take so long that one is under way when the trace ends, and is cut there
cc -O1 -shared -fPIC -o "$work/slow.so" "$SOURCE/tests/slow_read.c" -ldl
exits 0 '' env LD_PRELOAD="$work/slow.so" SLOW_READ_MATCH=data.mdb SLOW_READ_US=200000 SLOW_READ_AFTER=80 SLOW_READ_COUNT=40 \
    "$DTRAIN" "$config" run.name=slow data.cache=none data.workers=2 train.global_batch=16 train.max_steps=8 metrics.trace.steps=1..3
py check_slow "$work/runs/slow/trace.json" || fail "a read that waits"
train run.name=none
[ ! -e "$work/runs/none/trace.json" ] || fail "a trace that nobody asked for"
refused 'expected FROM..TO' metrics.trace.steps=8..5
exits 0 'metrics.trace.steps is 40..45, and the run ends at step 40: there is no trace.json' \
    "$DTRAIN" "$config" run.name=late metrics.trace.steps=40..45
exits 3 'a run writes it with metrics.trace.steps=20..30, or on SIGUSR2' \
    "$DTRAIN" report "$work/runs/late" --trace

DTRAIN_FAILPOINT=step:1:nap "$DTRAIN" "$config" run.name=asked train.max_steps=100000 train.epochs=100000 >"$work/out" 2>"$work/log" &
pid=$!
wait_for_step asked
kill -USR2 $pid
wait_until test -s "$work/runs/asked/trace.json"
kill -USR1 $pid
rc=0
wait $pid || rc=$?
[ $rc = 75 ] || fail "exit $rc"
py check_asked "$work/runs/asked/trace.json" || fail "trace.json of the signal"
