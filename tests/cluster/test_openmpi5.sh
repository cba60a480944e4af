#!/usr/bin/env bash
# Open MPI 5, and other Debians and Ubuntus: dtrain is built in a root folder that mmdebstrap makes (SUITE=trixie has 5.0, noble
# and bookworm have 4.1), and the tests of launching, of lost ranks and of hosts run there. Packages, and half an hour: with FULL=1.
# ROOT=DIR keeps the folder.
. "${SOURCE:?}/tests/small_run.sh" || exit
[ "${FULL:-}" = 1 ] || { echo "skipped: builds dtrain in another Debian; FULL=1 does"; exit 77; }
. "$SOURCE/tests/cluster/roots.sh"

suite=${SUITE:-trixie}
root=${ROOT:-$work/root}
[ -e "$root/etc/os-release" ] || make_root "$suite" "$root"
inside() { in_root "$root" "$@"; }

inside /src/launch/packages.sh >"$work/log" 2>&1 || fail "packages of $suite"
inside apt-get install -y -qq --no-install-recommends openssh-server openssh-client iproute2 procps python3 >"$work/log" 2>&1 ||
    fail "packages of $suite"
inside env TARGETS="dtrain dtrain_mpi" /src/launch/build.sh /build -DDTRAIN_TESTS=OFF -DDTRAIN_CUDA=OFF >"$work/log" 2>&1 ||
    fail "dtrain does not build on $suite"
inside mpirun --version | head -1
failed=()
for test in ${TESTS:-mpi/test_launch_local fault/test_launch_restarts cluster/test_launch_hosts}; do
    begin=$SECONDS rc=0
    inside env SOURCE=/src BUILD=/build DTRAIN=/build/dtrain ${KINDS:+KINDS="$KINDS"} bash "/src/tests/$test.sh" >"$work/log" 2>&1 || rc=$?
    echo "$suite: $test: exit $rc after $((SECONDS - begin)) s"
    [ $rc = 0 ] || { tail -n 30 "$work/log"; failed+=("$test"); }
done
[ ${#failed[@]} = 0 ] || fail "on $suite: ${failed[*]}"
