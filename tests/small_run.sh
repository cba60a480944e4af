# Source this in script tests: a small fusion job that trains in seconds. Gives
#   $work                  a temporary directory, removed at exit; so are processes that are still there
#   small_data DIR         makes DIR/raw and DIR/small.lmdb
#   small_config DIR [CLASSES [large]]  prints the path of a config on it; large: of 1.3 million parameters
#   new_config NAME [SET]  makes $config of run NAME on SET, else $work/set.tar; stdin: its fields, and what comes behind
#   exits CODE TEXT COMMAND …  output in $work/out and $work/log, shown if it ends otherwise, or where the log lacks TEXT
#   train WORD …           trains $config
#   train_on NP WORD …     the same on ranks
#   refused TEXT WORD …    it ends with 2 and TEXT
#   have_mpi               true where there are ranks
#   need_mpi               ends the test as skipped where there are none
#   mpi NP COMMAND …       on NP ranks
#   need_mpich             the same where MPICH's are not: $mpich is its mpirun
#   fake_hosts N        "${hosts[@]}" in front of a rank's command makes hosts of N ranks each, by their names; it is
#                          empty where no names can be given
#   "${ranks[@]}" NP COMMAND …  the same as one process that can be put in the background and signalled
#   wait_until COMMAND …   returns when COMMAND succeeds; the test fails where $pid has ended or minutes have gone
#   wait_for_step RUN      returns when the metrics of the run, which is $pid, show a step
#   have_stopped N         true when the N ranks of the launcher $pid (0: $pid itself) have stopped themselves, as
#                          DTRAIN_FAILPOINT=step:10:stop makes them do: what is done to them then is done in mid-training,
#                          on a machine of any speed. Their ids are ${stopped[@]}; kill -CONT lets them go on
#   is_pending SIGNAL PID  true when it was sent to PID and not answered yet
#   children PID           its child processes in one line; fails when it is gone
#   has_bf16 [slow]        true where dtrain computes in bf16 with the ISA it uses here: natively; with `slow`, at all
#   hash RUN               of the last checkpoint's weights
#   sanitized              true for a program built with AddressSanitizer or ThreadSanitizer
#   $python                an interpreter, which PYTHON names
#   py FUNCTION WORD …     calls a function of the test's Python file, test_x.py beside test_x.sh, or of small_set.py
#   fail WORD …            shows the end of the log, says so and ends the test
set -euo pipefail
: "${SOURCE:?}" "${BUILD:?}" "${DTRAIN:?}"
# jobs that fail end at once (launch/mpi_env.sh)
export OMPI_MCA_odls_base_sigkill_timeout=1
. "$SOURCE/launch/mpi_env.sh"
work=$(mktemp -d)
python=${PYTHON:-python3} this_test=$(realpath "$0")
# what one test chooses by timing is no other test's
# mpirun removes its folder of sessions when it ends, also where another is just about to use it: each test has its own
export TMPDIR=$work XDG_CACHE_HOME=$work/cache
clean_up() {
    local pids
    pids=$(jobs -p)
    [ -z "$pids" ] || kill $pids 2>/dev/null || true
    [ -z "$pids" ] || kill -CONT $pids ${stopped[@]+"${stopped[@]}"} 2>/dev/null || true
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 143' TERM
trap 'exit 130' INT
# ranks and tests share cores here: a thread that waits must not hold one
export OMP_WAIT_POLICY=passive

py() { "$python" "$SOURCE/tests/call.py" "$this_test" "$@"; }
has_bf16() { [[ "$("$DTRAIN" info)" =~ \;\ bf16\ (native${1:+|$1}) ]]; }
have_mpi() { command -v mpirun >/dev/null && [ -e "$BUILD/dtrain_mpi.so" ]; }
need_mpi() { have_mpi || { echo "skipped: no mpirun, or built without MPI"; exit 77; }; }
need_mpich() {
    mpich=$(command -v mpirun.mpich || command -v mpiexec.hydra) && [ -e "$BUILD/dtrain_mpich.so" ] ||
        { echo "skipped: no mpirun of MPICH, or built without"; exit 77; }
}
# Open MPI's own lock orders, and what it keeps until a rank ends, are not ours to judge (LeakSanitizer looks at a
# lone process)
ranks=(env "ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0" "TSAN_OPTIONS=${TSAN_OPTIONS:-}:detect_deadlocks=0"
       mpirun --oversubscribe --bind-to none -np)

fake_hosts() {
    hosts=()
    unshare --uts true 2>/dev/null || return 0
    cat >"$work/host" <<SH
#!/bin/sh
exec unshare --uts sh -c 'hostname "\$0" && exec "\$@"' host\$((OMPI_COMM_WORLD_RANK / $1)) "\$@"
SH
    chmod +x "$work/host"
    hosts=("$work/host")
}

fail() {
    [ ! -e "$work/log" ] || tail -20 "$work/log" >&2
    echo "FAILED: $*" >&2
    exit 1
}

small_data() { # made once for all tests of a build of dtrain
    local stamp sets=$BUILD/small-sets made
    stamp=$(stat -c %i-%Y "$DTRAIN")
    made=$sets/$stamp/${2:-6}-${3:-5}
    if [ ! -d "$made" ]; then
        "$DTRAIN" synth biometric "$work/set/raw" --subjects "${2:-6}" --impressions "${3:-5}" 2>/dev/null
        "$DTRAIN" pack "$work/set/raw" "$work/set/small.lmdb" >/dev/null 2>&1
        find "$sets" -mindepth 1 -maxdepth 1 ! -name "$stamp" -exec rm -rf {} + 2>/dev/null || true
        mkdir -p "$sets/$stamp"
        cp -r "$work/set" "$made.$$" && mv -T "$made.$$" "$made" 2>/dev/null || rm -rf "$made.$$" # another test was faster
        rm -rf "$work/set"
    fi
    cp -r "$made/." "$1/"
}

small_config() {
    local net='{name: resnet, depth: 10, width: 8, stem: small}' batch=8 finger='18, 16' iris='16, 20'
    net=", encoders: {fingerprint: $net, iris: $net}"
    [ "${3:-}" != large ] || net='' batch=16 finger='26, 24' iris='24, 32'
    cat >"$1/small.yaml" <<YAML
run: {name: small, dir: $1/runs, seed: 5}
device: {kind: cpu, threads: 1}
data:
  path: $1/small.lmdb
  view: {pairs: {fields: [fingerprint, iris], within: subject}}
  fields:
    fingerprint: {kind: image, channels: 1, size: [$finger], normalize: {mean: [0.5], std: [0.25]}}
    iris:        {kind: image, channels: 3, size: [$iris], normalize: imagenet}
    subject:     {kind: class, classes: ${2:-6}}
  split: {unit: record, stratify: subject, val: 0.2, test: 0.2}
  augment: {fingerprint: [{shift: 0.05}], iris: [{flip: horizontal}]}
model: {name: fusion, dropout: 0.1$net}
train:
  epochs: 100
  max_steps: 40
  global_batch: $batch
  micro_batch: 2
  precision: fp32
  optimizer: {name: adamw, lr: 1.0e-3, weight_decay: 0.01}
  schedule: {name: cosine, warmup: 5%}
  clip_norm: 1.0
eval: {every: 1000000 steps}
checkpoint: {every: 1000000 steps, keep: 3}
metrics: {every: 10 steps, sinks: [terminal, jsonl]}
comm: {timeout: 600}
YAML
    echo "$1/small.yaml"
}

new_config() {
    config=$work/small.yaml
    {
        printf '%s\n' "run: {name: $1, dir: $work/runs, seed: 5}" "device: {kind: cpu, threads: 1}" \
            "checkpoint: {every: 1000000 steps}" "metrics: {every: 100 steps, sinks: [terminal, jsonl]}" \
            "data:" "  path: ${2:-$work/set.tar}" "  fields:"
        cat
    } >"$config"
}

exits() {
    local code=0
    "${@:3}" >"$work/out" 2>"$work/log" || code=$?
    [ $code = "$1" ] || fail "exit $code, not $1: ${*:3}"
    [ -z "$2" ] || grep -q -- "$2" "$work/log" || fail "no '$2': ${*:3}"
}
train() { exits 0 '' "$DTRAIN" "$config" "$@"; }
train_on() { exits 0 '' "${ranks[@]}" "$1" "$DTRAIN" "$config" "${@:2}"; }
refused() { exits 2 "$1" "$DTRAIN" "$config" run.name=bad "${@:2}"; }

exec {nap_fd}<> <(:)
nap() { read -rt "$1" -u "$nap_fd" || :; } # seconds; a sleep of its own process would take more than most polls

wait_until() { # minutes are for what hangs
    local begin=$SECONDS n=0
    until "$@"; do
        kill -0 "$pid" 2>/dev/null || fail "ended before: $*"
        [ $((SECONDS - begin)) -le 300 ] || fail "not in five minutes: $*"
        nap 0.$((n < 10 ? 0 : 1))2
        n=$((n + 1))
    done
}

wait_for_step() { wait_until grep -qs '"step":[0-9]' "$work/runs/$1/metrics.jsonl"; }

children() { cat "/proc/$1/task/$1/children"; }

have_stopped() {
    local p list=$pid
    [ "$1" = 0 ] || list=$(children "$pid" 2>/dev/null) || return 1
    read -ra stopped <<<"$list"
    [ "$1" = 0 ] || [ ${#stopped[@]} = "$1" ] || return 1
    for p in "${stopped[@]}"; do grep -qs '^State:.T' "/proc/$p/status" || return 1; done
}

is_pending() { # in the mask of those sent to the whole process
    local mask
    mask=$(sed -n 's/^ShdPnd:\t*/0x/p' "/proc/$2/status" 2>/dev/null)
    ((${mask:-0} >> ($(kill -l "$1") - 1) & 1))
}

hash() { # RUN directory: hash of the newest checkpoint's weights
    local newest
    newest=$(ls -d "$1"/checkpoints/step-* | sort | tail -1)
    sha256sum <"$newest/model.safetensors" | cut -c1-16
}

sanitized() {
    [ "$(nm "$DTRAIN" 2>/dev/null | grep -cE '__(a|t)san_init')" != 0 ]
}
