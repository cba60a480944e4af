#!/usr/bin/env bash
# What ranks decide together before the first step, on pretending machines: all on GPUs or none, rank 0's engines
# on all of them, and rank 0's failure told at once.
set -euo pipefail
program=$BUILD/test_session_mpi
command -v mpirun >/dev/null || { echo "skipped: no mpirun"; exit 77; }
[ -f "$BUILD/dtrain_mpi.so" ] || { echo "skipped: built without MPI"; exit 77; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export TSAN_OPTIONS="${TSAN_OPTIONS:-}:detect_deadlocks=0" ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

fail() {
    echo "FAILED: $*" >&2
    cat "$tmp/out" "$tmp/err" >&2 || true
    exit 1
}
ranks() { # count, expected exit code, arguments
    local np=$1 want=$2 rc=0
    shift 2
    timeout 120 mpirun --oversubscribe --bind-to none -np "$np" "$program" "$@" >"$tmp/out" 2>"$tmp/err" || rc=$?
    [ "$rc" = "$want" ] || fail "$*: exit $rc, not $want"
}
lines() { # count, text
    [ "$(grep -c -- "$2" "$tmp/out")" = "$1" ] || fail "not $1 lines of: $2"
}

ranks 3 0 auto 0,1,2
lines 3 ": cuda$"
ranks 3 0 auto none
lines 3 ": cpu$"
ranks 3 2 auto 0,2
lines 3 "2 of 3 ranks have a GPU; rank 1 on $(uname -n | cut -c1-63) has none: no driver here.*(told)$"

mkdir "$tmp/engines"
ranks 3 0 plans "$tmp/engines"
lines 1 "^rank 0: .* choices, timed, 0 plans restored"
lines 2 "^rank [12]: .* choices, taken, [1-9][0-9]* plans restored, 0 made"
[ "$(grep -o '[0-9]* choices' "$tmp/out" | sort -u | wc -l)" = 1 ] || fail "choices differ"
rm -r "$tmp/engines"

begin=$SECONDS
ranks 3 70 fail "$tmp/engines"
lines 1 "^rank 0: after 0 s: out of memory .*(told)$"
lines 2 "^rank [12]: after [0-9] s: rank 0: out of memory .*(told)$"
[ $((SECONDS - begin)) -le 20 ] || fail "rank 0's failure took $((SECONDS - begin)) s"
