#!/usr/bin/env bash
# The CUDA module for arm64 servers (sbsa), cross-compiled with nvcc of CUDA 13 against NVIDIA's aarch64 wheels: it is built,
# finds all its symbols in these libraries, and has code for the GPUs beside Arm hosts. No kernel runs.
set -euo pipefail
cd "$(dirname "$0")/../.."
skip() { echo "skipped: arm/cuda.sh: $*"; exit 77; }
export ARM_ROOT=${ARM_ROOT:-$PWD/.cache/arm-root} ARM_CUDA=${ARM_CUDA:-$PWD/.cache/arm-cuda}
build=$PWD/build-arm-cuda python=${PYTHON:-python3}
export CUDACXX=${CUDACXX:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
[ -x "$CUDACXX" ] || skip "no nvcc"
release=$("$CUDACXX" --version | sed -n 's/.*release \(13\.[0-9]*\),.*/\1/p')
[ -n "$release" ] || skip "$CUDACXX is not of CUDA 13"
export CUDAHOSTCXX=aarch64-linux-gnu-g++
command -v $CUDAHOSTCXX >/dev/null || skip "no $CUDAHOSTCXX (package g++-aarch64-linux-gnu)"
[ -e "$ARM_ROOT/complete" ] || skip "no root of arm64 in $ARM_ROOT (tests/arm/run.sh makes it)"

# what is compiled and linked against, from 1.5 GB of wheels
if [ "$(cat "$ARM_CUDA/complete" 2>/dev/null)" != "$release" ]; then
    rm -rf "$ARM_CUDA"
    mkdir -p "$ARM_CUDA/wheels"
    "$python" -m pip -q download --no-deps --only-binary=:all: --platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64 \
        --platform manylinux_2_17_aarch64 --platform manylinux2014_aarch64 -d "$ARM_CUDA/wheels" "nvidia-cuda-"{runtime,crt,cccl}"==$release.*" \
        'nvidia-cublas==13.*' 'nvidia-cudnn-cu13==9.*' nvidia-nccl-cu13 >"$ARM_CUDA/log" 2>&1 || skip "no wheels from PyPI ($ARM_CUDA/log says why)"
    "$python" - "$ARM_CUDA" <<'PY'
import glob, re, sys, zipfile
for wheel in glob.glob(sys.argv[1] + "/wheels/*.whl"):
    with zipfile.ZipFile(wheel) as z:
        z.extractall(sys.argv[1], [n for n in z.namelist() if re.search(
            r"/include/|libcud(art|art_static|adevrt)\.|lib(cudnn|cudnn_graph|cublasLt|nccl)\.so|/LICENSE|License", n)])
PY
    rm -r "$ARM_CUDA/wheels"
    echo "$release" >"$ARM_CUDA/complete"
fi
# this machine's toolkit has no folder of the target: headers are the same, libraries are the wheels'
own=$(cd "$(dirname "$(realpath "$CUDACXX")")/.." && pwd)
own=$own/include # in a toolkit a link to that of its target
CUDAFLAGS="-I$own -I$own/cccl -L$ARM_CUDA/nvidia/cu13/lib" TARGETS=dtrain_cuda launch/build.sh "$build" -DDTRAIN_CUDA=ON -DDTRAIN_CUDA_PATHS="$ARM_CUDA/nvidia" \
    -DDTRAIN_CUDA_ARCHITECTURES="${ARCHITECTURES:-}" -DCMAKE_TOOLCHAIN_FILE="$PWD/tests/arm/toolchain.cmake"
module=$build/dtrain_cuda.so
fail() { echo "FAILED: arm/cuda.sh: $*" >&2; exit 1; }

aarch64-linux-gnu-readelf -h "$module" | grep 'Machine: *AArch64' >/dev/null || fail "$module is not of arm64"
# what cudnn and cublasLt do not define must be the program's or the C library's
aarch64-linux-gnu-nm -D --undefined-only "$module" | sed 's/.* //; s/@.*//' | grep -E '^(cudnn|cublas|nccl|cuda|cu[A-Z])' | sort -u >"$build/wanted"
aarch64-linux-gnu-nm -D --defined-only "$ARM_CUDA"/nvidia/*/lib/lib{cudnn,cublasLt}.so.* | sed 's/.* //; s/@.*//' | sort -u >"$build/given"
[ "$(grep -c cudnn "$build/wanted")" -gt 0 ] || fail "no symbols of cuDNN are wanted"
lacking=$(comm -23 "$build/wanted" "$build/given")
[ -z "$lacking" ] || fail "no library has ${lacking//$'\n'/ }"
echo "the CUDA module for arm64: built by CUDA $release, $(wc -l <"$build/wanted") symbols found"

dump=$("$python" -c 'import nvidia.cu13 as n; print(n.__path__[0])' 2>/dev/null || true)/bin/cuobjdump
[ -x "$dump" ] || skip "which GPUs: no cuobjdump among $python's packages"
"$dump" --list-elf --list-ptx "$module" | sed -n 's/.*\.sm_\([0-9]*\)\.\(cubin\|ptx\).*/\2 \1/p' | sort -u >"$build/code"
# Machine code is for its own major version and newer minor ones, except that a Jetson's (87, 110) and other GPUs' are
# strangers; PTX for all newer GPUs.
for gpu in ${ARCHITECTURES:-87 90 100 103 110 121}; do
    awk -v gpu="$gpu" '{ jetson = gpu == 87 || gpu == 110 }
        $1 == "ptx" && $2 <= gpu || $1 == "cubin" && ($2 == gpu || !jetson && int($2 / 10) == int(gpu / 10) && $2 <= gpu) { ok = 1 }
        END { exit !ok }' "$build/code" || fail "nothing for sm_$gpu: $(tr '\n' ' ' <"$build/code")"
done
echo "code for $(tr '\n' ',' <"$build/code")"
