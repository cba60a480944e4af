#!/usr/bin/env bash
# dtrain eval on another labelled set: all of its samples; by a column of the catalog, with bootstrap intervals, as JSON
# and CSV; the same on ranks; and a line on stderr that says how far it is.
. "${SOURCE:?}/tests/small_run.sh" || exit

small_data "$work"
config=$(small_config "$work")
train train.max_steps=25 data.where="subject != 'nobody'" data.balance=finger
"$DTRAIN" synth biometric "$work/raw2" --subjects 6 --impressions 3 --seed 9 2>/dev/null
"$DTRAIN" pack "$work/raw2" "$work/new set.lmdb" >/dev/null 2>&1

ask() { # output, words
    local out=$1
    shift
    "$DTRAIN" eval "$work/runs/small" --set "$work/new set.lmdb" "$@" >"$work/$out" 2>"$work/log" || fail "exit $?: eval $*"
}
say=('eval.metrics=[accuracy, macro_f1, loss, confusion, eer]' 'eval.by=[finger, n]' eval.bootstrap=200)
ask report "${say[@]}" --csv "$work/report.csv"
python3 -c 'import pty, sys; sys.exit(pty.spawn(sys.argv[1:]))' "$DTRAIN" eval "$work/runs/small" >"$work/screen"
grep -qE 'eval \[#+\] ([0-9]+)/\1 samples' "$work/screen" || fail "no line of progress: $(cat "$work/screen")"
python3 - "$work/report" "$work/report.csv" <<'PY' || fail "the figures do not fit together"
import csv, json, sys
r = json.load(open(sys.argv[1]))
n = r["samples"]
assert n == sum(sum(row.values()) for row in r["confusion"].values()) and n > 40, n
for column in ("finger", "n"):
    parts = r["by"][column]
    assert len(parts) > 1 and list(parts) == sorted(parts) and sum(p["samples"] for p in parts.values()) == n, parts
    for metric in ("accuracy", "loss"):
        mean = sum(p["samples"] * p[metric] for p in parts.values()) / n
        assert abs(mean - r[metric]) < 1e-9, (column, metric, mean, r[metric])
assert len({p["loss"] for p in r["by"]["finger"].values()}) > 1
for metric in ("accuracy", "macro_f1", "loss"):
    low, high = r["interval"][metric]
    assert low <= r[metric] <= high and low < high, (metric, low, r[metric], high)
assert "eer" not in r["interval"], r["interval"]
# a share's interval is about that of the binomial distribution
low, high = r["interval"]["accuracy"]
p = r["accuracy"]
assert abs((high - low) - 2 * 1.96 * (p * (1 - p) / n) ** 0.5) < 0.3 * (high - low) + 1e-3, (low, high, p, n)
rows = dict(csv.reader(open(sys.argv[2])))
assert float(rows["accuracy"]) == r["accuracy"] and float(rows["interval.loss.1"]) == r["interval"]["loss"][1], rows
finger = list(r["by"]["finger"])[0]
assert float(rows[f"by.finger.{finger}.loss"]) == r["by"]["finger"][finger]["loss"]
PY
ask again "${say[@]}" device.threads=3 device.replicas=3
cmp "$work/report" "$work/again" || fail "other threads, other figures"
if have_mpi; then
    mpi 2 "$DTRAIN" eval "$work/runs/small" --set "$work/new set.lmdb" "${say[@]}" >"$work/again" 2>"$work/log" || fail "ranks: exit $?"
    cmp "$work/report" "$work/again" || fail "other ranks, other figures"
fi
# what the run's own data need is not asked of the other set, but can be asked for
ask some data.where="n = '1'"
python3 -c 'import json, sys; a, b = (json.load(open(f))["samples"] for f in sys.argv[1:]); assert 0 < b < a, (a, b)' \
    "$work/report" "$work/some" || fail "data.where"

# people that the run has never seen: those of a run that tells unseen people apart; its own columns are not asked for
"$DTRAIN" synth biometric "$work/raw3" --n 12 --impressions 3 --seed 4 2>/dev/null
"$DTRAIN" pack "$work/raw3" "$work/people.lmdb" --where "subject > 3" >/dev/null 2>&1
train train.max_steps=5 run.name=people data.split.unit=subject data.split.val=0.3 data.split.test=0.3 data.split.stratify=null eval.by=finger
"$DTRAIN" data query "$work/people.lmdb" "subject > 6" --count >"$work/strangers"
"$DTRAIN" eval "$work/runs/people" --set "$work/people.lmdb" >"$work/out" 2>"$work/log" || fail "exit $?: people"
python3 - "$work/out" <<'PY' || fail "pairs of strangers: $(cat "$work/out")"
import json, sys
r = json.load(open(sys.argv[1]))
# 9 people of 3 x 3 pairs of images; pairs of samples without a common image: 2 x 2 genuine ones for each sample
assert r["samples"] == 81 and r["pairs"]["genuine"] == 9 * 9 * 4 // 2, r
assert r["pairs"]["impostor"] == 81 * 72 // 2 and 0 < r["eer"] < 1 and "loss" not in r and "by" not in r, r
PY
refused() { exits 2 "$@"; } # TEXT COMMAND …
refused "the run knows only some of: subject has 6 others" "$DTRAIN" eval "$work/runs/people" --set "$work/people.lmdb" eval.metrics=accuracy
refused "column subject has class '7', which this run does not know" "$DTRAIN" eval "$work/runs/small" --set "$work/people.lmdb"
refused "take one of both" "$DTRAIN" eval "$work/runs/small" --set "$work/small.lmdb" --split val
refused "eval.by: the data set has no metadata column 'camera'" "$DTRAIN" eval "$work/runs/small" eval.by=camera
