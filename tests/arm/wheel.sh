#!/usr/bin/env bash
# The wheel for arm64, without such a machine: tests/arm/wheel.sh [OUT_DIR]. `python -m build` makes it in a root of Debian 13's
# arm64 packages, whose programs qemu-user runs (binfmt_misc), with this machine's cross compiler, which needs no emulator.
# Then cluster/test_wheel.sh installs it in a bare root of arm64. Half an hour: by hand, and nightly (tests/run.sh all).
set -euo pipefail
cd "$(dirname "$0")/../.."
export SOURCE=$PWD DTRAIN=${DTRAIN:-$PWD/build/dtrain} BUILD=${BUILD:-$PWD/build} ROOT_ARCH=arm64
out=$(realpath -m "${1:-.cache/arm-wheel}")
. tests/small_run.sh
for package in mmdebstrap arch-test gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep 'install ok installed' >/dev/null || missing="${missing:-} $package"
done
[ -z "${missing:-}" ] || DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
. tests/cluster/roots.sh
# programs of arm64 run by themselves while this test does
binfmt=/proc/sys/fs/binfmt_misc
[ -e $binfmt/register ] || mount -t binfmt_misc none $binfmt
if [ ! -e $binfmt/qemu-aarch64 ]; then
    cat /usr/lib/binfmt.d/qemu-aarch64.conf >$binfmt/register
    trap 'echo -1 >$binfmt/qemu-aarch64; clean_up' EXIT
fi

maker=$work/maker
make_root trixie "$maker"
mkdir "$maker/opt/"{cross,dtrain,pypi}
in_root "$maker" sh -c "apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    $(launch/packages.sh --list apt | grep -- '-dev$' | paste -sd' ') libmpich-dev python3-venv cmake ninja-build pkgconf file protobuf-c-compiler" \
    >"$work/log" 2>&1 || fail "the packages of arm64"
# the cross compiler below /opt/cross, and what it loads
tar -C / -c usr/bin/aarch64-linux-gnu-{gcc,gcc-12,as,ld,ld.bfd} usr/lib/gcc-cross usr/aarch64-linux-gnu | tar -x -C "$maker/opt/cross"
ln -s /opt/cross/usr/aarch64-linux-gnu "$maker/usr/aarch64-linux-gnu"
ldd /usr/lib/gcc-cross/aarch64-linux-gnu/*/{cc1,collect2} /usr/aarch64-linux-gnu/bin/{as,ld} |
    awk '/=> \// {print $3} /^[ \t]*\/lib/ {print $1}' | sort -u | while read -r file; do install -D "$file" "$maker$file"; done
printf '#!/bin/sh\nexec /opt/cross/usr/bin/aarch64-linux-gnu-gcc --sysroot=/ "$@" -L/usr/lib/aarch64-linux-gnu\n' >"$maker/usr/local/bin/cross-gcc"
chmod +x "$maker/usr/local/bin/cross-gcc"
git archive HEAD | tar -x -C "$maker/opt/dtrain"
"$python" -m pip -q download -d "$maker/opt/pypi" build scikit-build-core 2>"$work/log" || { echo "skipped: nothing from PyPI"; exit 77; }
in_root "$maker" env -C /opt/dtrain CC=/usr/local/bin/cross-gcc sh -ec '
    python3 -m venv /opt/env
    /opt/env/bin/pip -q install --no-index --find-links /opt/pypi build scikit-build-core
    /opt/env/bin/python -m build --wheel --no-isolation -o /opt/wheels .' >"$work/log" 2>&1 || fail "python -m build for arm64"
mkdir -p "$out" && cp "$maker"/opt/wheels/*.whl "$out/"
rm -rf "$maker"
WHEEL=$(ls "$out"/*_aarch64.whl) bash tests/cluster/test_wheel.sh
