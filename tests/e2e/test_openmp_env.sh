#!/usr/bin/env bash
# libgomp's threads spin for a short, bounded time, unless the user says how they wait: libdtrain_openmp.so sets that, and its
# constructor runs ahead of libgomp's only if it stands behind libgomp on the link line.
. "${SOURCE:?}/tests/small_run.sh" || exit
unset OMP_WAIT_POLICY GOMP_SPINCOUNT

count() { env "$@" OMP_DISPLAY_ENV=verbose "$DTRAIN" --version 2>&1 >/dev/null | sed -n "s/.*GOMP_SPINCOUNT = '\(.*\)'.*/\1/p"; }
is() { [ "$(count "${@:2}")" = "$1" ] || fail "libgomp spins $(count "${@:2}") times, not $1: ${*:2}"; }
is 1000
is 0 OMP_WAIT_POLICY=passive
is 30000000000 OMP_WAIT_POLICY=active
is 7 GOMP_SPINCOUNT=7
is 7 OMP_WAIT_POLICY=active GOMP_SPINCOUNT=7

! command -v readelf >/dev/null ||
    [ "$(readelf -d "$DTRAIN" | grep -o 'libgomp\.so\|libdtrain_openmp\.so' | paste -sd' ')" = "libgomp.so libdtrain_openmp.so" ] ||
    fail "libdtrain_openmp.so is not behind libgomp on the link line of $DTRAIN"
echo passed
