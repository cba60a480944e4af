#!/usr/bin/env bash
# dtrain sweep: folds, seeds and settings as runs of their own; a run that fails; a stop and the same command again;
# the table against sums made here.
. "$SOURCE/tests/small_run.sh"
small_data "$work" 6 4
config=$(small_config "$work")
sweep() { (cd "$work" && "$DTRAIN" sweep "$config" "$@" 2>>"$work/log"); }

# -- mistakes are found before anything starts
for bad in "run.seed=1" "run.seed=1,,2" "train.optimizer.lr=1e-3,fast" "run.seed=4..2" "run.seed=1,1" "seed"; do
    code=0
    sweep run.name=bad train.max_steps=3 "$bad" >/dev/null || code=$?
    [ $code = 2 ] || fail "$bad: exit $code"
done
[ ! -e "$work/runs/bad" ] || fail "a sweep that cannot start made a directory"

# -- two settings, two seeds; one setting fails in the run
code=0
sweep run.name=s train.max_steps=3 run.seed=1,2 train.optimizer.lr=1e-3,1e30 >"$work/table" || code=$?
[ $code = 6 ] || fail "a failing run: exit $code, not 6"
[ "$(wc -l <"$work/runs/s/sweep.csv")" = 3 ] || fail "sweep.csv: $(cat "$work/runs/s/sweep.csv")"
[ "$(wc -l <"$work/runs/s/runs.csv")" = 5 ] || fail "runs.csv: $(cat "$work/runs/s/runs.csv")"
grep -q '^"seed=1,lr=1e-3",1,1e-3,0,test,3,' "$work/runs/s/runs.csv" || fail "no good run: $(cat "$work/runs/s/runs.csv")"
grep -q '^"seed=1,lr=1e30",1,1e30,6,,,' "$work/runs/s/runs.csv" || fail "no failed run: $(cat "$work/runs/s/runs.csv")"
head -1 "$work/table" | grep -q '^lr=1e-3 .*(2 of 2 runs)$' || fail "the better one is not first: $(cat "$work/table")"
awk -F, 'NR == FNR { if (FNR == 1) for (i = 1; i <= NF; i++) if ($i == "loss") column = i + 1
                     else; else if ($0 ~ /lr=1e-3/) { sum += $column; n++; x[n] = $column }; next }
         FNR == 1 { for (i = 1; i <= NF; i++) if ($i == "loss_mean") at = i }
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

# -- folds on two ranks
if have_mpi && ! sanitized; then
    sweep run.name=f train.max_steps=3 data.split.folds=3 data.split.fold=0..2 --np 2 >"$work/table"
    grep -q '(3 of 3 runs)$' "$work/table" || fail "folds on two ranks: $(cat "$work/table")"
    code=0
    mpirun -np 1 "$DTRAIN" sweep "$config" run.seed=1,2 2>"$work/out" || code=$?
    grep -q 'without mpirun' "$work/out" || fail "a sweep under mpirun: $(cat "$work/out")"
fi
echo passed
