#!/usr/bin/env bash
# What only a machine with a GPU can show: tests/gpu/run.sh [--dry-run] [a|b|c|d] [OUT_DIR]
#
# Builds dtrain for the GPU that is there (or takes BUNDLE=dtrain.tar.gz, or DTRAIN=path of a built program), runs
# every op test on the device, compares a training curve with the CPU's, measures beside PyTorch, and writes
# OUT_DIR/report.md and report.json (default: gpu-report/). At most TOTAL_S (540) seconds: the sections stand in
# the order of their worth, each has a limit of its own, none ends the others; what did not run is named
# with its reason. The limits fit into the 540 seconds; what a section leaves goes to the benches, which have 200
# at least, and what those leave to the last. Logs of all sections lie beside the report.
#
# Where a machine is lent for minutes and brings back few files, one of four parts at a time, each of at most TOTAL_S:
#   a  build, op tests, losses, and bits in three precisions        b  time and bytes of each kernel of ResNet-50's step
#   c  ResNet-50 in bf16 and fp16 beside PyTorch, eager and compiled
#   d  ViT, ConvNeXt, fusion and ResNet-18 the same; compute-sanitizer last
# A part leaves at most five files in OUT_DIR: report.md, report.json, bench.jsonl, logs.tar.gz, and engines.tar.gz with
# the choices of engines, which the next part takes in by ENGINES=engines.tar.gz instead of timing them again.
#
#   TOTAL_S=540       seconds for all
#   SECTIONS="a b"    only these
#   BUNDLE, DTRAIN    what to test instead of building. BUNDLE of the target gpu_bundle has the op tests too; else they
#                     need a build tree (TESTS=dir)
#   PYTHON            a Python with torch and torchvision, for the peer. If it has CUDA's libraries as nvidia-* packages,
#                     these are dtrain's, too
#
# --dry-run takes the CPU (and the fake GPU for the op tests) with tiny sizes: it tries the sections and the
# report, and shows nothing of a GPU. DTRAIN defaults to build/dtrain, TESTS to build.
#
# Exit: 0 all ran and passed · 1 a section failed or ran out of time · 2 wrong use · 77 there is no GPU: only the
# report that says so was written.
#
# Without a device it is tested by tests/e2e/test_gpu_run.sh.
set -uo pipefail # so nothing is piped into what ends before its input does: grep -q, head
self=$(realpath "$0")
root=$(dirname "$(dirname "$(dirname "$self")")")
cd "$root" || exit 2

ORDER="device build ops curve bits bench start sanitizer"
PARTS="a b c d"
part_of() { # sets what a part runs
    case $1 in
    a) SECTIONS="device build ops curve bits" PRECISIONS="fp32 bf16 fp16" ;;
    b) SECTIONS="device build profile" ;;
    c) SECTIONS="device build bench" ROWS=resnet50_bf16,resnet50_fp16 ;;
    d) SECTIONS="device build bench sanitizer" ROWS=vit_b_16_bf16,convnext_t_bf16,fusion_bf16,fusion_small_bf16,resnet18_bf16 ;;
    esac
    export PRECISIONS ROWS
}
DRY=${DRY:-no}
STEPS=20 ALL=40 STOP=7 # ALL: of the curves
[ $DRY = no ] || STEPS=3 ALL=5 STOP=2
limit_of() {
    case $1 in
    device) echo 10 ;; build) echo 110 ;; ops) echo 60 ;; curve) echo 50 ;;
    bits) if [ "${PRECISIONS:-fp32}" = fp32 ]; then echo 45; else echo 130; fi ;;
    bench) echo 200 ;; start) echo 40 ;; sanitizer) echo 20 ;; profile) echo 120 ;;
    esac
}
what_of() {
    case $1 in
    device) echo "which GPU, driver and libraries" ;;
    build) echo "dtrain and dtrain_cuda.so for this GPU, and the tests" ;;
    ops) echo "every op test on the device, against references and finite differences" ;;
    curve) echo "the fusion network in fp32: 20 losses within 1e-3 of the CPU's, 20 more within that or three times the spread of one against two CPU threads; in bf16: stated" ;;
    bench) echo "training steps beside PyTorch (tests/bench/bench_gpu.py)" ;;
    bits) echo "the same bits from run to run, after a stop or SIGKILL and a resume, and for accumulation against plain" ;;
    profile) echo "time and bytes of each kernel of a step of ResNet-50 in bf16, under Nsight Compute" ;;
    start) echo "from the command to the first step, plans cached, beside PyTorch" ;;
    sanitizer) echo "compute-sanitizer over the op tests of custom kernels" ;;
    esac
}

fact() { echo "fact: $1 = $2"; } # a line of the report
skip() {
    echo "not run: $*"
    exit 77
}
take_libraries() {
    [ ! -s "$out/libraries" ] || export LD_LIBRARY_PATH="$(cat "$out/libraries")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
}
has_gpu() {
    command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep '^GPU ' >/dev/null
}
dtrain_path() {
    if [ -n "${DTRAIN:-}" ]; then echo "$DTRAIN"; elif [ -e "$out/program" ]; then cat "$out/program"; else echo build-gpu/dtrain; fi
}
need_dtrain() {
    [ -x "$(dtrain_path)" ] || skip "there is no dtrain: section build did not make one"
}
tests_dir() {
    local beside
    beside=$(dirname "$(dtrain_path)")
    if [ -n "${TESTS:-}" ]; then echo "$TESTS"; elif [ -x "$beside/test_ops_custom_cuda" ]; then echo "$beside"; else echo build-gpu; fi
}
# Folders of the nvidia-* packages of PYTHON, if it has them: then both sides of a comparison have the same libraries.
wheel_libraries() {
    "${PYTHON:-python3}" -c 'import glob, importlib.util as u
s = u.find_spec("nvidia")
print(":".join(d for p in (s.submodule_search_locations if s else []) for d in sorted(glob.glob(p + "/*/lib"))), end="")' 2>/dev/null
}

# ---- the sections, each run by a process of its own ------------------------------------------------
section_device() {
    [ $DRY = no ] || { echo "a dry run, no GPU" >"$out/gpu.txt"; fact gpu "none: a dry run"; return 0; }
    has_gpu || skip "there is no GPU: nvidia-smi lists none"
    nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit --format=csv,noheader | sed -n 1p >"$out/gpu.txt" || return 1
    fact gpu "$(cat "$out/gpu.txt")"
    fact cores "$(nproc)"
    command -v nvcc >/dev/null && fact nvcc "$(nvcc --version | sed -n 's/.*release //p')"
    return 0
}

section_build() {
    if [ -n "${DTRAIN:-}" ]; then
        fact program "$DTRAIN"
    elif [ -n "${BUNDLE:-}" ]; then
        rm -rf "$out/bundle" # another version's
        mkdir -p "$out/bundle" && tar -xzf "$BUNDLE" -C "$out/bundle" || return 1
        find "$(realpath "$out/bundle")" -type f -name dtrain -perm -u+x -print -quit >"$out/program"
        [ -s "$out/program" ] || { echo "there is no dtrain in $BUNDLE"; return 1; }
        fact bundle "$BUNDLE, $(du -m "$BUNDLE" | cut -f1) MiB"
    else
        TARGETS=gpu_tests launch/build.sh build-gpu -DDTRAIN_TESTS=ON -DDTRAIN_CUDA=ON -DDTRAIN_CUDA_ARCHITECTURES=native || return 1
    fi
    wheel_libraries >"$out/libraries"
    take_libraries
    [ ! -s "$out/libraries" ] || fact libraries "of the Python packages in $(cut -d: -f1 "$out/libraries")/.."
    "$(dtrain_path)" info >"$out/info.txt" || { cat "$out/info.txt"; return 1; }
    cat "$out/info.txt"
    [ $DRY = yes ] || grep -q '^device .*cuda 0: .*sm_' "$out/info.txt" || { echo "dtrain info lists no GPU: $(sed -n 's/^device *//p' "$out/info.txt" | head -1)"; return 1; }
}

section_ops() {
    local t name code rc=0 names=() pids=()
    for t in "$(tests_dir)"/test_ops_*_cuda; do
        [ -x "$t" ] || continue
        name=$(basename "$t")
        # the harness takes the module's backend instead of the fake GPU
        SOURCE=$root DTRAIN_TEST_DEVICE=$([ $DRY = no ] && echo real) "$t" >"$out/$name.log" 2>&1 &
        names+=("$name") pids+=($!)
    done
    [ ${#pids[@]} -gt 0 ] || skip "no op tests for the device in $(tests_dir) (a bundle of the target gpu_bundle has them; else set TESTS to a build tree)"
    for t in "${!pids[@]}"; do
        name=${names[t]}
        wait "${pids[t]}" || { code=$? rc=1; fact "failed in $name" "$(grep -o 'FAILED  \] test_.*' "$out/$name.log" | sort -u | wc -l) tests, exit $code"; tail -n 3 "$out/$name.log"; }
        fact "$name" "$(grep -c '\[       OK' "$out/$name.log") tests passed"
    done
    return $rc
}

fusion_data() {
    [ -e "$out/biometric.done" ] || { "$(dtrain_path)" synth biometric "$out/raw" --n 8 >/dev/null && "$(dtrain_path)" pack "$out/raw" "$out/biometric.lmdb" >/dev/null && touch "$out/biometric.done"; }
}
# device, name, overrides: STEPS steps of two micro-batches, so that what accumulates and what adds two flat buffers are
# the same sums. With launch=exec in place of the shell.
fusion() {
    local device=$1 name=$2
    shift 2
    [ $DRY = no ] || { device=cpu; set -- device.replicas=1 "data.fields.iris.size=[24, 32]" "data.fields.fingerprint.size=[26, 24]" "$@"; }
    ${launch:-} "$(dtrain_path)" configs/fusion.yaml "data.path=$out/biometric.lmdb" data.fields.subject.classes=8 "run.dir=$out/runs" "run.name=$name" \
        "data.cache_dir=$out/cache" "device.kind=$device" train.global_batch=8 train.micro_batch=4 train.max_steps=$STEPS train.precision=fp32 \
        "metrics.sinks=[jsonl]" "eval.every=1000 steps" "data.split={val: 0, test: 0}" "$@"
}
losses() { grep '"kind":"step"' "$out/runs/$1/metrics.jsonl" | sed 's/.*"loss":\([^,]*\),.*/\1/'; }

section_curve() {
    need_dtrain
    fusion_data || return 1
    local run rc=0 pids=()
    rm -rf "$out/runs"/curve_*
    # At a tenth of the config's rate: at all of it rounding alone grows past 1e-3 within 20 small steps (one against two
    # CPU threads too), which says nothing of kernels.
    local same=(train.max_steps=$ALL train.optimizer.lr=2.0e-4)
    # at once: the CPU's take a core and two, and most of the time
    fusion cpu curve_one "${same[@]}" device.threads=1 device.replicas=1 >"$out/curve_one.log" 2>&1 &
    pids+=($!)
    fusion cpu curve_two "${same[@]}" device.threads=2 device.replicas=1 >"$out/curve_two.log" 2>&1 &
    pids+=($!)
    fusion cuda curve_gpu "${same[@]}" || rc=1
    fusion cuda curve_bf16 "${same[@]}" train.precision=bf16 || { fact "bf16" "not run"; [ $DRY = yes ] || rc=1; }
    for run in "${pids[@]}"; do wait "$run" || rc=1; done
    [ $rc = 0 ] || { tail -n 2 "$out"/curve_*.log; return 1; }
    for run in one two gpu bf16; do losses curve_$run >"$out/curve_$run.txt" 2>/dev/null; done
    paste "$out"/curve_{one,two,gpu,bf16}.txt | tee "$out/curve.txt" | awk -F'\t' -v steps=$STEPS -v all=$ALL '
        function apart(a, b, worst) { a = a > b ? a - b : b - a; return a > worst ? a : worst }
        { late = NR > steps
          spread[late] = apart($1, $2, spread[late])
          gpu[late] = apart($1, $3, gpu[late])
          if ($4 != "") { n_bf16++; bf16[late] = apart($3, $4, bf16[late]) }
          for (i = 1; i < 4; i++) odd += $i !~ /^[0-9.]+(e[-+]?[0-9]+)?$/ }
        END {
          printf "fact: fp32, largest difference to one CPU thread, steps 1 to %d = %.2e (goal 1e-3)\n", steps, gpu[0]
          printf "fact: fp32, the same, steps %d to %d = %.2e (goal: three times the spread, or 1e-3)\n", steps + 1, all, gpu[1]
          printf "fact: spread of one against two CPU threads = %.2e, then %.2e\n", spread[0], spread[1]
          if (n_bf16) printf "fact: bf16, largest difference to fp32 on the same device = %.2e, then %.2e (%d steps)\n", bf16[0], bf16[1], n_bf16
          room = 3 * spread[1] > 1e-3 ? 3 * spread[1] : 1e-3 # a GPU differs in every kernel, two threads in few
          exit !(NR == all && !odd && gpu[0] <= 1e-3 && gpu[1] <= room) }'
}

section_bench() {
    need_dtrain
    bench "$out/bench.jsonl" --skip start_resnet50 ${ROWS:+--only $ROWS}
}

# FILE, arguments of bench_gpu.py: runs it and turns its rows into facts, one a goal
bench() {
    local python=${PYTHON:-python3} side=both limit=70 rc file=$1 see='torch.cuda.is_available()'
    shift
    command -v "$python" >/dev/null || skip "there is no $python (set PYTHON): bench_gpu.py is written in it"
    [ $DRY = no ] || { see=True; set -- "$@" --dry-run; }
    [ $limit -lt $((SECTION_S / 2)) ] || limit=$((SECTION_S / 2))
    "$python" -c "import torch, torchvision; assert $see" 2>/dev/null || { side=dtrain; fact peer "not run: $python has no torch and torchvision that see the GPU (set PYTHON)"; }
    rm -f "$file"
    "$python" tests/bench/bench_gpu.py --dtrain "$(realpath "$(dtrain_path)")" --python "$(command -v "$python")" --side $side \
        --seconds $((SECTION_S - SECONDS > 12 ? SECTION_S - SECONDS - 10 : 2)) --limit $limit --out "$file" "$@" # SECONDS: of looking for torch
    rc=$?
    "$python" tests/gpu/bench_facts.py "$file"
    return $rc
}

# name: SIGKILL as soon as there is a checkpoint, then the same command to the end
killed() {
    local try pid rc=0 checkpoints=$out/runs/$1/checkpoints
    for try in 1 2 3; do # a quick one may end before it is seen
        rm -rf "$out/runs/$1"
        launch=exec fusion cuda "$1" "checkpoint.every=1 steps" &
        pid=$!
        until compgen -G "$checkpoints/step-*" >/dev/null || ! kill -0 $pid 2>/dev/null; do sleep 0.01; done
        kill -9 $pid 2>/dev/null
        wait $pid
        rc=$?
        [ $rc = 0 ] || break
    done
    [ $rc = 137 ] || { echo "the run that was to be killed ended with $rc"; return 1; }
    fact "killed behind" "$(compgen -G "$checkpoints/step-*" | tail -1 | sed 's/.*step-0*/step /')"
    fusion cuda "$1" "checkpoint.every=1 steps"
}

# what is compared: each pair as soon as it is there
section_bits() {
    local precision rc=0
    need_dtrain
    fusion_data || return 1
    for precision in ${PRECISIONS:-fp32}; do
        [ $precision = fp32 ] || repeats $precision || rc=1
        [ $precision != fp32 ] || bits_fp32 || rc=1
    done
    return $rc
}

# PRECISION: a second run, and one that stopped and went on
repeats() {
    [ $DRY = no ] || { fact "$1" "not judged in a dry run"; return 0; }
    local r rc=0 last
    last=$(printf 'step-%08d/model.safetensors' $STEPS)
    rm -rf "$out/runs/$1"_*
    fusion cuda "$1_1" "train.precision=$1" && fusion cuda "$1_2" "train.precision=$1" || return 1
    fusion cuda "$1_3" "train.precision=$1" run.stop_at=$STOP
    [ $? -eq 75 ] || { echo "run.stop_at did not end with 75"; return 1; }
    fusion cuda "$1_3" "train.precision=$1" || return 1
    for r in "2 a second run" "3 stopped and resumed"; do
        if cmp -s "$out/runs/$1_1/checkpoints/$last" "$out/runs/$1_${r%% *}/checkpoints/$last"; then
            fact "$1, ${r#* }" "the same bits"
        else
            fact "$1, ${r#* }" "OTHER BITS"
            rc=1
        fi
    done
    return $rc
}

bits_fp32() {
    rm -rf "$out/runs"/bits*
    fusion cuda bits1 && fusion cuda bits2 || return 1
    fusion cuda bits3 run.stop_at=$STOP
    [ $? -eq 75 ] || { echo "run.stop_at did not end with 75"; return 1; }
    fusion cuda bits3 || return 1
    killed bits4 || return 1
    fusion cuda bits5 run.reproducible=elastic || return 1 # every micro-batch overwrites a flat buffer of its own; added behind
    local r rc=0 last
    local -A what=([bits2]="a second run" [bits3]="stopped and resumed" [bits4]="killed and resumed" [bits5]="accumulation against plain")
    last=$(printf 'step-%08d/model.safetensors' $STEPS)
    [ -e "$out/runs/bits1/checkpoints/$last" ] || { echo "there is no $last"; return 1; }
    for r in bits2 bits3 bits4 bits5; do
        # the CPU's library adds inside its products
        [ $DRY$r != yesbits5 ] || { fact "${what[$r]}" "not judged in a dry run"; continue; }
        if cmp -s "$out/runs/bits1/checkpoints/$last" "$out/runs/$r/checkpoints/$last"; then
            fact "${what[$r]}" "the same bits"
        else
            fact "${what[$r]}" "OTHER BITS"
            rc=1
        fi
    done
    return $rc
}

# Runs once to choose engines, and again under ncu, uncaptured, so that each kernel is seen.
section_profile() {
    need_dtrain
    [ $DRY = no ] || skip "a dry run: there is no kernel to look at"
    local ncu
    ncu=$(command -v ncu || compgen -G "/usr/local/cuda*/bin/ncu" || compgen -G "/opt/nvidia/nsight-compute/*/ncu") || skip "no ncu on this machine"
    ncu=${ncu%%$'\n'*}
    "$(dtrain_path)" synth photos "$out/photos" --n 512 >/dev/null && "$(dtrain_path)" pack "$out/photos" "$out/photos.tar" >/dev/null || return 1
    local job=("$(dtrain_path)" configs/resnet50.yaml "data.path=$out/photos.tar" "run.dir=$out/runs" "data.cache_dir=$out/cache" device.kind=cuda
        device.capture=false train.precision=bf16 train.global_batch=256 train.micro_batch=256 train.epochs=100
        "metrics.sinks=[jsonl]" "eval.every=1000 steps" "checkpoint.every=1000 steps" data.split.val=0 "data.augment.image=[]" run.resume=never)
    "${job[@]}" run.name=engines train.max_steps=2 || return 1
    "$(dtrain_path)" check "${job[@]:1}" --kernels || return 1 # what ncu's sums are held against
    "$ncu" --clock-control none --metrics gpu__time_duration.sum,dram__bytes.sum --csv --log-file "$out/kernels.csv" \
        "${job[@]}" run.name=profile train.max_steps=2 || return 1
    python3 tests/gpu/kernel_sums.py "$out/kernels.csv" 2
}

section_start() {
    need_dtrain
    bench "$out/start.jsonl" --only start_resnet50
}

section_sanitizer() {
    command -v compute-sanitizer >/dev/null || skip "no compute-sanitizer on this machine"
    [ $DRY = no ] || skip "a dry run: there is no GPU to watch"
    [ -x "$(tests_dir)/test_ops_custom_cuda" ] || skip "no op tests for the device in $(tests_dir)"
    local t rc=0
    for t in test_ops_custom_cuda test_ops_augment_cuda; do
        SOURCE=$root DTRAIN_TEST_DEVICE=real compute-sanitizer --error-exitcode 9 "$(tests_dir)/$t" || rc=1
    done
    return $rc
}

# ---- one section, called by the main part under `timeout` -------------------------------------------
if [ "${1:-}" = --section ]; then
    out=$3
    take_libraries
    "section_$2"
    exit
fi

# ---- all of them -----------------------------------------------------------------------------------------
case ${1:-} in
--dry-run)
    shift
    export DRY=yes DTRAIN=${DTRAIN:-$root/build/dtrain} TESTS=${TESTS:-$root/build}
    ;;
-h | --help)
    sed -n '2,/^set /{s/^# \{0,1\}//;/^set /d;p}' "$self"
    exit 0
    ;;
-*)
    echo "run.sh: unknown option $1; see --help" >&2
    exit 2
    ;;
esac
part=
case " $PARTS " in *" ${1:-none} "*) part=$1 && shift && part_of $part ;; esac
result=${1:-gpu-report}
mkdir -p "$result" && result=$(realpath "$result") || exit 2
out=$result
if [ -n "$part" ]; then # all that is big lies elsewhere
    out=$(mktemp -d)
    trap 'rm -rf "$out"' EXIT
    export XDG_CACHE_HOME=$out/home # where engines chosen by bench_gpu.py's runs go
    [ -z "${ENGINES:-}" ] || tar -xzf "$ENGINES" -C "$out" || exit 2
fi
rm -f "$out"/report.* "$out/program" "$out/libraries"
total=${TOTAL_S:-540}
begin=$(date +%s)
left() { echo $((total - ($(date +%s) - begin))); }
json_text() { sed 's/\\/\\\\/g; s/"/\\"/g; s/\t/ /g' | tr -d '\000-\037'; }
gpu=no
has_gpu && gpu=yes
dry() { [ $DRY = yes ]; }
failed=0
table="" json="" details=""

# A section's limit. The benches take what those behind them do not need, the last takes all that is left.
room_of() {
    local limit room behind=no other
    limit=$(limit_of "$1") room=$(($(left) - 5))
    for other in ${SECTIONS:-$ORDER}; do
        [ $behind = no ] || room=$((room - $(limit_of "$other")))
        [ "$other" != "$1" ] || behind=yes
    done
    case $1 in
    bench | sanitizer) [ $room -le "$limit" ] || limit=$room ;;
    esac
    echo "$limit"
}

run_section() {
    local name=$1 limit seconds rc=0 state why="" begun log=$out/$1.log facts line
    limit=$(room_of "$name")
    [ "$limit" -gt $(($(left) - 5)) ] && limit=$(($(left) - 5))
    begun=$(date +%s)
    if [ $gpu = no ] && ! dry; then
        echo "not run: there is no GPU on this machine" >"$log"
        rc=77
    elif [ "$limit" -lt 5 ]; then
        echo "not run: the $total s were spent" >"$log"
        rc=76
    else
        echo "== $name: $(what_of "$name") (at most $limit s)" >&2
        SECTION_S=$limit timeout -k 5 "$limit" "$self" --section "$name" "$out" >"$log" 2>&1 || rc=$?
    fi
    seconds=$(($(date +%s) - begun))
    case $rc in
    0) state=passed ;;
    76 | 77) state="not run" why=$(sed -n 's/^not run: //p' "$log" | tail -1) ;;
    124 | 137) state="out of time" why="ended after $limit s" ;;
    *) state=FAILED why="exit $rc: $(grep -v '^fact: \|^{' "$log" | grep -v '^$' | tail -1 | cut -c1-200)" ;;
    esac
    [ "$state" = passed ] || { [ "$state" = "not run" ] && [ $rc = 77 ]; } || failed=1
    echo "   $name: $state${why:+ ($why)}, $seconds s" >&2
    table+="| $name | $(what_of "$name") | $state${why:+: ${why//|/\\|}} | $seconds |"$'\n'
    facts="" details+=$'\n'"## $name"$'\n'
    while IFS= read -r line; do
        line=${line#fact: }
        details+="- ${line%% = *}: ${line#* = }"$'\n'
        facts+="${facts:+, }\"$(json_text <<<"${line%% = *}")\": \"$(json_text <<<"${line#* = }")\""
    done < <(grep '^fact: ' "$log")
    json+="${json:+, }{\"section\": \"$name\", \"state\": \"$state\", \"why\": \"$(json_text <<<"$why")\", \"seconds\": $seconds, \"facts\": {$facts}}"
}

write_report() {
    {
        echo "# dtrain on a GPU"
        echo
        echo "$(date -u +%Y-%m-%dT%H:%MZ), commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown), $(cat "$out/gpu.txt" 2>/dev/null || echo "no GPU")"
        ! dry || printf '\n**A dry run on the CPU with tiny sizes: it tries this script and says nothing of a GPU.**\n'
        [ $gpu = yes ] || dry || printf '\n**There is no GPU on this machine: nothing below has run.**\n'
        printf '\n| section | what it shows | state | seconds |\n|---|---|---|---|\n%s' "$table"
        printf '%s' "$details"
    } >"$out/report.md"
    printf '{"gpu": %s, "dry_run": %s, "total_s": %s, "seconds": %s, "failed": %s, "sections": [%s]%s}\n' \
        "$([ $gpu = yes ] && ! dry && echo true || echo false)" "$(dry && echo true || echo false)" "$total" "$(($(date +%s) - begin))" \
        "$([ $failed = 0 ] && echo false || echo true)" "$json" \
        "$([ -s "$out/bench.jsonl" ] && printf ', "bench": [%s]' "$(paste -sd, "$out/bench.jsonl")")" >"$out/report.json"
}

for name in ${SECTIONS:-$ORDER}; do
    [ -n "$(limit_of "$name")" ] || { echo "run.sh: no section $name; there are: $ORDER profile" >&2; exit 2; }
done
# What a part brings back.
collect() {
    [ -n "$part" ] || return 0
    (
        cd "$out" || exit
        for file in report.md report.json bench.jsonl; do [ ! -e $file ] || cp $file "$result/"; done
        find . -name '*.log' -o -name '*.txt' ! -name 'engines-*' -o -name '*.csv' -o -name metrics.jsonl | tar -czf "$result/logs.tar.gz" -T -
        find . -name 'engines-*.txt' | tar -czf "$result/engines.tar.gz" -T -
    )
}
for name in ${SECTIONS:-$ORDER}; do
    run_section "$name"
    write_report # after each: a machine that is taken away leaves what was done
    collect
done
echo "report: $result/report.md" >&2
if [ $gpu = no ] && ! dry; then
    echo "run.sh: there is no GPU on this machine (nvidia-smi lists none): nothing was run" >&2
    exit 77
fi
exit $failed
