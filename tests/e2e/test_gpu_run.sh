#!/usr/bin/env bash
# tests/gpu/run.sh without a GPU: it says so, writes a report and exits 77; with a fake nvidia-smi and a
# fake dtrain the sections run, fail, skip and run out of time as they should, and the report says all of it.
set -euo pipefail
run=${SOURCE:?}/tests/gpu/run.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$*"; exit 1; }
json() { python3 -c 'import json, sys; r = json.load(open(sys.argv[1])); print(eval(sys.argv[2], {"r": r, "s": {x["section"]: x for x in r["sections"]}}))' "$@"; }

mkdir "$work/none" "$work/bin"
printf '#!/bin/sh\nexit 9\n' >"$work/none/nvidia-smi" # a driver without a device
chmod +x "$work/none/nvidia-smi"
rc=0
PATH=$work/none:$PATH "$run" "$work/report" 2>"$work/err" || rc=$?
[ $rc = 77 ] || fail "no GPU: exit $rc, not 77"
grep -q "no GPU on this machine" "$work/err" || fail "no GPU: not said"
grep -q "nothing below has run" "$work/report/report.md" || fail "no GPU: the report does not say so"
[ "$(json "$work/report/report.json" 'r["gpu"], {x["state"] for x in r["sections"]}, len(r["sections"])')" = "(False, {'not run'}, 8)" ] || fail "no GPU: report.json"

cat >"$work/bin/nvidia-smi" <<'SH'
#!/bin/sh
case $1 in -L) echo "GPU 0: Fake" ;; *) echo "Fake \"GPU\", 1.0, 1 MiB, 1 MHz, 1 W" ;; esac
seq 20000 # more than a pipe takes: not everybody who has what he wants may go
SH
cat >"$work/bin/dtrain" <<'SH'
#!/bin/sh
case $1 in info) echo "device   ${NO_DEVICE:-cuda 0: fake, sm_90}" ;; synth) exec sleep 100 ;; *) exit 1 ;; esac
SH
# time passes only where a section runs out of it: what is left for those behind it does not depend on the machine
cat >"$work/bin/date" <<SH
#!/bin/sh
[ "\$*" = +%s ] && exec cat "$work/clock"
exec $(command -v date) "\$@"
SH
cat >"$work/bin/timeout" <<SH
#!/bin/sh
limit=\$3 real=600 rc=0
shift 3
case "\$*" in *"--section curve"*) real=1 ;; esac
$(command -v timeout) -k 5 \$real "\$@" || rc=\$?
[ \$rc != 124 ] || echo \$((\$(cat "$work/clock") + limit)) >"$work/clock"
exit \$rc
SH
echo 1000 >"$work/clock"
chmod +x "$work/bin"/*
rc=0
PATH=$work/bin:$PATH DTRAIN=$work/bin/dtrain TESTS=$work TOTAL_S=14 SECTIONS="device build ops curve bits" "$run" "$work/report" 2>"$work/err" || rc=$?
[ $rc = 1 ] || fail "a fake GPU: exit $rc, not 1: $(cat "$work/err")"
got=$(json "$work/report/report.json" '[s[n]["state"] for n in ("device", "build", "ops", "curve", "bits")]')
[ "$got" = "['passed', 'passed', 'not run', 'out of time', 'not run']" ] || fail "states: $got"
got=$(json "$work/report/report.json" 's["bits"]["why"], "Fake" in s["device"]["facts"]["gpu"], r["failed"]')
[ "$got" = "('the 14 s were spent', True, True)" ] || fail "report: $got"
grep -q "| curve .*out of time" "$work/report/report.md" || fail "report.md"

# a program that does not see the GPU that nvidia-smi lists
rc=0
PATH=$work/bin:$PATH NO_DEVICE="device.kind: cuda: no driver" DTRAIN=$work/bin/dtrain SECTIONS="build" "$run" "$work/report" 2>"$work/err" || rc=$?
got=$(json "$work/report/report.json" 's["build"]["state"], s["build"]["why"]')
[ $rc = 1 ] && [ "$got" = "('FAILED', 'exit 1: dtrain info lists no GPU: device.kind: cuda: no driver')" ] || fail "a program without a GPU: exit $rc: $got"

# a bundle with op tests, with CUDA's libraries in Python packages: the tests of the bundle run with those
mkdir -p "$work/stage/dtrain-1" "$work/packages/nvidia/"{cudnn,cu13}/lib
cp "$work/bin/dtrain" "$work/stage/dtrain-1/dtrain"
touch "$work/stage/dtrain-1/dtrain_cuda.so"
printf '#!/bin/sh\necho "libraries $LD_LIBRARY_PATH, $DTRAIN_TEST_DEVICE"\necho "[       OK ] one"\n' >"$work/stage/dtrain-1/test_ops_custom_cuda"
printf '#!/bin/sh\nPYTHONPATH=%s exec python3 -S "$@"\n' "$work/packages" >"$work/bin/python-with-wheels"
chmod +x "$work/bin"/* "$work/stage/dtrain-1"/*
tar -C "$work/stage" -czf "$work/bundle.tar.gz" dtrain-1
rc=0
env -u DTRAIN -u TESTS PATH="$work/bin:$PATH" PYTHON="$work/bin/python-with-wheels" LD_LIBRARY_PATH=/before BUNDLE="$work/bundle.tar.gz" SECTIONS="device build ops" \
    "$run" "$work/report" 2>"$work/err" || rc=$?
[ $rc = 0 ] || fail "a bundle: exit $rc, not 0: $(cat "$work/err")"
grep -qx "libraries $work/packages/nvidia/cu13/lib:$work/packages/nvidia/cudnn/lib:/before, real" "$work/report/test_ops_custom_cuda.log" ||
    fail "a bundle: its test ran with $(cat "$work/report/test_ops_custom_cuda.log")"
[ "$(json "$work/report/report.json" 's["ops"]["facts"]')" = "{'test_ops_custom_cuda': '1 tests passed'}" ] || fail "a bundle: report.json"

# the next bundle, without packages: nothing of the one before is left, and nothing joins the loader's path
printf '#!/bin/sh\nexec python3 -S "$@"\n' >"$work/bin/python-with-wheels"
mv "$work/stage/dtrain-1" "$work/stage/dtrain-0"
tar -C "$work/stage" -czf "$work/bundle.tar.gz" dtrain-0
rc=0
env -u DTRAIN -u TESTS -u PYTHONPATH PATH="$work/bin:$PATH" PYTHON="$work/bin/python-with-wheels" LD_LIBRARY_PATH=/before BUNDLE="$work/bundle.tar.gz" SECTIONS="build ops" \
    "$run" "$work/report" 2>"$work/err" || rc=$?
[ $rc = 0 ] && grep -qx "libraries /before, real" "$work/report/test_ops_custom_cuda.log" || fail "a bundle without packages: exit $rc, $(cat "$work/report/test_ops_custom_cuda.log")"
[ "$(ls "$work/report/bundle") $(json "$work/report/report.json" '"libraries" in s["build"]["facts"]')" = "dtrain-0 False" ] || fail "a bundle without packages: $(ls "$work/report/bundle")"
tar -C "$work" -czf "$work/bundle.tar.gz" packages
rc=0
env -u DTRAIN PATH="$work/bin:$PATH" BUNDLE="$work/bundle.tar.gz" SECTIONS="build" "$run" "$work/report" 2>"$work/err" || rc=$?
[ $rc = 1 ] && [ "$(json "$work/report/report.json" 's["build"]["why"]')" = "exit 1: there is no dtrain in $work/bundle.tar.gz" ] || fail "a bundle of something else: exit $rc: $(cat "$work/err")"

rc=0
PATH=$work/none:$PATH DTRAIN=$work/bin/dtrain TESTS=$work SECTIONS="device build sanitizer" "$run" --dry-run "$work/report" 2>"$work/err" || rc=$?
[ $rc = 0 ] || fail "a dry run: exit $rc, not 0: $(cat "$work/err")"
[ "$(json "$work/report/report.json" 'r["gpu"], r["dry_run"], [x["state"] for x in r["sections"]]')" = "(False, True, ['passed', 'passed', 'not run'])" ] || fail "a dry run: report.json"
grep -q "A dry run on the CPU" "$work/report/report.md" || fail "a dry run: report.md does not say so"

# a part leaves few files, kernels are summed, and the engines that were chosen come with it and go into the next one
mkdir "$work/quick"
cp "$work/bin/nvidia-smi" "$work/quick"
cat >"$work/quick/dtrain" <<'SH'
#!/bin/sh
case $1 in
info) echo "device   cuda 0: fake, sm_90" ;;
check) echo "floor of $*" && exit ;;
esac
for word; do
    case $word in data.cache_dir=*) cat "${word#*=}/engines-x.txt" || { mkdir -p "${word#*=}" && echo chosen >"${word#*=}/engines-x.txt"; } ;; esac
done 2>/dev/null
SH
cat >"$work/quick/ncu" <<'SH'
#!/bin/sh
while [ "$1" != --log-file ]; do shift; done
cat >"$2" <<'CSV'
==PROF== Connected
"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","bn_apply(dt_bn_args)","dram__bytes.sum","Gbyte","3"
"0","bn_apply(dt_bn_args)","gpu__time_duration.sum","usecond","1,000"
"1","bn_apply(dt_bn_args)","dram__bytes.sum","Gbyte","5"
"1","bn_apply(dt_bn_args)","gpu__time_duration.sum","msecond","1"
CSV
SH
chmod +x "$work/quick"/*
for turn in 1 2; do
    rc=0
    PATH=$work/quick:$PATH DTRAIN=$work/quick/dtrain TESTS=$work ENGINES=$([ $turn = 1 ] || echo "$work/part1/engines.tar.gz") "$run" b "$work/part$turn" 2>"$work/err" || rc=$?
    [ $rc = 0 ] || fail "part b: exit $rc: $(cat "$work/err")"
    [ "$(find "$work/part$turn" -type f | sort | tr '\n' ' ')" = "$(printf "$work/part$turn/%s " engines.tar.gz logs.tar.gz report.json report.md)" ] ||
        fail "part b left $(find "$work/part$turn")"
    tar -tzf "$work/part$turn/engines.tar.gz" | grep -x ./cache/engines-x.txt >/dev/null || fail "part b lost its engines"
    tar -xzOf "$work/part$turn/logs.tar.gz" ./profile.log | grep '^floor of check configs/resnet50.yaml .* --kernels$' >/dev/null || fail "part b says no floor"
    [ "$(tar -xzOf "$work/part$turn/logs.tar.gz" ./profile.log | grep -c chosen)" = $((turn - 1)) ] || fail "part b, turn $turn: it began with other engines"
done
[ "$(json "$work/part2/report.json" 's["profile"]["facts"]["bn_apply"], s["profile"]["facts"]["a step"]')" = \
    "('1.000 ms, 1 launches, 4.000 GB, 4.00 TB/s', '1.00 ms in 1 kernels, 4.00 GB')" ] || fail "part b: $(cat "$work/part2/report.json")"

# the limits of all sections fit, with 200 s for the benches, and those of each part
eval "$(sed -n '/^ORDER=/p; /^PARTS=/p; /^part_of() {/,/^}/p; /^limit_of() {/,/^}/p' "$run")"
sum=0
for name in $ORDER; do sum=$((sum + $(limit_of "$name"))); done
[ $sum -le 540 ] && [ "$(limit_of bench)" -ge 200 ] || fail "the sections' limits are $sum s, $(limit_of bench) of them for the benches"

for part in $PARTS; do
    part_of $part
    sum=0
    for name in $SECTIONS; do sum=$((sum + $(limit_of "$name"))); done
    [ $sum -le 540 ] || fail "the limits of part $part are $sum s"
done
unset PRECISIONS ROWS
rc=0
SECTIONS=nonesuch "$run" "$work/report" 2>"$work/err" || rc=$?
[ $rc = 2 ] && grep -q "there are: device build" "$work/err" || fail "an unknown section: exit $rc"
echo "tests/gpu/run.sh says what ran and what did not"
