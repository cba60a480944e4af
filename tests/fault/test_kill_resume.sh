#!/usr/bin/env bash
# SIGKILL at 30 random moments, resuming each time: weights, moments and the metrics of every step equal
# those of the run that nobody disturbed (run.reproducible=resume, the default).
. "$SOURCE/tests/small_run.sh"

small_data "$work"
config=$(small_config "$work")
common=(train.max_steps="${STEPS:-600}" checkpoint.every="7 steps")
kills=${KILLS:-30}
RANDOM=${SEED:-$$}

"$DTRAIN" "$config" "${common[@]}" run.name=calm >/dev/null 2>"$work/log" || { cat "$work/log"; exit 1; }

n=0
done=no
while [ $done = no ]; do
    "$DTRAIN" "$config" "${common[@]}" run.name=killed >/dev/null 2>"$work/log" &
    pid=$!
    if [ $n -lt "$kills" ]; then
        sleep "0.$(printf '%03d' $((RANDOM % 600 + 60)))"
        kill -9 $pid 2>/dev/null && n=$((n + 1))
    fi
    rc=0
    wait $pid || rc=$?
    case $rc in
    0) done=yes ;;
    137) ;;
    *) cat "$work/log"; echo "FAILED: exit $rc after $n kills"; exit 1 ;;
    esac
done
echo "$n kills"
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
