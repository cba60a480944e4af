#!/usr/bin/env bash
# The CPU program for arm64, without such a machine: cross-compiled against a root of Debian 13's packages, run by qemu-user.
# tests/run.sh arm. Unit and golden tests under pages of 4 KiB, some also as a CPU with SVE of 256 bits, and a look at the
# hottest kernels' instructions (check_vectors.py), then pack, verify, train, stop and resume under pages of 4 and of
# 64 KiB: packed shards must be those of this machine's program (BUILD, default build) to the byte, LMDBs of each side are
# read by the other, and losses agree to 1e-4. What the emulator lacks is left out by name.
set -euo pipefail
cd "$(dirname "$0")/../.."
host=${BUILD:-$PWD/build}
export ARM_ROOT=$PWD/.cache/arm-root
build=$PWD/build-arm

for package in mmdebstrap gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep 'install ok installed' >/dev/null || missing="${missing:-} $package"
done
[ -z "${missing:-}" ] || DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
# base-files: the links of /lib
libraries=$(launch/packages.sh --list apt | grep -- '-dev$' | paste -sd,),base-files,libc6-dev,libgomp1
if [ "$(cat "$ARM_ROOT/complete" 2>/dev/null)" != "$libraries" ]; then
    rm -rf "$ARM_ROOT"
    mmdebstrap --quiet --arch=arm64 --variant=extract --include="$libraries" trixie "$ARM_ROOT" "${DEBIAN_MIRROR:-http://deb.debian.org/debian}"
    # qemu 7.2, with pages larger than the machine's, loses what of a library's last page lies behind the file's end
    find "$ARM_ROOT/usr/lib" -name '*.so*' -type f -size +64k -exec truncate --size=%65536 {} +
    echo "$libraries" >"$ARM_ROOT/complete"
fi
TARGETS="dtrain dtrain_mpi tests_unit tests_golden" launch/build.sh "$build" -DCMAKE_TOOLCHAIN_FILE="$PWD/tests/arm/toolchain.cmake" -DDTRAIN_CUDA=OFF -DDTRAIN_TESTS=ON

# qemu has no robust mutexes, no limit of address space, no clock that a test can rely on, and is too slow for statistics and
# for many steps of whole networks. Golden tolerances are those of every ISA.
export QEMU_SET_ENV=LD_LIBRARY_PATH=$build GOLDEN_STEPS=1
ctest --test-dir "$build" -R '^(unit|golden)/test_' -E 'augment_draws|cache|cpu_choices|test_base$|golden_torchvision|golden_onnx$|onnx_calls|onnxruntime' \
    -j$((3 * $(nproc))) --timeout 900 --output-on-failure --no-tests=error # slots: tests/CMakeLists.txt
QEMU_CPU=max,sve-max-vq=2 ctest --test-dir "$build" -R 'golden/test_golden_(ops|layers|onnx_networks)$' -j$((3 * $(nproc))) \
    --timeout 900 --output-on-failure --no-tests=error
python3 tests/arm/check_vectors.py "$build"

export SOURCE=$PWD BUILD=$host DTRAIN=$host/dtrain
. tests/small_run.sh
small_data "$work"
config=$(small_config "$work")
for page in 4096 65536; do
    printf '#!/bin/sh\nexec qemu-aarch64-static -p %s -L %s -E LD_LIBRARY_PATH=%s %s/dtrain "$@"\n' $page "$ARM_ROOT" "$build" "$build" >"$work/arm"
    chmod +x "$work/arm"
    for out in tar lmdb; do
        "$DTRAIN" pack "$work/raw" "$work/x86.$out" --overwrite >/dev/null 2>"$work/log" || fail "pack"
        "$work/arm" pack "$work/raw" "$work/arm$page.$out" >/dev/null 2>"$work/log" || fail "arm64 does not pack to $out, pages of $page"
        "$work/arm" data verify "$work/x86.$out" >/dev/null 2>"$work/log" || fail "arm64 does not read x86's $out, pages of $page"
        "$DTRAIN" data verify "$work/arm$page.$out" >/dev/null 2>"$work/log" || fail "x86 does not read arm64's $out, pages of $page"
    done
    cmp "$work/x86.tar" "$work/arm$page.tar" || fail "arm64 packs other bytes, pages of $page"
done

losses() { sed -n 's/.*"kind":"step".*"step":\([0-9]*\).*"loss":\([0-9.e-]*\).*/\1 \2/p' "$work/runs/$1/metrics.jsonl"; }
steps=("metrics.every=1 steps" train.max_steps=3 train.epochs=1 "eval.every=1000 steps")
"$DTRAIN" "$config" "${steps[@]}" run.name=x86 >/dev/null 2>"$work/log" || fail "x86 does not train"
"$work/arm" "$config" "${steps[@]}" run.name=arm run.stop_at=2 >/dev/null 2>"$work/log" || [ $? = 75 ] || fail "arm64 does not train"
cp -r "$work/runs/arm" "$work/runs/moved"
"$work/arm" "$config" "${steps[@]}" run.name=arm >/dev/null 2>"$work/log" || fail "arm64 does not resume"
paste -d' ' <(losses x86) <(losses arm) | awk '{ if ($1 != $3 || ($2 - $4) ^ 2 > (1e-4 * $2) ^ 2) bad = 1; n++; print } END { exit bad || n < 3 }' ||
    fail "losses differ"
# a checkpoint goes on elsewhere with a warning, under elastic not at all
"$DTRAIN" "$config" "${steps[@]}" run.name=moved >/dev/null 2>"$work/log" || fail "x86 does not resume arm64's run"
grep "this run began on 'cpu neon.* and continues with" "$work/log" >/dev/null || fail "no warning that bits differ"
bash tests/arm/across.sh
echo "arm64: passed"
