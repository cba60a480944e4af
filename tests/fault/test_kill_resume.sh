#!/usr/bin/env bash
# SIGKILL at 30 random moments, resuming each time: weights, moments and the metrics of every step equal
# those of the run that nobody disturbed (run.reproducible=resume, the default).
# KILLS, STEPS and SEED set how many, how long and which moments.
. "${SOURCE:?}/tests/small_run.sh" || exit

small_data "$work"
config=$(small_config "$work")
steps=${STEPS:-500}
kills=${KILLS:-30}
RANDOM=${SEED:-$$}
common=(train.global_batch=8 train.max_steps="$steps" checkpoint.every="7 steps")

now_ms() { echo $(($(date +%s%N) / 1000000)); }
newest_step() { # of the run that is being killed
    local all=$work/runs/killed/checkpoints
    [ ! -d "$all" ] || find "$all" -maxdepth 1 -name 'step-*' -printf '%f\n' | sed 's/^step-0*//' | sort -n | tail -1
}

begin=$(now_ms)
train "${common[@]}" run.name=calm
calm_ms=$(($(now_ms) - begin))

# A life lasts a random time, twice its fair share of what is left to do at most, plus a start: on any
# machine the run is killed in start-up, in steps and in saves, and does not finish before its time.
n=0
while :; do
    "$DTRAIN" "$config" "${common[@]}" run.name=killed >/dev/null 2>"$work/log" &
    pid=$!
    if [ $n -lt "$kills" ]; then
        at=$(newest_step)
        most=$((calm_ms * 19 * (steps - ${at:-0}) / (10 * steps * (kills - n)) + 150))
        life=$((20 + (RANDOM * 32768 + RANDOM) % most))
        sleep "$((life / 1000)).$(printf '%03d' $((life % 1000)))"
        kill -9 $pid 2>/dev/null && n=$((n + 1))
    fi
    rc=0
    wait $pid 2>/dev/null || rc=$?
    case $rc in
    0)
        [ $n -lt $((kills / 2)) ] && [ $calm_ms -gt 100 ] || break
        # the machine is less busy than it was in the calm run: lives were too long
        n=0 calm_ms=$((calm_ms / 2))
        rm -r "$work/runs/killed"
        ;;
    137) ;;
    *) cat "$work/log"; echo "FAILED: exit $rc after $n kills"; exit 1 ;;
    esac
done
echo "$n kills, SEED=${SEED:-$$}"
[ $n -ge $((kills / 2)) ] || { echo "FAILED: the run finished before it could be killed often enough"; exit 1; }

python3 - "$work/runs/calm" "$work/runs/killed" <<'PY'
import glob, json, os, sys

def newest(run, name):
    return open(os.path.join(sorted(glob.glob(run + "/checkpoints/step-*"))[-1], name), "rb").read()

def steps(run):
    rows = [json.loads(line) for line in open(run + "/metrics.jsonl")]
    keep = ("step", "epoch", "samples", "loss", "lr", "grad_norm")
    return [tuple(r[k] for k in keep) for r in rows if r.get("kind") == "step"]

calm, killed = sys.argv[1:]
for name in ("model.safetensors", "optimizer.safetensors"):
    assert newest(calm, name) == newest(killed, name), f"{name} differs"
a, b = steps(calm), steps(killed)
assert len(a) == len(b), f"{len(a)} steps in metrics.jsonl of the calm run, {len(b)} of the killed one"
for x, y in zip(a, b):
    assert x == y, f"step metrics differ: {x} {y}"
assert not glob.glob(killed + "/checkpoints/.tmp*"), "a temporary was left"
print(f"{len(a)} steps: weights, moments and metrics are equal")
PY
