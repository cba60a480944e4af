#!/usr/bin/env bash
# Evaluation sees every sample of a split exactly once: also the training split, which training draws from by
# data.balance, and with the same bits whatever the replicas and ranks are. Another batch may get another kernel, which
# rounds otherwise: then counts are the same, and the rest but for rounding.
. "${SOURCE:?}/tests/small_run.sh" || exit

small_data "$work"
config=$(small_config "$work")
metrics='eval.metrics=[accuracy, loss, macro_f1, recall, confusion, eer, pair_auc]'
job=(train.max_steps=4 data.balance=finger "$metrics")

# the end of a run prints its results without matrices, which are in result.json, also when it is asked again
printed() { # [whole]
    py check_printed "$work/out" "$work/runs/small/result.json" $* || fail "the end of a run printed $(cat "$work/out")"
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
    py nearly "$work/once" "$work/other"
}
for split in train val test; do
    eval_run $split once
    py check_samples "$work/once" "$("$DTRAIN" check "$config" 2>/dev/null | grep -o "$split [0-9]*" | cut -d' ' -f2)" ||
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
