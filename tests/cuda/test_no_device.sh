#!/bin/bash
# Asking for CUDA where there is none prints one line about what is missing and exits with 2: without a driver (with
# the module and without), and with a driver that does not start. auto computes on the CPU.
set -eu
if ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1'; then echo "skipped: this machine has a driver"; exit 77; fi
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT
failed=0

# expect NAME TEXT COMMAND…: exit code 2 and TEXT in the one line of error
expect() {
    local name=$1 text=$2 rc=0; shift 2
    "$@" >"$tmp/out" 2>&1 || rc=$?
    if [ $rc != 2 ] || ! grep -q "$text" "$tmp/out" || [ "$(grep -c error "$tmp/out")" != 1 ]; then
        echo "FAILED $name: exit $rc"; cat "$tmp/out"; failed=1
    fi
}

mkdir "$tmp/bare"; cp "$DTRAIN" "$BUILD/libdtrain_openmp.so" "$tmp/bare" # no module beside it
run=(configs/fusion.yaml device.kind=cuda "run.dir=$tmp/run")
cd "$SOURCE"
expect "no driver, no module" "no NVIDIA driver.*and no CUDA module" "$tmp/bare/dtrain" "${run[@]}"
if [ -e "$BUILD/dtrain_cuda.so" ]; then
    expect "no driver" "no NVIDIA driver (libcuda.so.1" "$DTRAIN" "${run[@]}"
    # of cuDNN and cuBLASLt it loads what CMake found, also where /usr/local/cuda has others
    for library in cudnn cublasLt; do
        found=$(sed -n "s/^DTRAIN_${library^^}_LIBRARY:[A-Z]*=//p" "$BUILD/CMakeCache.txt")
        loaded=$(env -u LD_LIBRARY_PATH ldd "$BUILD/dtrain_cuda.so" | awk -v name="lib$library.so" 'index($1, name) == 1 {print $3}')
        [ "$(realpath "$found")" = "$(realpath "$loaded")" ] || { echo "FAILED: built with $found, loads $loaded"; failed=1; }
    done
    stub=$(ls /usr/local/cuda/lib64/stubs/libcuda.so /usr/local/cuda/targets/*/lib/stubs/libcuda.so 2>/dev/null | head -1)
    if [ -n "$stub" ]; then # loads the module with all its libraries; every symbol is resolved
        ln -s "$stub" "$tmp/libcuda.so.1"
        expect "a driver that does not start" "does not start" env LD_LIBRARY_PATH="$tmp" "$DTRAIN" "${run[@]}"
        LD_LIBRARY_PATH=$tmp "$DTRAIN" info | grep -q "device .*does not start" || { echo "FAILED info"; failed=1; }
        ! readelf -d "$BUILD/dtrain_cuda.so" | grep -q "NEEDED.*libnccl" || { echo "FAILED: a lone rank needs NCCL"; failed=1; }
        cp "$DTRAIN" "$BUILD/libdtrain_openmp.so" "$tmp"; echo no module >"$tmp/dtrain_cuda.so"
        expect "a damaged module" "does not load" env LD_LIBRARY_PATH="$tmp" "$tmp/dtrain" "${run[@]}"
    fi
fi
"$DTRAIN" info | grep -q "^device .*no NVIDIA driver" || { echo "FAILED info names no driver"; failed=1; }
exit $failed
