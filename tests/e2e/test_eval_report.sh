#!/usr/bin/env bash
# dtrain eval on another labelled set: all of its samples; by a column of the catalog, with bootstrap intervals, as JSON
# and CSV; the same on ranks; and a line on stderr that says how far it is.
. "${SOURCE:?}/tests/small_run.sh" || exit

small_data "$work"
config=$(small_config "$work")
train train.max_steps=25 data.where="subject != 'nobody'" data.balance=finger
"$DTRAIN" synth biometric "$work/raw2" --subjects 6 --impressions 3 --seed 9 2>"$work/log"
grep -qE '/raw2: 6 subjects in [0-9.]+ s \([0-9]+ subjects/s\)' "$work/log" || fail "no closing line: $(cat "$work/log")"
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
grep -qE 'stdout: metrics of [0-9]+ samples in [0-9.]+ s \([0-9]+ samples/s\)' "$work/screen" || fail "no closing line: $(cat "$work/screen")"
py check_report "$work/report" "$work/report.csv" || fail "the figures do not fit together"
ask one "${say[@]}" eval.bootstrap_unit=subject
py check_units "$work/report" "$work/one" || fail "intervals by person"
ask one eval.metrics=accuracy 'data.columns={one: "substr(hand, 1, 0)"}' eval.bootstrap=20 eval.bootstrap_unit=one
[ "$(py value "$work/one" "r['interval']['accuracy'] == [r['accuracy']] * 2")" = True ] || fail "all of one unit: $(cat "$work/one")"
ask again "${say[@]}" device.threads=3 device.replicas=3
cmp "$work/report" "$work/again" || fail "other threads, other figures"
if have_mpi; then
    mpi 2 "$DTRAIN" eval "$work/runs/small" --set "$work/new set.lmdb" "${say[@]}" >"$work/again" 2>"$work/log" || fail "ranks: exit $?"
    cmp "$work/report" "$work/again" || fail "other ranks, other figures"
fi
# what the run's own data need is not asked of the other set, but can be asked for
ask some data.where="n = '1'"
[ "$(py value "$work/some" "0 < r['samples'] < $(py value "$work/report" 'r["samples"]')")" = True ] || fail "data.where"

# people that the run has never seen: those of a run that tells unseen people apart; its own columns are not asked for
"$DTRAIN" synth biometric "$work/raw3" --n 12 --impressions 3 --seed 4 2>/dev/null
"$DTRAIN" pack "$work/raw3" "$work/people.lmdb" --where "subject > 3" >/dev/null 2>&1
train train.max_steps=5 run.name=people data.split.unit=subject data.split.val=0.3 data.split.test=0.3 data.split.stratify=null eval.by=finger
"$DTRAIN" data query "$work/people.lmdb" "subject > 6" --count >"$work/strangers"
"$DTRAIN" eval "$work/runs/people" --set "$work/people.lmdb" >"$work/out" 2>"$work/log" || fail "exit $?: people"
py check_strangers "$work/out" || fail "pairs of strangers: $(cat "$work/out")"
refused() { exits 2 "$@"; } # TEXT COMMAND …
refused "the run knows only some of: subject has 6 others" "$DTRAIN" eval "$work/runs/people" --set "$work/people.lmdb" eval.metrics=accuracy
refused "column subject has class '7', which this run does not know" "$DTRAIN" eval "$work/runs/small" --set "$work/people.lmdb"
refused "take one of both" "$DTRAIN" eval "$work/runs/small" --set "$work/small.lmdb" --split val
refused "eval.by: the data set has no metadata column 'camera'" "$DTRAIN" eval "$work/runs/small" eval.by=camera
