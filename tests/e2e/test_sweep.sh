#!/usr/bin/env bash
# dtrain sweep: folds, seeds and settings as runs of their own; a run that fails; a stop and the same command again;
# the table against sums made here, and what orders it; names of odd values; two sweeps in one folder.
. "$SOURCE/tests/small_run.sh"
small_data "$work" 6 4
config=$(small_config "$work")
sweep() { (cd "$work" && "$DTRAIN" sweep "$config" "$@" 2>>"$work/log"); }

# -- mistakes are found before anything starts
for bad in "run.seed=1" "run.seed=1,,2" "train.optimizer.lr=1e-3,fast" "run.seed=4..2" "run.seed=1,1" "run.seed=1,2 run.seed=2,3" "run.seed=1,2 run.seed=3" "seed"; do
    code=0
    sweep run.name=bad train.max_steps=3 $bad >/dev/null || code=$?
    [ $code = 2 ] || fail "$bad: exit $code"
done
[ ! -e "$work/runs/bad" ] || fail "a sweep that cannot start made a directory"

# -- two settings, two seeds; one setting fails in the run
code=0
sweep run.name=s train.max_steps=3 run.seed=1,2 train.optimizer.lr=1e-3,1e30 >"$work/table" || code=$?
[ $code = 6 ] || fail "a failing run: exit $code, not 6"
[ "$(wc -l <"$work/runs/s/sweep.csv")" = 3 ] || fail "sweep.csv: $(cat "$work/runs/s/sweep.csv")"
[ "$(wc -l <"$work/runs/s/runs.csv")" = 5 ] || fail "runs.csv: $(cat "$work/runs/s/runs.csv")"
grep -q '^"seed=1,lr=1e-3",1,1e-3,0,3,' "$work/runs/s/runs.csv" || fail "no good run: $(cat "$work/runs/s/runs.csv")"
grep -q '^"seed=1,lr=1e30",1,1e30,6,,,,,$' "$work/runs/s/runs.csv" || fail "no failed run: $(cat "$work/runs/s/runs.csv")"
"$DTRAIN" report "$work"/runs/s/* -o "$work/compare.html" || fail "the report of a sweep"
grep -q '<h1>4 runs</h1>' "$work/compare.html" || fail "not its 4 runs"
"$DTRAIN" watch "$work"/runs/s/* >"$work/out"
[ "$(grep -c '^step [0-9]' "$work/out")" = 4 ] || fail "watch: $(cat "$work/out")"
head -1 "$work/table" | grep '^lr=1e-3 .*(2 of 2 runs)$' >/dev/null || fail "the better one is not first: $(cat "$work/table")"
awk -F, 'NR == FNR { if (FNR == 1) for (i = 1; i <= NF; i++) if ($i == "test.loss") column = i + 1
                     else; else if ($0 ~ /lr=1e-3/) { sum += $column; n++; x[n] = $column }; next }
         FNR == 1 { for (i = 1; i <= NF; i++) if ($i == "test.loss_mean") at = i }
         FNR == 2 { mean = sum / n; std = sqrt((x[1] - mean) ^ 2 + (x[2] - mean) ^ 2)
                    if (n != 2 || ($at - mean) ^ 2 > 1e-12 || ($(at + 1) - std) ^ 2 > 1e-12) exit 1 }' \
    "$work/runs/s/runs.csv" "$work/runs/s/sweep.csv" || fail "mean or standard deviation: $(cat "$work"/runs/s/*.csv)"

# -- stopped by a signal in the second run: 75; the same command does the rest and repeats nothing
DTRAIN_FAILPOINT=step:2:stop "$DTRAIN" sweep "$config" run.dir="$work/runs" run.name=t train.max_steps=4 run.seed=1..3 \
    >"$work/out" 2>>"$work/log" &
pid=$!
wait_until have_stopped 1
kill -TERM $pid
kill -CONT "${stopped[0]}"
code=0
wait $pid || code=$?
[ $code = 75 ] || fail "a stopped sweep: exit $code"
[ ! -e "$work/runs/t/seed=2" ] || fail "a run was started behind the signal"
sweep run.name=t train.max_steps=4 run.seed=1..3 --jobs 2 >"$work/table"
grep -q '(3 of 3 runs)$' "$work/table" || fail "after the stop: $(cat "$work/table")"
hash_before=$(hash "$work/runs/t/seed=1")
sweep run.name=t train.max_steps=4 run.seed=1..3 >"$work/again"
cmp "$work/table" "$work/again" || fail "again: $(cat "$work/again")"
[ "$hash_before" = "$(hash "$work/runs/t/seed=1")" ] || fail "a finished run was trained again"
code=0
sweep run.name=t train.max_steps=5 run.seed=1..3 >"$work/again" || code=$?
[ $code = 2 ] && ! grep -q '(3 of 3 runs)$' "$work/again" || fail "results of other keys: exit $code: $(cat "$work/again")"

# -- messages of a run go through no link
echo kept >"$work/victim"
ln -s "$work/victim" "$work/runs/t/seed=4.log"
code=0
sweep run.name=t train.max_steps=4 run.seed=1..4 --jobs 2 >/dev/null || code=$?
[ $code = 5 ] && [ "$(cat "$work/victim")" = kept ] || fail "messages through a link: exit $code: $(cat "$work/victim")"

# -- runs side by side are on GPUs of their own, as far as there are, of those that may be used
mkdir "$work/bin"
cat >"$work/bin/mpirun" <<SH
#!/bin/sh
echo "\$CUDA_VISIBLE_DEVICES" >>"$work/gpus"
for i in \$(seq 300); do [ "\$(wc -l <"$work/gpus")" -lt 3 ] && sleep 0.1; done
exit 2
SH
chmod +x "$work/bin/mpirun"
PATH=$work/bin:$PATH CUDA_VISIBLE_DEVICES=4,5,GPU-a,7,8 sweep run.name=gpus device.kind=cuda run.seed=1..3 --jobs 3 --np 2 >/dev/null || true
[ "$(sort "$work/gpus" | paste -sd' ')" = "4,5 8,4 GPU-a,7" ] || fail "GPUs of runs: $(cat "$work/gpus")"

# -- what orders: the validation of the best checkpoint, by what chose it; the test is shown, and orders only where
# there is nothing else, with a warning
results() { # SWEEP VALUE LINE …: what a run of it measured
    mkdir -p "$work/runs/$1/lr=$2"
    py write_result "$work/runs/$1/lr=$2/result.json" '{"split":"train","weights":"last","step":9,"loss":1,"chosen_by":"'"$best"'"}' "${@:3}"
}
ordered() { # SWEEP TEXT …: the lines of its table begin so
    local name=$1 line
    shift
    (cd "$work" && "$DTRAIN" sweep "$config" run.name="$name" train.optimizer.lr=1e-1,1e-2,1e-3 --table >"$work/table" 2>"$work/log") ||
        fail "$name: --table ends with $?"
    while read -r line; do
        [[ $line == "$1"* ]] || fail "$name: '$line', not '$1'"
        shift
    done <"$work/table"
    [ $# = 0 ] || fail "$name: no line $1"
}
best=accuracy
results val 1e-1 '{"split":"val","weights":"best","step":3,"accuracy":0.5}' '{"split":"val","weights":"last","step":9,"accuracy":0.9,"loss":1}' \
    '{"split":"test","weights":"last","step":9,"accuracy":0.9}' '{"split":"test","weights":"best","step":3,"accuracy":0.8}'
results val 1e-2 '{"split":"val","weights":"best and last","step":9,"accuracy":0.7,"loss":1}' '{"split":"test","weights":"best and last","step":9,"accuracy":0.1}'
results val 1e-3 '{"split":"val","weights":"best and last","step":9,"accuracy":0.6,"loss":1}' '{"split":"test","weights":"best and last","step":9,"accuracy":0.95}'
ordered val 'lr=1e-2  val.accuracy 0.7  test.accuracy 0.1 ' 'lr=1e-3  val.accuracy 0.6  test.accuracy 0.95 ' 'lr=1e-1  val.accuracy 0.5  test.accuracy 0.8 '
! grep -q warning "$work/log" || fail "a warning: $(cat "$work/log")"
best=pose.mae # of one of several targets; lower is better
for v in 1e-1:0.3 1e-2:0.2 1e-3:0.4; do
    results mae ${v%:*} '{"split":"val","weights":"best and last","step":9,"loss":'"${v#*:}"',"pose.mae":'"${v#*:}"',"class.accuracy":0.5}'
done
ordered mae 'lr=1e-2  val.pose.mae 0.2  val.loss 0.2  val.class.accuracy 0.5 ' 'lr=1e-1  val.pose.mae 0.3 ' 'lr=1e-3  val.pose.mae 0.4 '
best=macro_f1
for v in 1e-1:0.3 1e-2:0.2 1e-3:0.4; do
    results test ${v%:*} '{"split":"test","weights":"last","step":9,"accuracy":0.5,"macro_f1":'"${v#*:}"'}'
done
ordered test 'lr=1e-3  test.macro_f1 0.4  test.accuracy 0.5 ' 'lr=1e-1 ' 'lr=1e-2 '
grep -q "no run has a validation split: the order is by test.macro_f1, which is not fit for choosing" "$work/log" || fail "no warning: $(cat "$work/log")"

# -- the figures of a class of any name are columns like others, and nothing of it reaches a terminal as it is
best=accuracy
for v in 1e-1 1e-2 1e-3; do
    results odd $v '{"split":"val","weights":"best and last","step":9,"accuracy":0.5,"f1.left, \"old\"\u001b[2J\n\u009b1m":0.25}'
done
ordered odd 'lr=1e-1  val.accuracy 0.5  val.f1.left, "old"\x1b[2J\n\x9b1m 0.25 ' 'lr=1e-2 ' 'lr=1e-3 '
# a terminal gets the metric that orders the rows; a pipe and the CSV have all
for v in 1e-1 1e-2 1e-3; do
    results wide $v '{"split":"val","weights":"best and last","step":9,"accuracy":0.5,"recall":0.25,"recall.cat":0.3,"macro_f1":0.4,"top5":1,"loss":0.125,"roc_auc":0.75,"brier":0.1}'
done
ordered wide 'lr=1e-1  val.accuracy 0.5  val.recall 0.25  val.recall.cat 0.3  val.macro_f1 0.4  val.top5 1  val.loss 0.125  val.roc_auc 0.75  val.brier 0.1  (1' 'lr=1e-2' 'lr=1e-3'
(cd "$work" && py on_screen 90 "$work/table" "$DTRAIN" sweep "$config" run.name=wide train.optimizer.lr=1e-1,1e-2,1e-3 --table)
[ "$(grep -c '^lr=1e-[123]  val.accuracy 0.5  (1 of 1 runs)' "$work/table")" = 3 ] || fail "in a window: $(cat "$work/table")"
grep -q "wide/sweep.csv has 7 more columns" "$work/table" || fail "the others: $(cat "$work/table")"
py check_odd "$work/runs/odd" "$work/table" || fail "a class of an odd name: $(cat "$work/runs/odd"/*.csv "$work/table")"

# -- --metric orders by another number, --top shows the first; a metric that no run has
best=accuracy
(cd "$work" && "$DTRAIN" sweep "$config" run.name=val train.optimizer.lr=1e-1,1e-2,1e-3 --table --metric test.accuracy --top 2 >"$work/table" 2>"$work/log") ||
    fail "--metric: exit $?"
[ "$(cut -d' ' -f1 "$work/table" | tr '\n' ' ')" = "lr=1e-3 lr=1e-1 " ] || fail "--metric, --top: $(cat "$work/table")"
grep -q "warning: --metric: the order is by test.accuracy, which is not fit for choosing; take one of val" "$work/log" ||
    fail "no warning: $(cat "$work/log")"
[ "$(wc -l <"$work/runs/val/sweep.csv")" = 4 ] || fail "--top leaves rows out of sweep.csv"
code=0
(cd "$work" && "$DTRAIN" sweep "$config" run.name=val train.optimizer.lr=1e-1,1e-2,1e-3 --table --metric val.mae >/dev/null 2>"$work/log") || code=$?
[ $code = 2 ] && grep -q "no run has it; there is accuracy" "$work/log" || fail "--metric val.mae: $(cat "$work/log")"
code=0
sweep run.name=unknown train.optimizer.lr=1e-1,1e-2 --metric val.mae >/dev/null || code=$?
[ $code = 2 ] && [ "$(ls -d "$work"/runs/unknown/lr=*/ | wc -l)" = 1 ] || fail "both runs were trained before --metric was looked at"

# -- values that are drawn: as many runs as values, the same again, evenly by their logarithm
drawn() { ( (cd "$work" && "$DTRAIN" sweep "$config" run.name=drawn "$@" --table 2>&1 || true) | grep -o 'lr=[^ ]* *weight_decay=[^ ]*\|[0-9]* of [0-9]* runs have no result'); }
drawn 'train.optimizer.lr=log(1e-4,1e-2,40)' 'train.optimizer.weight_decay=uniform(0,0.5,40)' >"$work/table"
grep -qx "40 of 40 runs have no result" "$work/table" && [ "$(grep -c lr= "$work/table")" = 40 ] || fail "drawn: $(cat "$work/table")"
drawn 'train.optimizer.lr=log(1e-4,1e-2,40)' 'train.optimizer.weight_decay=uniform(0,0.5,40)' | cmp - "$work/table" || fail "drawn anew"
py check_drawn "$work/table" || fail "drawn values"
for bad in 'train.optimizer.lr=log(0,1,3)' 'train.optimizer.lr=uniform(1,0,3)' 'train.optimizer.lr=log(1e-3,1e-2)'; do
    code=0
    (cd "$work" && "$DTRAIN" sweep "$config" run.name=drawn "$bad" >/dev/null 2>"$work/log") || code=$?
    [ $code = 2 ] && grep -q "expected log(low,high,n)" "$work/log" || fail "$bad: $(cat "$work/log")"
done
code=0
(cd "$work" && "$DTRAIN" sweep "$config" run.name=drawn 'train.optimizer.lr=log(1e-3,1e-2,3)' 'train.optimizer.weight_decay=uniform(0,1,4)' >/dev/null 2>"$work/log") || code=$?
[ $code = 2 ] && grep -q "as many of each" "$work/log" || fail "drawn, not as many: $(cat "$work/log")"

# -- folds are pooled: each record of the set is predicted by the run that held it out
pooled=(run.name=p data.split.folds=3 data.split.fold=0..2 train.optimizer.lr=1e-3,1e-2
        train.schedule.name=constant "train.schedule.warmup=2 steps")
sweep "${pooled[@]}" train.max_steps=3 >"$work/table"
[ "$(grep -c "pooled.accuracy" "$work/table")" = 2 ] || fail "no pooled accuracy: $(cat "$work/table")"
py check_pooled "$work/runs/p" "$work/table" || fail "pooled folds"
before=$(stat -c %Y.%i "$work/runs/p/fold=0,lr=1e-3/heldout.csv")
sweep "${pooled[@]}" train.max_steps=3 | cmp - "$work/table" || fail "pooled again"
[ "$before" = "$(stat -c %Y.%i "$work/runs/p/fold=0,lr=1e-3/heldout.csv")" ] || fail "predicted again"
# runs that are made longer are pooled anew, by one of two sweeps at a time
sweep "${pooled[@]}" train.max_steps=6 >"$work/other" &
other=$!
sweep "${pooled[@]}" train.max_steps=6 >"$work/table" || fail "two sweeps: $(tail -3 "$work/log")"
wait $other || fail "the other of two sweeps: $(tail -3 "$work/log")"
cmp "$work/table" "$work/other" || fail "two sweeps differ"
[ "$before" != "$(stat -c %Y.%i "$work/runs/p/fold=0,lr=1e-3/heldout.csv")" ] || fail "pooled what was held out before"
py check_pooled "$work/runs/p" "$work/table" || fail "pooled longer folds"

# -- halving: nine settings, of which three come to the second rung and one to the end, by the validation; again, the
# same, after a stop too; the one that is left is as if trained alone
halve=(run.name=h 'eval.every=1 epoch' train.max_steps=null train.epochs=9 'train.optimizer.lr=log(1e-5,1e-1,9)' --early-stop halving --metric val.loss)
DTRAIN_FAILPOINT=step:2:stop "$DTRAIN" sweep "$config" run.dir="$work/runs" "${halve[@]}" >"$work/out" 2>>"$work/log" &
pid=$!
wait_until have_stopped 1
kill -TERM $pid
kill -CONT "${stopped[0]}"
code=0
wait $pid || code=$?
[ $code = 75 ] || fail "a stopped halving: exit $code"
sweep "${halve[@]}" >"$work/table" || fail "halving: exit $?"
py check_halving "$work/runs/h" "$work/table" || fail "halving: $(cat "$work/table")"
sweep "${halve[@]}" --jobs 2 | cmp - "$work/table" || fail "halving again"
[ "$(grep -c "(dropped)$" "$work/table")" = 8 ] || fail "what was dropped: $(cat "$work/table")"
sweep "${halve[@]}" --table | cmp - "$work/table" || fail "the table of a halving"
best=$(awk -F, 'NR == 2 {print $1}' "$work/runs/h/sweep.csv")
train_alone=(run.name=alone 'eval.every=1 epoch' train.max_steps=null train.epochs=9 "train.optimizer.lr=$best")
"$DTRAIN" "$config" run.dir="$work/runs" "${train_alone[@]}" >/dev/null 2>>"$work/log" || fail "alone"
[ "$(hash "$work/runs/alone")" = "$(hash "$work/runs/h/lr=$best")" ] || fail "pauses change the training"
code=0
sweep run.name=h3 'eval.every=1 epoch' train.max_steps=null train.epochs=9 'train.optimizer.lr=log(1e-5,1e-1,9)' --early-stop halving --metric val.recall >/dev/null || code=$?
[ $code = 2 ] && grep -q -- "--metric val.recall: no run has it; there is accuracy, top5, loss" "$work/log" || fail "halving by a metric that is not there: exit $code"
[ "$(ls -d "$work"/runs/h3/lr=*/ | wc -l)" = 1 ] || fail "other runs were trained before --metric was looked at"
# lengths that differ: each run pauses after a third of its own
sweep run.name=h4 'eval.every=1 epoch' train.max_steps=null train.epochs=3,9 'train.optimizer.lr=1e-5,1e-3,1e-1' --early-stop halving --metric val.loss >"$work/table" || fail "halving of two lengths"
[ "$(grep -c "(dropped)$" "$work/table")" = 4 ] || fail "halving of two lengths: $(cat "$work/table")"
code=0
sweep run.name=h2 train.optimizer.lr=1e-3,1e-2 --early-stop halving >/dev/null || code=$?
[ $code = 2 ] && grep -q "needs --metric val.NAME" "$work/log" || fail "halving without a metric: exit $code"

# -- values that are no names, or long ones; a folder with an apostrophe; the last integers
long=$(printf 'bytes > %d and ' {1..60})
sweep run.dir="$work/it's" run.name=odd train.max_steps=1 "data.where=bytes > 1,bytes  >1,${long}bytes > 1" >"$work/table"
[ "$(grep -c '(1 of 1 runs)$' "$work/table")" = 3 ] && grep -qF "where=${long}bytes > 1 " "$work/table" || fail "odd names: $(cat "$work/table")"
names=("$work/it's/odd/where=bytes___1-"????????????)
[ ${#names[@]} = 2 ] || fail "odd names: ${names[*]}"
"$DTRAIN" eval "${names[0]}" >/dev/null 2>>"$work/log" || fail "eval of a run in a folder with an apostrophe"
for name in "$work/it's/odd/"*/; do [ "$(basename "$name" | wc -c)" -le 101 ] || fail "a long name: $name"; done
code=0
(cd "$work" && timeout 60 "$DTRAIN" sweep "$config" run.seed=9223372036854775806..9223372036854775807 --table >"$work/table" 2>"$work/out") || code=$?
[ $code = 4 ] && grep -q "2 of 2 runs have no result" "$work/out" || fail "the last integers: exit $code: $(cat "$work/out")"
for bad in run.seed=-9223372036854775808..9223372036854775807 run.seed=0..9223372036854775808 run.seed=0..10000; do
    code=0
    (cd "$work" && timeout 60 "$DTRAIN" sweep "$config" $bad >/dev/null 2>>"$work/log") || code=$?
    [ $code = 2 ] || fail "$bad: exit $code"
done

# -- two sweeps in one folder: the second does the other runs, waits for the one that is trained, and ends with 0; also
# where no sweep, but somebody else trains it
for first in sweep train; do
    words=("$config" run.dir="$work/runs" run.name=two-$first train.max_steps=4 run.seed=1..3)
    begun=("${words[@]}")
    [ $first = sweep ] || begun=("$config" run.dir="$work/runs/two-train" run.name="seed=1" train.max_steps=4 run.seed=1)
    DTRAIN_FAILPOINT=step:2:stop "$DTRAIN" $first "${begun[@]}" >"$work/first" 2>>"$work/log" &
    pid=$! job=$!
    wait_until have_stopped $([ $first = sweep ] && echo 1 || echo 0)
    "$DTRAIN" sweep "${words[@]}" >"$work/table" 2>"$work/out" &
    pid=$!
    wait_until grep -q "two-$first: waiting for 1 run that other processes train" "$work/out"
    [ -e "$work/runs/two-$first/seed=2/result.json" ] && [ -e "$work/runs/two-$first/seed=3/result.json" ] || fail "the other runs wait, too"
    kill -CONT "${stopped[0]}"
    code=0
    wait $pid || code=$?
    [ $code = 0 ] && grep -q '(3 of 3 runs)$' "$work/table" || fail "the second sweep: exit $code: $(cat "$work/out")"
    wait $job || fail "the first: exit $?"
    [ $first = train ] || cmp "$work/first" "$work/table" || fail "the tables differ"
done

# -- folds on two ranks
if have_mpi && ! sanitized; then
    sweep run.name=f train.max_steps=3 data.split.folds=3 data.split.fold=0..2 --np 2 >"$work/table"
    grep -q '(3 of 3 runs)$' "$work/table" || fail "folds on two ranks: $(cat "$work/table")"
    code=0
    mpirun -np 1 "$DTRAIN" sweep "$config" run.seed=1,2 2>"$work/out" || code=$?
    grep -q 'without mpirun' "$work/out" || fail "a sweep under mpirun: $(cat "$work/out")"
fi
echo passed
