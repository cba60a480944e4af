#!/usr/bin/env bash
# Packs the built program to run on another machine: launch/bundle.sh BUILD_DIR VERSION [TEST …]. The archive
# BUILD_DIR/dtrain-VERSION-linux-<arch>.tar.gz has the program, its modules, the tests that are named (for tests/gpu/run.py
# on a machine that cannot build), the libraries these need that a bare system lacks, configs and docs. Not in it: the C library, the NVIDIA driver, CUDA's libraries, MPI
# (it must be the one that mpirun is of).
set -euo pipefail
build=$(cd "$1" && pwd); version=$2
shift 2
source=$(cd "$(dirname "$0")/.." && pwd)
name=dtrain-$version-linux-$(uname -m)
stage=$build/bundle/$name
rm -rf "$build/bundle"; mkdir -p "$stage/lib"
for file in dtrain dtrain_mpi.so dtrain_mpich.so; do
    [ -e "$build/$file" ] && install -m 755 "$build/$file" "$stage/$file" || true
done
programs=("$stage/dtrain")
for test in "$@"; do
    install -m 755 "$build/$test" "$stage/$test"
    programs+=("$stage/$test")
done
# its path to CUDA's libraries becomes that of other machines
[ ! -e "$build/dtrain_cuda.so" ] || cmake --install "$build" --component cuda_module --prefix "$stage" >/dev/null
# packages/NAME: dpkg's record of each package that a library is of, and one of dtrain: a list of parts that scanners read
mkdir "$stage/packages"
record() { # dpkg knows a file by one of its names, /lib being /usr/lib
    local owner name
    command -v dpkg-query >/dev/null || return 0
    for name in "$1" "/usr$1" "${1#/usr}" "$(readlink -f "$1")"; do
        owner=$(dpkg-query -S "$name" 2>/dev/null) || continue
        owner=${owner%%: *}
        dpkg-query -s "$owner" >"$stage/packages/${owner%%:*}"
        return 0
    done
    echo "bundle: no package has $1: it is not in packages/" >&2
}
install -m 644 "$build/libdtrain_openmp.so" "$stage/lib/"
ldd "${programs[@]}" | awk '/=> \// {print $1, $3}' | sort -u | while read -r soname path; do
    case $soname in
    libc.so.* | libm.so.* | libpthread.so.* | libdl.so.* | librt.so.* | ld-linux* | libresolv.so.*) ;;
    libstdc++.so.* | libgcc_s.so.*) ;; # every system has them, and CUDA's libraries need the system's
    libdtrain_openmp.so) ;;
    libcuda* | libcud* | libcublas* | libnccl* | libnvrtc* | libmpi* | libopen-*) ;;
    *) install -m 644 "$path" "$stage/lib/$soname" && record "$path" ;;
    esac
done
cat >"$stage/packages/dtrain" <<RECORD
Package: dtrain
Status: install ok installed
Architecture: $(dpkg --print-architecture 2>/dev/null || uname -m)
Maintainer: dtrain
Version: $("$build/dtrain" --version | cut -d' ' -f2)
Description: trains vision, audio and multi-modal networks from one YAML file
RECORD
strip -g "${programs[@]}" "$stage"/*.so "$stage"/lib/*
cp -r "$source/configs" "$source/LICENSE" "$source/README.md" "$stage/"
for folder in launch/slurm launch/cloud launch/docker k8s; do # templates of dtrain launch
    [ ! -d "$source/$folder" ] || (cd "$source" && cp -r --parents "$folder" "$stage/")
done
tar -C "$build/bundle" -czf "$build/$name.tar.gz" "$name"
bytes=$(stat -c %s "$build/$name.tar.gz")
[ "$bytes" -lt $((40 << 20)) ] || { echo "bundle: $bytes bytes is more than 40 MiB" >&2; exit 1; }
# the oldest system it runs on: what the program, modules and libraries want of the C and C++ libraries
newest() { for file in "${programs[@]}" "$stage"/*.so "$stage"/lib/*; do readelf -V "$file"; done 2>/dev/null | grep -o "Name: ${1}_[0-9.]*" | sort -uV | tail -1 | sed 's/.*_//'; }
echo "bundle: needs glibc $(newest GLIBC) and libstdc++ with GLIBCXX_$(newest GLIBCXX)"
echo "bundle: $build/$name.tar.gz, $((bytes >> 10)) KiB, $(ls "$stage/lib" | wc -l) libraries"
