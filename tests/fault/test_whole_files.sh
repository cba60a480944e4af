#!/usr/bin/env bash
# Files that a verb writes are whole or not there: two that write one at once, signals in the middle, kills.
. "${SOURCE:?}/tests/small_run.sh" || exit
small_data "$work" 4 4
config=$(small_config "$work" 4)
train train.max_steps=1
run=$work/runs/small
nothing_but() { # NAME …: all that is left in $work/out.d
    [ "$(ls "$work/out.d")" = "$(printf '%s\n' "$@")" ] || fail "left: $(ls "$work/out.d"), not $*"
}
begun() { compgen -G "$work/out.d/*.tmp.*" >/dev/null; }
mkdir "$work/out.d"

# -- the first is stopped at its first write, the second ends meanwhile; then the first goes on
out=$work/out.d/p.csv
"$DTRAIN" predict "$run" "$work/small.lmdb" --top 1 >"$work/one" 2>>"$work/log"
"$DTRAIN" predict "$run" "$work/small.lmdb" --top 4 >"$work/four" 2>>"$work/log"
[ "$(wc -l <"$work/one")" -gt 10 ] && ! cmp -s "$work/one" "$work/four" || fail "the two do not differ"
DTRAIN_FAILPOINT=io:2:stop "$DTRAIN" predict "$run" "$work/small.lmdb" --top 1 -o "$out" 2>>"$work/log" &
pid=$!
wait_until have_stopped 0
"$DTRAIN" predict "$run" "$work/small.lmdb" --top 4 -o "$out" 2>>"$work/log"
cmp "$out" "$work/four" || fail "the second is not whole"
kill -CONT $pid
wait $pid || fail "the first ends with $?"
cmp "$out" "$work/one" || fail "the file is neither's"
nothing_but p.csv

# -- a signal while it is written: 75 where threads compute, else by the signal; the old file stays
ends_with() { # CODE SIGNAL COMMAND …
    local code=0
    DTRAIN_FAILPOINT=io:2:hang "${@:3}" >>"$work/log" 2>&1 &
    pid=$!
    wait_until begun
    kill -"$2" $pid
    wait $pid || code=$?
    [ $code = "$1" ] || fail "exit $code behind $2, not $1: ${*:3}"
    nothing_but p.csv
    cmp "$out" "$work/one" || fail "the old file is gone: ${*:3}"
}
for signal in TERM INT USR1 HUP; do
    ends_with 75 $signal "$DTRAIN" predict "$run" "$work/small.lmdb" -o "$out"
done
grep -q "stopped by SIGUSR1 with nothing to save: run the same command again" "$work/log" || fail "it does not say so"
ends_with 75 TERM "$DTRAIN" eval "$run" --csv "$out"
ends_with 75 TERM "$DTRAIN" check "$config" --dot "$out"
ends_with 143 TERM "$DTRAIN" export "$run" "$work/out.d/net.onnx"
ends_with 138 USR1 "$DTRAIN" data export "$work/small.lmdb" "$out" --overwrite
ends_with 143 TERM "$DTRAIN" data export "$work/small.lmdb" --sqlite "$out" --overwrite

if have_mpi; then # a signal reaches all ranks; mpirun's code is a rank's
    code=0
    DTRAIN_FAILPOINT=io:2:hang "${ranks[@]}" 2 "$DTRAIN" predict "$run" "$work/small.lmdb" -o "$out" >/dev/null 2>>"$work/log" &
    pid=$!
    wait_until begun
    kill -USR1 $pid
    wait $pid || code=$?
    [ $code = 75 ] || fail "two ranks: exit $code"
    nothing_but p.csv
fi

# -- a kill leaves it beside the file; the next one is not held up by it
DTRAIN_FAILPOINT=io:2:kill "$DTRAIN" predict "$run" "$work/small.lmdb" -o "$out" 2>>"$work/log" || true
begun || fail "nothing is left of a kill"
"$DTRAIN" predict "$run" "$work/small.lmdb" --top 4 -o "$out" 2>>"$work/log"
cmp "$out" "$work/four" || fail "behind a kill"
echo passed
