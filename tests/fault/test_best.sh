#!/usr/bin/env bash
# The best checkpoint is one that is on disk and intact. Calls of saving fail once, one in each run: the run still ends
# with the results, the weights and the best of the run that nobody disturbed. A best checkpoint that is damaged is
# said to be, and the one before it is the best. FULL=1: every call.
. "${SOURCE:?}/tests/small_run.sh" || exit

small_data "$work"
config=$(small_config "$work")
job=(train.max_steps=12 train.global_batch=8 eval.every="3 steps" eval.best=loss checkpoint.every="100 steps")
job+=(train.optimizer.lr=3.0e-3 run.seed=6) # the loss falls at first, then rises
run() { # name, words …
    rc=0
    "$DTRAIN" "$config" "${job[@]}" run.name="$1" "${@:2}" >"$work/out" 2>"$work/log" || rc=$?
}
lines() { sed -E 's/,"(samples_per_s|confusion)".*//' "$work/runs/$1/metrics.jsonl"; }
as_calm() { # name: the same results, metrics, weights and best
    [ $rc = 0 ] || fail "$1: exit $rc"
    cmp "$work/runs/$1/result.json" "$work/runs/calm/result.json" || fail "$1: other results"
    cmp "$work/runs/$1/checkpoints/best.json" "$work/runs/calm/checkpoints/best.json" || fail "$1: another best"
    [ "$(hash "$work/runs/$1")" = "$(hash "$work/runs/calm")" ] || fail "$1: other weights"
    [ "$(lines "$1")" = "$(lines calm)" ] || fail "$1: other metrics"
}

DTRAIN_FAILPOINT=ckpt:1000000:eio run calm
[ $rc = 0 ] || fail "calm: exit $rc"
best=$(sed 's/[^0-9]//g' "$work/runs/calm/checkpoints/best.json")
[ "$(grep -c '"split":"val"' "$work/runs/calm/metrics.jsonl")" = 4 ] || fail "not four evaluations"

# opening makes the first calls, which are no save's; a save makes some 40
every=${EVERY:-${FULL:+1}}
n=0
for ((at = 9; at < 170; at += ${every:-11})); do
    for action in enospc eio; do
        for async in true false; do
            [ -n "${FULL:-}" ] || [ $(((at + ${#action} + ${#async}) % 4)) = 0 ] || continue
            DTRAIN_FAILPOINT=ckpt:$at:$action run one checkpoint.async=$async checkpoint.keep=1
            as_calm one
            n=$((n + 1))
            rm -r "$work/runs/one"
        done
    done
done
[ $n -ge 10 ] || fail "only $n points"
echo "$n failed calls of saving: as if none had failed"

# two in a row, so that a save fails twice: what it was to become, the best, is again the best one on disk
is_honest() { # name: the best has an evaluation, is intact, is what the results say, and no better one was saved
    [ $rc = 0 ] || fail "$1: exit $rc"
    "$DTRAIN" eval "$work/runs/$1" --which best --split test >"$work/evaluated" 2>"$work/log" || fail "$1: eval: exit $?"
    python3 - "$work/runs/$1" "$work/evaluated" <<'PY' || fail "$1: the best is not what is on disk"
import glob, json, sys
run = sys.argv[1]
loss = {}
for line in open(run + "/metrics.jsonl"):
    row = json.loads(line)
    if row["kind"] == "eval" and row["split"] == "val":
        loss[row["step"]] = row["loss"]
saved = {json.load(open(m))["step"] for m in glob.glob(run + "/checkpoints/step-*/manifest.json")
         if json.load(open(m))["best"]}
told = [r for r in map(json.loads, open(run + "/result.json")) if r["split"] == "test" and r["weights"].startswith("best")]
(told,), best = told, json.load(open(sys.argv[2]))
assert told["step"] == best["step"] and told["loss"] == best["loss"], (told, best)
assert best["step"] in saved, (best, saved)
PY
}
n=0
for ((at = 9; at < 150; at += 3)); do
    [ -n "${FULL:-}" ] || [ $((at % 9)) = 0 ] || continue
    DTRAIN_FAILPOINT=ckpt:$at:enospc,ckpt:$((at + 1)):eio,ckpt:$((at + 2)):eio,ckpt:$((at + 3)):eio run two
    cp "$work/log" "$work/two.log"
    if [ $rc = 5 ]; then run two; fi # the last save failed
    n=$((n + $(grep -c "is the best again\|next evaluation is the best" "$work/two.log" || true)))
    is_honest two
    rm -r "$work/runs/two"
done
[ $n -ge 2 ] || fail "no best was lost to two failures in a row"
echo "$n times the best was lost to two failures of a save, and is what is on disk"

# damaged between two starts
run whole run.stop_at=10
[ $rc = 75 ] || fail "whole: exit $rc"
best=$(printf %08d "$(sed 's/[^0-9]//g' "$work/runs/whole/checkpoints/best.json")")
flip() { printf '\x55' | dd of="$1/model.safetensors" bs=1 seek=2000 conv=notrunc status=none; }
cut() { truncate -s -100 "$1/model.safetensors"; }
for damage in flip cut "rm -r"; do
    rm -rf "$work/runs/damaged"
    cp -r "$work/runs/whole" "$work/runs/damaged"
    $damage "$work/runs/damaged/checkpoints/step-$best"
    run damaged
    cp "$work/log" "$work/damaged.log"
    is_honest damaged
    grep -q "the best checkpoint, of step ${best##*0}, is \(skipped\|gone\)" "$work/damaged.log" ||
        fail "$damage: not said of the best checkpoint"
    grep -q "step ${best##*0} was the best" "$work/damaged.log" || fail "$damage: does not say what is the best now"
done
echo "a best checkpoint that is damaged is said to be, and another is the best"
