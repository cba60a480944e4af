#!/usr/bin/env bash
# Fuzzes the parsers in turn with libFuzzer, AddressSanitizer and UBSan: tests/fuzz/run.sh MINUTES [NAME …]
#
# The minutes are divided equally among the targets, all or those named (tar, png, …). A target begins with its corpus in
# the tree and with what earlier calls found, which lies in .cache/fuzz. A crash, a timeout or an allocation above 2 GiB is
# minimised and becomes a file of the tree's corpus, which ctest replays from then on; the exit status is then 1. Each call
# adds a line a target to executions.csv and prints executions in all of each, and then the share of lines that the tree's
# corpora, all together, reach in each file which a target names after "Parser:". `FILE.c!REGEX` leaves out functions whose
# whole names fit: writers, and others that never see foreign bytes.
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

# Counters in the parsers' own files: libFuzzer reads all there are after each execution, which takes it longer than most inputs.
counted=$found/counted.txt
printf '%s\n' 'fun:*' 'src:*/tests/fuzz/*' $(sed -n 's|^// Parser: ||p' tests/fuzz/fuzz_*.c | tr ' ' '\n' | sed 's|!.*||; s|^|src:*/|') >"$counted"

export CC=clang
debug="-DDTRAIN_CUDA=OFF -DDTRAIN_TESTS=ON -DCMAKE_BUILD_TYPE=Debug"
TARGETS=$(printf 'fuzz_%s ' "$@") launch/build.sh build-fuzz $debug -DDTRAIN_FUZZ=ON -DDTRAIN_SANITIZE=address \
    -DCMAKE_C_FLAGS_DEBUG="-O1 -g1 -fsanitize-coverage-allowlist=$counted"
TARGETS=tests_fuzz launch/build.sh build-coverage $debug \
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

printf '%-12s %16s\n' target executions
for name; do
    printf '%-12s %16s\n' "$name" "$(awk -F, -v n="$name" '$1 == n { s += $3 } END { print s }' "$table")"
done

rm -f "$found"/lines-*.profraw
LLVM_PROFILE_FILE=$found/lines-%m.profraw ctest --test-dir build-coverage -R '^fuzz/replay_' -j "$(nproc)" >"$found/replay.log" || status=1
llvm-profdata merge -o "$found/lines.profile" "$found"/lines-*.profraw
printf '\n%-45s %6s %8s\n' parser lines reached
llvm-cov export -format=lcov build-coverage/libdtrain_all.so -instr-profile="$found/lines.profile" |
    awk -v parsers="$(sed -n 's|^// Parser: ||p' tests/fuzz/fuzz_*.c)" '
        BEGIN {
            for (i = split(parsers, list); i > 0; i--) {
                split(list[i], part, "!")
                if (part[2] || !(part[1] in left_out)) left_out[part[1]] = "^(" part[2] ")$"
            }
        }
        { value = substr($0, 4); split(value, part, ",") }
        /^SF:/ { file = value; sub(/.*\.\.\//, "", file); split("", names) }
        /^FN:/ { names[part[1]] = part[2]; sub(/.*:/, "", names[part[1]]) }
        /^DA:/ && file in left_out {
            if (part[1] in names) counts = names[part[1]] !~ left_out[file]
            lines[file] += counts
            reached[file] += counts && part[2] > 0
        }
        END { for (file in lines) printf "%-45s %6d %6.1f %%\n", file, lines[file], 100 * reached[file] / lines[file] }' | sort
exit $status
