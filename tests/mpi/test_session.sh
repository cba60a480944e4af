#!/usr/bin/env bash
# What ranks decide together before the first step, on fake GPUs: all on GPUs or none, rank 0's engines
# on all of them, and rank 0's failure told at once.
. "${SOURCE:?}/tests/small_run.sh" || exit
program=$BUILD/test_session_mpi
need_mpi

job() { # count, expected exit code, arguments
    local np=$1 want=$2 rc=0
    shift 2
    timeout 600 "${ranks[@]}" "$np" "$program" "$@" >"$work/out" 2>"$work/log" || rc=$?
    [ "$rc" = "$want" ] || fail "$*: exit $rc, not $want"
}
lines() { # count, text
    [ "$(grep -c -- "$2" "$work/out")" = "$1" ] || fail "not $1 lines of: $2: $(cat "$work/out")"
}

job 3 0 auto 0,1,2
lines 3 ": cuda$"
job 3 0 auto none
lines 3 ": cpu$"
job 3 2 auto 0,2
lines 3 "2 of 3 ranks have a GPU; rank 1 on $(uname -n | cut -c1-63) has none: no driver here.*(shared)$"

mkdir "$work/engines"
job 3 0 plans "$work/engines"
lines 1 "^rank 0: .* choices, timed"
lines 2 "^rank [12]: .* choices, taken"
[ "$(grep -o '[0-9]* choices' "$work/out" | sort -u | wc -l)" = 1 ] || fail "choices differ"
rm -r "$work/engines"

job 3 70 fail "$work/engines"
lines 1 "^rank 0: out of memory .*(shared)$"
lines 2 "^rank [12]: rank 0: out of memory .*(shared)$" # not: rank 0 did not take part, after a deadline
