#!/usr/bin/env bash
# Builds and runs every test: once with AddressSanitizer and UBSan, then the threads' tests with
# ThreadSanitizer, then the whole suite on the release build, whose ctest summary ends the output.
# tests/run.sh quick: the release build only.
set -euo pipefail
cd "$(dirname "$0")/.."

launch/packages.sh --tests
. launch/mpi_env.sh

run_suite() { # build directory, ctest arguments
    local dir=$1
    shift
    ctest --test-dir "$dir" --output-on-failure --no-tests=error "$@"
}

if [ "${1:-all}" != quick ]; then
    launch/build.sh build-asan -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG="-O1 -g" -DDTRAIN_SANITIZE=address
    # Open MPI and its helpers leak on purpose at exit; our own programs are checked
    ASAN_OPTIONS=detect_leaks=1:abort_on_error=0 LSAN_OPTIONS=suppressions=$PWD/tests/lsan.supp:print_suppressions=0 \
        run_suite build-asan -L 'unit|ops|fault|fuzz'
    launch/build.sh build-tsan -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG="-O1 -g" -DDTRAIN_SANITIZE=thread
    TSAN_OPTIONS=halt_on_error=1:suppressions=$PWD/tests/tsan.supp \
        run_suite build-tsan -R 'loader|comm|bucket|ckpt|base|tree'
fi
launch/build.sh build -DDTRAIN_TESTS=ON
run_suite build
