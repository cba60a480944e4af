#!/usr/bin/env bash
# A set that another program cuts while it is read: exit 3 with the file, where an LMDB library's map would be a
# SIGBUS. The read that waits (tests/slow_read.c) makes sure that the file is cut in the middle.
. "${SOURCE:?}/tests/small_run.sh" || exit
sanitized && { echo "skipped: a sanitizer has its own pread"; exit 77; }

cc -O1 -shared -fPIC -o "$work/slow.so" "$SOURCE/tests/slow_read.c" -ldl
small_data "$work"
config=$(small_config "$work")
slow=(env LD_PRELOAD="$work/slow.so" SLOW_READ_MATCH=data.mdb SLOW_READ_US=300000000 SLOW_READ_COUNT=1)
cut_while() { # reads before the one that waits, command …: cut while that waits
    local after=$1 rc=0 pid
    shift
    rm -rf "$work/cut.lmdb"
    cp -r "$work/small.lmdb" "$work/cut.lmdb"
    rm -f "$work/waits"
    SLOW_READ_AFTER=$after SLOW_READ_MARK=$work/waits "${slow[@]}" "$@" >"$work/out" 2>"$work/log" &
    pid=$!
    wait_until [ -e "$work/waits" ]
    truncate -s 100000 "$work/cut.lmdb/data.mdb"
    rm "$work/waits"
    wait $pid || rc=$?
    [ $rc = 3 ] || fail "exit $rc, not 3: $*"
    grep -q "cut.lmdb" "$work/log" "$work/out" || fail "the file is not named: $*"
}

cut_while 20 "$DTRAIN" data verify "$work/cut.lmdb"
grep -q "bytes wanted" "$work/log" "$work/out" || fail "verify does not say what is missing"
cut_while 60 "$DTRAIN" "$config" data.path="$work/cut.lmdb" run.name=train train.epochs=200
grep -qE "data.mdb: record (fingerprint|iris)/" "$work/log" || fail "the training does not name the record"
# the walk of a set without its index
rm "$work/small.lmdb/data.mdb.index"
cut_while 3 "$DTRAIN" data ls "$work/cut.lmdb"
