#!/usr/bin/env bash
# Packs the built program to run on another machine: launch/bundle.sh BUILD_DIR VERSION [TEST …]. The archive
# BUILD_DIR/dtrain-VERSION-linux-<arch>.tar.gz has the program, its modules, the tests that are named (for tests/gpu/run.py
# on a machine that cannot build), the libraries these need that a bare system lacks, configs and docs. Not in it: the C
# library, the NVIDIA driver, CUDA's libraries, MPI (it must be the one that mpirun is of).
# launch/bundle.sh --wheel PREFIX PROGRAM [NVCC]: while a wheel is made, adds the libraries of what is installed in PREFIX,
# and their licences.
set -euo pipefail
source=$(cd "$(dirname "$0")/.." && pwd)

# the libraries of programs and modules that a bare system lacks: "NAME PATH" lines
needed() {
    ldd "$@" | awk '/=> \// {print $1, $3}' | sort -u | while read -r soname path; do
        case $soname in
        libc.so.* | libm.so.* | libpthread.so.* | libdl.so.* | librt.so.* | ld-linux* | libresolv.so.*) ;;
        libstdc++.so.* | libgcc_s.so.*) ;; # every system has them, and CUDA's libraries need the system's
        libdtrain_openmp.so) ;;
        libcuda* | libcud* | libcublas* | libnccl* | libnvrtc* | libmpi* | libopen-*) ;;
        *) echo "$soname $path" ;;
        esac
    done
}
package_of() { # dpkg knows a file by one of its names, /lib being /usr/lib
    local owner name
    for name in "$1" "/usr$1" "${1#/usr}" "$(readlink -f "$1")"; do
        owner=$(dpkg-query -S "$name" 2>/dev/null) || continue
        owner=${owner%%: *}
        echo "${owner%%:*}"
        return
    done
}
# the newest version of a C or C++ library's symbols (GLIBC, GLIBCXX) that files want
newest() { for file in "${@:2}"; do readelf -V "$file"; done 2>/dev/null | grep -o "Name: ${1}_[0-9.]*" | sort -uV | tail -1 | sed 's/.*_//'; }

if [ "$1" = --wheel ]; then
    prefix=$2 program=$3
    lib=$prefix/lib/dtrain licences=$prefix/share/doc/dtrain/licences
    mkdir -p "$licences"
    needed "$program" "$lib"/dtrain_http.so | while read -r soname path; do
        install -m 644 "$path" "$lib/$soname"
        owner=$(package_of "$path")
        [ ! -e "/usr/share/doc/${owner:-none}/copyright" ] || cp -L "/usr/share/doc/$owner/copyright" "$licences/$owner"
    done
    if [ -e "$lib/dtrain_cuda.so" ]; then # CUDA's runtime is linked in: of a toolkit, of Python's wheels, of Debian
        cuda=$(dirname "$(dirname "$(readlink -f "$4")")")
        for file in "$cuda"/EULA.txt "$cuda"/{dist-info,../..}/nvidia_cuda_runtime-*/licenses/License.txt \
            /usr/share/doc/nvidia-cuda-toolkit/copyright; do
            [ ! -e "$file" ] || { install -m 644 "$file" "$licences/cuda-runtime"; break; }
        done
        [ -e "$licences/cuda-runtime" ] || echo "bundle: no licence of CUDA's runtime beside $4" >&2
    fi
    strip -g "$program" "$lib"/*
    # the wheel's tag says which C library is old enough. The only check of a wheel with dtrain_cuda.so: auditwheel calls it
    # linux_ARCH, as NVIDIA's libraries are not in it
    tag=$(sed -n "s/.*manylinux_\([0-9]*\)_\([0-9]*\)_$(uname -m).*/\1.\2/p" "$source/pyproject.toml")
    needs=$(newest GLIBC "$program" "$lib"/*)
    [ "$(printf '%s\n' "$needs" "$tag" | sort -V | tail -n 1)" = "$tag" ] ||
        { echo "bundle: what this system builds needs glibc $needs, and the wheel's tag says $tag: build on an older one" >&2; exit 1; }
    exit
fi

build=$(cd "$1" && pwd); version=$2
shift 2
name=dtrain-$version-linux-$(uname -m)
stage=$build/bundle/$name
rm -rf "$build/bundle"; mkdir -p "$stage/lib"
for file in dtrain dtrain_mpi.so dtrain_mpich.so dtrain_http.so; do
    [ -e "$build/$file" ] && install -m 755 "$build/$file" "$stage/$file" || true
done
programs=("$stage/dtrain")
[ ! -e "$stage/dtrain_http.so" ] || programs+=("$stage/dtrain_http.so")
for test in "$@"; do
    install -m 755 "$build/$test" "$stage/$test"
    programs+=("$stage/$test")
done
# its path to CUDA's libraries becomes that of other machines
[ ! -e "$build/dtrain_cuda.so" ] || cmake --install "$build" --component cuda_module --prefix "$stage" >/dev/null
# packages/NAME: dpkg's record of each package that a library is of, and one of dtrain: a list of parts that scanners read
mkdir "$stage/packages"
install -m 644 "$build/libdtrain_openmp.so" "$stage/lib/"
needed "${programs[@]}" | while read -r soname path; do
    install -m 644 "$path" "$stage/lib/$soname"
    command -v dpkg-query >/dev/null || continue
    owner=$(package_of "$path")
    if [ "$owner" ]; then dpkg-query -s "$owner" >"$stage/packages/$owner"; else echo "bundle: no package has $path: it is not in packages/" >&2; fi
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
for folder in launch/slurm launch/pbs launch/cloud launch/docker k8s; do # templates of dtrain launch
    [ ! -d "$source/$folder" ] || (cd "$source" && cp -r --parents "$folder" "$stage/")
done
tar -C "$build/bundle" -czf "$build/$name.tar.gz" "$name"
bytes=$(stat -c %s "$build/$name.tar.gz")
[ "$bytes" -lt $((40 << 20)) ] || { echo "bundle: $bytes bytes is more than 40 MiB" >&2; exit 1; }
# the oldest system it runs on: what the program, modules and libraries want of the C and C++ libraries
files=("${programs[@]}" "$stage"/*.so "$stage"/lib/*)
echo "bundle: needs glibc $(newest GLIBC "${files[@]}") and libstdc++ with GLIBCXX_$(newest GLIBCXX "${files[@]}")"
echo "bundle: $build/$name.tar.gz, $((bytes >> 10)) KiB, $(ls "$stage/lib" | wc -l) libraries"
