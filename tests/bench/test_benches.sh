#!/usr/bin/env bash
# Every command of docs/benchmarks.md still runs: each is read out of the page's code (lines of blocks, and spans) and run
# once with SHORT=1, in which benches do little of everything and measure nothing (bench_short.h). Data sets that the
# commands name are small invented ones. Words in capitals stand for something: FOLDER, ROW; another one fails here.
. "${SOURCE:?}/tests/small_run.sh" || exit
page=$SOURCE/docs/benchmarks.md
[ -e "$BUILD/bench_loader" ] || { echo "skipped: ninja benches was not run"; exit 77; }
"$python" -c 'import numpy' 2>/dev/null || { echo "skipped: no numpy"; exit 77; }

# The commands, one a line: what begins with build/bench_… or tests/bench/…, up to a comment behind two spaces or a '#'.
py commands "$page" >"$work/commands"
[ -s "$work/commands" ] || fail "no command found in $page"

# They run where a checkout would be: scripts, configs and the program are this one's, data and caches its own.
root=$work/root
mkdir -p "$root/datasets" "$work/shared/data" "$work/folder"
ln -s "$SOURCE/tests" "$SOURCE/configs" "$SOURCE/launch" "$root/"
ln -s "$BUILD" "$root/build"
cd "$root"
pack() { build/dtrain pack "$@" >/dev/null 2>"$work/log" || fail "pack $*"; }
build/dtrain synth biometric datasets/biometric-raw --impressions 4 >/dev/null 2>&1 || fail "synth biometric"
pack datasets/biometric-raw datasets/biometric.lmdb
build/dtrain synth photos datasets/photos-raw --n 60 >/dev/null 2>&1 || fail "synth photos"
pack datasets/photos-raw "$work/shared/data/trashnet.tar"
pack datasets/photos-raw 'datasets/photos-{000000..000003}.tar'

failed=0
while read -r words; do
    words=${words/FOLDER/$work/folder}
    words=${words/--only ROW/--only fusion_bf16}
    case $words in
    "python3 "*) words="$python ${words#python3 }" ;;
    tests/bench/*.py*) words="$python $words" ;;
    "build/dtrain data bench"*) words="$words --seconds 1" ;;
    esac
    if [[ " ${words//[A-Z_]*=/}" =~ \ [A-Z]{3,} ]]; then
        echo "FAILED: what '${BASH_REMATCH[0]}' stands for in: $words"; failed=1
        continue
    fi
    begin=$SECONDS rc=0
    (export SHORT=1; eval "exec env $words") >"$work/out" 2>"$work/log" </dev/null || rc=$?
    echo "exit $rc after $((SECONDS - begin)) s: $words"
    grep -h '^skipped\|^.*: skipped' "$work/out" "$work/log" || true
    [ $rc = 0 ] || [ $rc = 77 ] || { tail -qn 5 "$work/log" "$work/out"; failed=1; }
done <"$work/commands"
exit $failed
