#!/usr/bin/env bash
# A read of one rank's loader does not come back: that rank says which file and record it reads and for how
# long, and after comm.timeout the others end the job with 240 and name it.
. "${SOURCE:?}/tests/small_run.sh" || exit
need_mpi
sanitized && { echo "skipped: a sanitizer has its own pread"; exit 77; }

cc -O1 -shared -fPIC -o "$work/slow.so" "$SOURCE/tests/slow_read.c" -ldl
small_data "$work"
config=$(small_config "$work")
rc=0
SLOW_READ_MATCH=data.mdb SLOW_READ_US=300000000 SLOW_READ_AFTER=40 SLOW_READ_COUNT=1 SLOW_READ_RANK=1 \
    "${ranks[@]}" 2 -x LD_PRELOAD="$work/slow.so" "$DTRAIN" "$config" train.global_batch=8 comm.timeout=20s \
    >"$work/out" 2>"$work/log" || rc=$?
[ $rc = 240 ] || fail "exit $rc instead of 240"
grep -E "dtrain\[1\].*has waited 10 s for data.*reading .*data.mdb \(record .*\) for [1-9][0-9]+ s" "$work/log" ||
    fail "rank 1 does not say what it waits for"
grep -E "rank 1 on .* did not take part.*comm.timeout" "$work/log" || fail "rank 0 does not name rank 1"
