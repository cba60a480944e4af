#!/usr/bin/env bash
# A read of one rank's loader does not come back: that rank says which file and record it reads and for how long, and
# ends the job with 5 after run.io_timeout. One that comes back is waited for, however short comm.timeout is.
. "${SOURCE:?}/tests/small_run.sh" || exit
need_mpi
sanitized && { echo "skipped: a sanitizer has its own pread"; exit 77; }

cc -O1 -shared -fPIC -o "$work/slow.so" "$SOURCE/tests/slow_read.c" -ldl
small_data "$work"
config=$(small_config "$work")
slow() { # microseconds of one read of rank 1, exit code, key=value …
    local us=$1 want=$2 rc=0
    shift 2
    SLOW_READ_MATCH=data.mdb SLOW_READ_US=$us SLOW_READ_AFTER=40 SLOW_READ_COUNT=1 SLOW_READ_RANK=1 \
        "${ranks[@]}" 2 -x LD_PRELOAD="$work/slow.so" "$DTRAIN" "$config" train.global_batch=8 "$@" \
        >"$work/out" 2>"$work/log" || rc=$?
    [ $rc = "$want" ] || fail "exit $rc instead of $want"
}
slow 300000000 5 comm.timeout=4s run.io_timeout=15s
grep -E "dtrain\[1\].*has waited 10 s for data.*reading .*data.mdb \(record .*\) for [1-9][0-9]+ s" "$work/log" ||
    fail "rank 1 does not say what it waits for"
grep -E "dtrain\[1\]: error: .*data.mdb: cannot read: no response for 15 s" "$work/log" || fail "rank 1 does not name the file"
slow 8000000 0 comm.timeout=3s run.name=patient
grep -E "dtrain\[1\]: warning: .*data.mdb: read: no response for 5 s" "$work/log" || fail "no warning"
