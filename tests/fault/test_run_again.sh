#!/usr/bin/env bash
# What the same command does the second time, what `dtrain eval` says of each checkpoint of a run, and
# what `dtrain ckpt` says of a damaged one.
. "${SOURCE:?}/tests/small_run.sh" || exit

small_data "$work"
config=$(small_config "$work")
run=$work/runs/small
job=(train.max_steps=30 eval.every="10 steps" checkpoint.every="10 steps")
train "${job[@]}"
cp "$work/out" "$work/first"

# a finished run: exit 0, says so, prints the result again and changes nothing
before=$(find "$run/checkpoints" -type f -exec sha256sum {} + | sort)
train "${job[@]}"
grep -q "is finished" "$work/log" || fail "a finished run does not say so"
cmp "$work/out" "$work/first" || fail "a finished run prints other results"
[ "$(find "$run/checkpoints" -type f -exec sha256sum {} + | sort)" = "$before" ] || fail "a finished run changed its checkpoints"

# nor does one whose results are lines, as of 0.1
cp "$run/result.json" "$work/object"
cp "$work/first" "$run/result.json"
train "${job[@]}"
grep -q "is finished" "$work/log" || fail "a run with lines of results is not finished"
cmp "$work/out" "$work/first" || fail "lines of results are printed otherwise"
cp "$work/object" "$run/result.json"

# a key that changes numbers: exit 2, the key, both values and the ways out; one that does not: fine
exits 2 '' "$DTRAIN" "$config" "${job[@]}" train.optimizer.lr=0.1
for word in train.optimizer.lr 1.0e-3 0.1 run.name= run.resume=force; do
    grep -qF -- "$word" "$work/log" || fail "no '$word' in the message for a changed learning rate"
done
train "${job[@]}" checkpoint.keep=2

# the user's own file of the name config.yaml in its run's folder is refused and stays; what dtrain wrote is not, nor what
# an earlier version wrote of a run that has begun
own=$work/runs/own
mkdir "$own"
for text in '# my notes' ''; do
    { [ -z "$text" ] || echo "$text" && sed 's/name: small,/name: own,/' "$config"; } >"$own/config.yaml"
    cp "$own/config.yaml" "$work/mine"
    for command in "$own/config.yaml" "init $own/config.yaml $own" "$own"; do
        exits 2 "$own/config.yaml was not written by dtrain" "$DTRAIN" $command
    done
    cmp "$own/config.yaml" "$work/mine" || fail "the user's file changed"
    [ "$(ls "$own")" = config.yaml ] || fail "a refused start leaves $(ls "$own")"
done
cp "$run/config.yaml" "$work/dump"
sed -i '/^  reproducible:/d' "$run/config.yaml"
sed -i 's/^device:$/&\n  hold_input: false/' "$run/config.yaml" # a key that is gone
exits 0 'is finished' "$DTRAIN" "$run/config.yaml"
cp "$work/dump" "$own/config.yaml"
exits 0 '' "$DTRAIN" init "$own/config.yaml" "$own"
{ echo '# my notes' && cat "$work/dump"; } >"$run/config.yaml"
exits 2 'was not written by dtrain' "$DTRAIN" "$run"
cp "$work/dump" "$run/config.yaml"

# the same records under another path go on, by their hashes; other records, or another weight of a set, do not
moved=("${job[@]}" run.name=moved)
exits 75 '' "$DTRAIN" "$config" "${moved[@]}" run.stop_at=10
cp -r "$work/small.lmdb" "$work/copy.lmdb"
exits 75 'data.path changed: the records are the same by their hashes' \
    "$DTRAIN" "$config" "${moved[@]}" data.path="$work/copy.lmdb" run.stop_at=20
"$DTRAIN" pack "$work/raw" "$work/less.lmdb" --where "subject != '1'" >/dev/null 2>&1 || fail "cannot pack less"
exits 2 'records, view or split changed, with data.path' \
    "$DTRAIN" "$config" "${moved[@]}" data.path="$work/less.lmdb"
exits 0 'data.path changed: the records' "$DTRAIN" "$config" "${moved[@]}"
[ "$(hash "$work/runs/moved")" = "$(hash "$run")" ] || fail "other weights under another path"
# a finished run does not answer for other data either
exits 2 'records, view or split changed, with data.path' \
    "$DTRAIN" "$config" "${moved[@]}" data.path="$work/less.lmdb"
"$DTRAIN" pack "$work/raw" "$work/there.tar" >/dev/null 2>&1 || fail "cannot pack a tar"
rm "$work/there.tar.index" # now it is another program's
exits 75 '' "$DTRAIN" "$config" "${moved[@]}" run.name=foreign data.path="$work/there.tar" run.stop_at=10
cp "$work/there.tar" "$work/here.tar"
exits 75 'warning: data.path changed, and records of this data set have no hashes' \
    "$DTRAIN" "$config" "${moved[@]}" run.name=foreign data.path="$work/here.tar" run.stop_at=20

# eval agrees with what training printed, to the last digit
for which in best latest 10 20 30; do
    for split in val test; do
        "$DTRAIN" eval "$run" --which $which --split $split >>"$work/evals" 2>"$work/log" || fail "eval $which: exit $?"
    done
done
"$DTRAIN" eval "$run" >"$work/default" 2>"$work/log" || fail "eval: exit $?"
"$DTRAIN" eval "$run" --which best | cmp "$work/default" - || fail "eval does not take the best"
train run.name=none data.split.val=0 train.max_steps=2
"$DTRAIN" eval "$work/runs/none" >"$work/default" 2>"$work/log" || fail "eval without a best: exit $?"
grep -q '"weights":"latest"' "$work/default" || fail "eval without a best: $(cat "$work/default")"
"$DTRAIN" predict "$work/runs/none" "$work/small.lmdb" >"$work/default" 2>"$work/log" || fail "predict without a best: exit $?"
py compare "$run/metrics.jsonl" "$work/evals"

# a flipped bit: verify names file and tensor; the run still loads, from the checkpoint before
"$DTRAIN" ckpt verify "$run" >/dev/null 2>"$work/log" || fail "ckpt verify: exit $? for good checkpoints"
py flip_bit "$run/checkpoints/step-00000030/model.safetensors"
exits 4 '' "$DTRAIN" ckpt verify "$run"
grep -q "step-00000030.*BAD.*model.safetensors" "$work/out" || fail "ckpt verify does not name the file"
grep -q "step-00000020.*good" "$work/out" || fail "ckpt verify rejects a good checkpoint"
echo "finished, changed, evaluated and damaged runs behave"

# 1% of a short run is not never
percent=("${job[@]}" run.name=percent eval.every=1% checkpoint.every=1%)
train "${percent[@]}"
[ "$(grep -c '"split":"val"' "$work/runs/percent/metrics.jsonl")" = 30 ] || fail "eval.every=1% of 30 steps evaluates otherwise"

# a finished run goes on when it is forced to more steps
train "${percent[@]}" train.max_steps=33 run.resume=force
grep -q '"step":33' "$work/out" || fail "a finished run that is forced on makes no steps"
echo "forced on to step 33"

# a kill behind result.json: what was measured is on disk before it
short=(train.max_steps=4 train.global_batch=8 eval.every="2 steps" checkpoint.async=false run.name=behind)
dies_at() { # whether the run makes that many calls
    rm -rf "$work/runs/behind"
    rc=0
    { DTRAIN_FAILPOINT=io:$1:kill "$DTRAIN" "$config" "${short[@]}" >/dev/null 2>"$work/log" || rc=$?; } 2>>"$work/killed" # bash says that it was
    [ $rc = 137 ]
}
low=1 high=1024 # it makes a call, and fewer than these
while [ $((high - low)) -gt 1 ]; do
    middle=$(((low + high) / 2))
    if dies_at $middle; then low=$middle; else high=$middle; fi
done
[ $high -lt 1024 ] || fail "more calls than expected"
n=0
for ((at = low + 4; at > low - 12; at--)); do # sinks write by threads of their own, so a call more or less
    dies_at $at || continue
    [ -e "$work/runs/behind/result.json" ] || continue
    n=$((n + 1))
    grep -q '"split":"test"' "$work/runs/behind/metrics.jsonl" || fail "killed at call $at: no metrics of the test split"
done
[ $n -ge 1 ] || fail "no kill behind result.json"
train "${short[@]}"
! compgen -G "$work/runs/behind/*.tmp.*" >/dev/null || fail "a temporary was left"
echo "killed behind result.json $n times: the metrics are there"

# the folder of a live run is removed and another begins there: the first ends and says why, the second is untouched
live=(train.max_steps=12 train.global_batch=8 checkpoint.every="6 steps" run.name=live)
DTRAIN_FAILPOINT=step:4:stop "$DTRAIN" "$config" "${live[@]}" >/dev/null 2>"$work/first.log" &
pid=$!
wait_until have_stopped 0
rm -r "$work/runs/live"
train "${live[@]}"
before=$(cd "$work/runs/live" && find . -type f -exec sha256sum {} + | sort)
kill -CONT $pid
rc=0
wait $pid || rc=$?
[ $rc = 5 ] || fail "exit $rc, not 5, where another run took the folder"
[ "$(grep -c 'is not the file that this run locked' "$work/first.log")" = 1 ] || fail "not one line about the folder"
[ "$(cd "$work/runs/live" && find . -type f -exec sha256sum {} + | sort)" = "$before" ] || fail "the second run was changed"
echo "a run whose folder is another's ends"
