#!/usr/bin/env bash
# The best checkpoint is one that is on disk and intact: one that is damaged between two starts is said to be, and the
# one before it is the best. What failed saves come to is looked at in tests/sim.
. "${SOURCE:?}/tests/small_run.sh" || exit

small_data "$work"
config=$(small_config "$work")
job=(train.max_steps=12 train.global_batch=8 eval.every="3 steps" eval.best=loss checkpoint.every="100 steps")
job+=(train.optimizer.lr=3.0e-3 run.seed=6) # the loss falls at first, then rises
run() { # name, words …
    rc=0
    "$DTRAIN" "$config" "${job[@]}" run.name="$1" "${@:2}" >"$work/out" 2>"$work/log" || rc=$?
}
is_honest() { # name: the best has an evaluation, is intact, is what the results say, and no better one was saved
    [ $rc = 0 ] || fail "$1: exit $rc"
    "$DTRAIN" eval "$work/runs/$1" --which best --split test >"$work/evaluated" 2>"$work/log" || fail "$1: eval: exit $?"
    py check_best "$work/runs/$1" "$work/evaluated" || fail "$1: the best is not what is on disk"
}
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
if have_mpi; then # the next evaluation is worse than the one that is gone: it is the best on all ranks, which save together
    for words in train.shard=optimizer run.verify_every="100 steps"; do
        rm -rf "$work/runs/two"
        cp -r "$work/runs/whole" "$work/runs/two"
        for step in "$work"/runs/two/checkpoints/step-*; do
            case $step in *10) ;; *) rm -r "$step" ;; esac
        done
        rc=0
        "${ranks[@]}" 2 "$DTRAIN" "$config" "${job[@]}" run.name=two train.max_steps=14 train.optimizer.lr=0.3 run.resume=force comm.timeout=20 "$words" >"$work/out" 2>"$work/log" || rc=$?
        cp "$work/log" "$work/damaged.log"
        is_honest two
        grep -q 'is not on disk: the next evaluation is the best' "$work/damaged.log" || fail "$words: not said of the best checkpoint"
    done
fi
echo "a best checkpoint that is damaged is said to be, and another is the best"
