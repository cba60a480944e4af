# Source this behind small_run.sh: root folders of other Debians and Ubuntus, in which tests run. Skips the test that has
# no namespaces or is not root.
#   make_root SUITE DIR      makes DIR of nothing but apt; the test is skipped where the archive cannot be reached.
#                            DEBIAN_MIRROR and UBUNTU_MIRROR name other archives, ROOT_ARCH another architecture, which
#                            needs its emulator (arm/wheel.sh)
#   in_root DIR COMMAND …    runs COMMAND with DIR as its root and the source as /src. Mounts are of a namespace of the
#                            command's own: none is left when a folder is removed
PATH+=:/usr/sbin:/sbin
command -v mmdebstrap >/dev/null || { echo "skipped: no mmdebstrap"; exit 77; }
[ "$(id -u)" = 0 ] && unshare --mount true 2>/dev/null || { echo "skipped: no namespaces here, or not root"; exit 77; }

make_root() {
    local archive="deb ${DEBIAN_MIRROR:-http://deb.debian.org/debian} $1 main"
    case $1 in # Debian has no keys of Ubuntu's
        noble | jammy) archive="deb [trusted=yes] ${UBUNTU_MIRROR:-http://archive.ubuntu.com/ubuntu} $1 main universe" ;;
    esac
    mmdebstrap --quiet --mode=root --arch="${ROOT_ARCH:-$(dpkg --print-architecture)}" --variant=minbase --include=apt "$1" "$2" "$archive" >"$work/log" 2>&1 ||
        { tail -n 3 "$work/log"; echo "skipped: no $1 from its archive"; exit 77; }
    cp /etc/resolv.conf "$2/etc/" 2>/dev/null || true
}

# not chroot: whoever enters the namespaces of a host that the tests make is at the root of its mounts
in_root() {
    unshare --mount bash -ec '
        root=$1 source=$2
        shift 2
        mkdir -p "$root"/{src,.old}
        mount --make-rprivate /
        mount --bind "$root" "$root"
        mount --bind "$source" "$root/src"
        mount --rbind /dev "$root/dev"
        mount --rbind /sys "$root/sys"
        mount -t proc proc "$root/proc"
        cd "$root"
        pivot_root . .old
        umount -l /.old
        exec env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 "$@"' - "$1" "$SOURCE" "${@:2}"
}
