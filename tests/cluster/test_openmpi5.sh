#!/usr/bin/env bash
# Open MPI 5, and other Debians and Ubuntus: dtrain is built in a root folder that debootstrap makes (SUITE=trixie has 5.0, noble
# and bookworm have 4.1), and the tests of launching, of lost ranks and of hosts run there. Packages, and half an hour: with FULL=1.
# ROOT=DIR keeps the folder.
. "${SOURCE:?}/tests/small_run.sh" || exit
[ "${FULL:-}" = 1 ] || { echo "skipped: builds dtrain in another Debian; FULL=1 does"; exit 77; }
PATH+=:/usr/sbin
command -v debootstrap >/dev/null || { echo "skipped: no debootstrap"; exit 77; }
[ "$(id -u)" = 0 ] && unshare --mount true 2>/dev/null || { echo "skipped: no namespaces here, or not root"; exit 77; }
[ "${IN_NAMESPACE:-}" ] || IN_NAMESPACE=1 exec unshare --mount bash "$0" # mounts end with it

suite=${SUITE:-trixie}
case $suite in
    noble | jammy) mirror=${UBUNTU_MIRROR:-http://archive.ubuntu.com/ubuntu} parts=main,universe ;;
    *) mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian} parts=main ;;
esac
scripts=/usr/share/debootstrap/scripts # an older debootstrap makes newer Ubuntus as it makes jammy
root=${ROOT:-$work/root}
[ -e "$root/etc/os-release" ] || debootstrap --variant=minbase --components=$parts "$suite" "$root" "$mirror" \
    "$([ -e $scripts/$suite ] && echo $scripts/$suite || echo $scripts/jammy)" >"$work/log" 2>&1 ||
    { tail -3 "$work/log"; echo "skipped: no $suite from $mirror"; exit 77; }
mkdir -p "$root"/{src,build,proc,sys,dev}
cp /etc/resolv.conf "$root/etc/" 2>/dev/null || true
mount --make-rprivate /
mount --rbind "$root" "$root"
mount --bind "$SOURCE" "$root/src"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mount -t proc proc "$root/proc"
# not chroot: whoever enters the namespaces of a host that the tests make is at the root of its mounts
inside() {
    unshare --mount bash -c 'cd "$1" && mkdir -p .old && pivot_root . .old && umount -l /.old && shift &&
        exec env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 "$@"' - "$root" "$@"
}

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
