#!/usr/bin/env bash
# Fuzzes the parsers in turn with libFuzzer, AddressSanitizer and UBSan: tests/fuzz/run.sh MINUTES [NAME …]
#
# The minutes are divided equally among the targets, all or those named (tar, png, …). A target begins with its corpus in
# the tree and with what earlier calls found, which lies in .cache/fuzz. A crash, a timeout or an allocation above 2 GiB is
# minimised and becomes a file of the tree's corpus, which ctest replays from then on; the exit status is then 1. Each call
# adds a line a target to executions.csv and prints, for each, executions in all and the share of lines that its corpus
# reaches in the files which the target names after "Parser:".
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "${1:-0}" -gt 0 ] || { sed -n '2s/^# //p' "$0" >&2; exit 2; }
minutes=$1
shift
[ $# -gt 0 ] || set -- $(ls tests/fuzz/fuzz_*.c | sed 's/.*fuzz_\(.*\)\.c/\1/')
seconds=$((minutes * 60 / $#))
found=$PWD/.cache/fuzz table=$PWD/tests/fuzz/executions.csv status=0
mkdir -p "$found"
. launch/mpi_env.sh

export CC=clang
debug="-DDTRAIN_CUDA=OFF -DDTRAIN_TESTS=ON -DCMAKE_BUILD_TYPE=Debug"
TARGETS=$(printf 'fuzz_%s ' "$@") launch/build.sh build-fuzz $debug -DDTRAIN_FUZZ=ON -DDTRAIN_SANITIZE=address -DCMAKE_C_FLAGS_DEBUG="-O1 -g1"
TARGETS=$(printf 'replay_%s ' "$@") launch/build.sh build-coverage $debug \
    -DCMAKE_C_FLAGS_DEBUG="-O1 -g1 -fprofile-instr-generate -fcoverage-mapping"

for name; do
    corpus=tests/fuzz/corpus_$name work=$found/$name
    mkdir -p "$work"
    rm -f "$work.log" "$work".crash-*
    build-fuzz/fuzz_"$name" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 -malloc_limit_mb=2048 \
        -print_final_stats=1 -artifact_prefix="$work.crash-" "$work" "$corpus" >"$work.log" 2>&1 || true
    executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$work.log")
    for crash in "$work".crash-*; do
        [ -e "$crash" ] || continue
        status=1
        small=$corpus/found_$(sha1sum "$crash" | cut -c1-12)
        build-fuzz/fuzz_"$name" -minimize_crash=1 -max_total_time=60 -exact_artifact_path="$small" "$crash" >>"$work.log" 2>&1 || true
        [ -e "$small" ] || cp "$crash" "$small"
        echo "$name: a crash, in $small (log: $work.log)"
    done
    echo "$name,$(date +%F),${executions:-0}" >>"$table"
done

printf '%-12s %16s %8s  %s\n' target executions lines parser
for name; do
    parser=$(sed -n 's|^// Parser: ||p' tests/fuzz/fuzz_"$name".c)
    total=$(awk -F, -v n="$name" '$1 == n { s += $3 } END { print s }' "$table")
    LLVM_PROFILE_FILE=$found/$name.profraw build-coverage/replay_"$name" tests/fuzz/corpus_"$name" "$found/$name" >/dev/null 2>&1 || status=1
    llvm-profdata merge -o "$found/$name.profile" "$found/$name.profraw"
    share=$(llvm-cov report build-coverage/libdtrain_all.so -instr-profile="$found/$name.profile" |
        awk -v files=" $parser " '{ sub(/^(\.\.\/)+/, "", $1) } index(files, " " $1 " ") { n += $8; lost += $9 }
            END { printf "%.1f %%", n ? 100 * (n - lost) / n : 0 }')
    printf '%-12s %16s %8s  %s\n' "$name" "$total" "$share" "$parser"
done
exit $status
