#!/bin/bash
# The bundle runs from another folder, with an empty environment, on its own libraries.
set -euo pipefail
command -v strip >/dev/null || { echo "skipped: strip is not there"; exit 77; }
if ldd "$DTRAIN" | grep "libasan\|libtsan" >/dev/null; then echo "skipped: a build with sanitizers is not bundled"; exit 77; fi
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT
"$SOURCE/launch/bundle.sh" "$BUILD" test 2>&1 | tee "$tmp/said"
# Ubuntu 24.04 has glibc 2.39 and GLIBCXX_3.4.33; a bundle made on a newer system is for newer systems
no_newer() { [ "$(printf '%s\n' "$1" "$2" | sort -V | tail -1)" = "$2" ] || { echo "a bundle that needs $1 does not run where there is $2"; exit 1; }; }
read -r glibc cxx < <(sed -n 's/^bundle: needs glibc \([0-9.]*\) .*GLIBCXX_\([0-9.]*\)$/\1 \2/p' "$tmp/said")
if [ "$(printf '%s\n' "$(getconf GNU_LIBC_VERSION | sed 's/.* //')" 2.39 | sort -V | tail -1)" = 2.39 ]; then
    no_newer "$glibc" 2.39; no_newer "$cxx" 3.4.33
fi
tar -C "$tmp" -xzf "$BUILD"/dtrain-test-*.tar.gz
rm -rf "$BUILD"/dtrain-test-*.tar.gz "$BUILD/bundle"
cd "$tmp"/dtrain-test-*
env -i ./dtrain info | grep "^dtrain " >/dev/null
env -i ./dtrain check configs/fusion.yaml >/dev/null
# all that is in lib/ is found there, also by the libraries among themselves
wrong=$(env -i /usr/bin/ldd ./dtrain | awk '/=> \// {print $1, $3}' | while read -r name path; do
    [ ! -e "lib/$name" ] || [ "$(realpath "$path")" = "$(realpath "lib/$name")" ] || echo "$name is $path"
done)
[ -z "$wrong" ] || { echo "$wrong"; exit 1; }
# records of the packages that libraries are of, where dpkg knows them
if command -v dpkg-query >/dev/null; then
    [ "$(grep -l '^Version: .' packages/* | wc -l)" -ge 15 ] && [ -s packages/dtrain ] || { echo "no list of packages"; exit 1; }
    ! grep "no package has" "$tmp/said" || exit 1
fi
none() { if grep "$@"; then echo "a bundle has none of these"; exit 1; fi; } # `!` would not end the script
env -i /usr/bin/ldd ./dtrain | none "not found"
find . -name '*.so*' ! -name dtrain_cuda.so | none "lib\(cud\|cublas\|nccl\|nv\)\|cuda"
[ ! -e "$BUILD/dtrain_cuda.so" ] || [ -e dtrain_cuda.so ] || { echo "the module is not in the bundle"; exit 1; }
paths() { readelf -d "$@" 2>/dev/null | sed -n 's/.*R.*PATH.*\[\(.*\)\]/\1/p' | tr : '\n'; }
# of the bundle itself, or such as every machine may have
paths dtrain dtrain_*.so | none -v '^\$ORIGIN\(/lib\|/../lib/dtrain\)\?$\|^/usr/local/cuda/lib64$\|^/usr/lib/'
# in a Python environment the libraries of NVIDIA's wheels are opened before the module
if [ -e "$BUILD/fake/dtrain_cuda.so" ] && command -v cc >/dev/null; then
    env=$tmp/env nvidia=$tmp/env/lib/python3.99/site-packages/nvidia
    mkdir -p "$env"/{bin,lib/dtrain} "$nvidia"/{cudnn,cu13}/lib
    cp ./dtrain "$env/bin/"
    cp lib/* "$BUILD/fake/dtrain_cuda.so" "$env/lib/dtrain/"
    for library in cudnn/lib/libcudnn.so.9 cu13/lib/libcublasLt.so.13; do cc -shared -xc /dev/null -o "$nvidia/$library"; done
    LD_DEBUG=files LD_LIBRARY_PATH=$BUILD/fake "$env/bin/dtrain" info 2>&1 | sed -n 's/.*calling init: //p' >"$tmp/opened"
    for name in libcudnn.so.9 libcublasLt.so.13 dtrain_cuda.so; do sed -n "/${name%%.*}/=" "$tmp/opened"; done >"$tmp/order"
    [ "$(wc -l <"$tmp/order")" = 3 ] && [ "$(sort -n "$tmp/order" | tail -n 1)" = "$(tail -n 1 "$tmp/order")" ] ||
        { echo "not opened, or behind the module:"; cat "$tmp/opened"; exit 1; }
    : >"$env/lib/dtrain/dtrain_cuda.so" # does not load, as where cuDNN is missing
    LD_LIBRARY_PATH=$BUILD/fake "$env/bin/dtrain" info | grep "does not load: .*pip install 'dtrain\[cuda\]'" >/dev/null ||
        { echo "a module that does not load: no word of NVIDIA's wheels"; exit 1; }
    # a wheel has the licence of CUDA's runtime, which is in the module
    wheel=$tmp/wheel
    mkdir -p "$tmp"/cuda/{bin,dist-info/nvidia_cuda_runtime-13/licenses} "$wheel"/{bin,lib/dtrain}
    echo terms >"$tmp/cuda/dist-info/nvidia_cuda_runtime-13/licenses/License.txt"
    cp "$DTRAIN" "$wheel/bin/"
    cp "$BUILD"/{dtrain_http.so,libdtrain_openmp.so,fake/dtrain_cuda.so} "$wheel/lib/dtrain/"
    # on a system newer than the wheel's tag it ends with an error
    "$SOURCE/launch/bundle.sh" --wheel "$wheel" "$wheel/bin/dtrain" "$tmp/cuda/bin/nvcc" >"$tmp/said" 2>&1 || true
    grep -qx terms "$wheel/share/doc/dtrain/licences/cuda-runtime" || { cat "$tmp/said"; echo "no licence of CUDA's runtime"; exit 1; }
fi
