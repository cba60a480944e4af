#!/usr/bin/env bash
# Evaluation sees every sample of a split exactly once: also the training split, which training draws from by
# data.balance, and with the same bits whatever the replicas and ranks are. Another batch may get another kernel, which
# rounds otherwise: then counts are the same, and the rest but for rounding.
. "${SOURCE:?}/tests/small_run.sh" || exit

small_data "$work"
config=$(small_config "$work")
metrics='eval.metrics=[accuracy, loss, macro_f1, recall, confusion, eer, auc]'
job=(train.max_steps=4 data.balance=finger "$metrics")

# the end of a run prints its results without matrices, which are in result.json, also when it is asked again
printed() { # [whole]
    python3 - "$work/out" "$work/runs/small/result.json" $* <<'PY' || fail "the end of a run printed $(cat "$work/out")"
import json, sys
printed, kept = ([json.loads(line) for line in open(name)] for name in sys.argv[1:3])
assert sum(sum(row.values()) for row in kept[-1]["confusion"].values()) == kept[-1]["samples"], kept
assert printed == (kept if sys.argv[3:] else [{k: v for k, v in line.items() if k != "confusion"} for line in kept])
PY
}
train "${job[@]}"
printed
train "${job[@]}"
printed
train "${job[@]}" metrics.print_confusion=true
printed whole

eval_run() { # split, name of the output, words
    local split=$1 out=$2
    shift 2
    "$DTRAIN" eval "$work/runs/small" --split "$split" "$metrics" "$@" >"$work/$out" 2>"$work/log" || fail "exit $?: eval $*"
}
# A pair that changes places with another moves the AUC by 1 / (genuine * impostor), and the EER by at most 1 / genuine.
# Scores of a young network lie close together: a hundred may. A loss in fp32 keeps its first five digits.
nearly() {
    python3 - "$work/once" "$work/other" <<'PY'
import json, sys
a, b = (json.load(open(name)) for name in sys.argv[1:])
genuine, impostor = a["pairs"]["genuine"], a["pairs"]["impostor"]
within = {"loss": 1e-5 * a["loss"]}
if genuine:
    within |= {"auc": 100 / (genuine * impostor), "eer": 1 / genuine}
assert a.keys() == b.keys() and all(a[k] == b[k] for k in a if k not in within), (a, b)
assert all(abs(a[k] - b[k]) <= within[k] for k in within), (a, b)
PY
}
for split in train val test; do
    eval_run $split once
    python3 - "$work/once" "$("$DTRAIN" check "$config" 2>/dev/null | grep -o "$split [0-9]*" | cut -d' ' -f2)" <<'PY' ||
import json, sys
r, n = json.load(open(sys.argv[1])), int(sys.argv[2])
assert r["samples"] == n == sum(sum(row.values()) for row in r["confusion"].values()), (r["samples"], n, r["confusion"])
hits = sum(row.get(name, 0) for name, row in r["confusion"].items())
assert abs(r["accuracy"] - hits / n) < 1e-12
assert r["pairs"]["samples"] == n and r["pairs"]["impostor"] > 0, r["pairs"]
PY
        fail "$split: not each sample once"
    for words in eval.batch=1 eval.batch=7; do
        eval_run $split other $words
        nearly || fail "$split: $words: other metrics"
    done
    for words in "device.threads=3 device.replicas=3" data.balance=subject; do
        eval_run $split other $words
        cmp -s "$work/once" "$work/other" || fail "$split: $words gives $(cat "$work/other"), not $(cat "$work/once")"
    done
    if have_mpi; then
        mpi 3 "$DTRAIN" eval "$work/runs/small" --split $split "$metrics" >"$work/other" 2>"$work/log" || fail "3 ranks: exit $?"
        cmp -s "$work/once" "$work/other" || fail "$split: 3 ranks give $(cat "$work/other"), not $(cat "$work/once")"
    fi
done
