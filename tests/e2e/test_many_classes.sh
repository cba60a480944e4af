#!/usr/bin/env bash
# 1,000 samples of 20,000 classes, 76 MiB of logits: what evaluation keeps of them.
. "${SOURCE:?}/tests/small_run.sh" || exit
py make_table "$work/table.csv"
exits 0 '' "$DTRAIN" pack "$work/table.csv" "$work/set.tar" --rows label
new_config many <<YAML
    x: {kind: vector, source: npy, size: 2}
    class: {kind: class, source: label, classes: 20000}
  split: {val: 0.5}
model: {name: layers, layers: [relu]}
train: {max_steps: 1, global_batch: 20, micro_batch: 20, precision: fp32, optimizer: {name: sgd, lr: 0.1}}
YAML
for seed in 1 2; do exits 0 '' "$DTRAIN" init "$config" "$work/runs/$seed" run.seed=$seed; done
many="$work/runs/1"
peak_below() { sanitized || py peak_below "$@" >"$work/out" 2>"$work/log" || fail "memory: $*"; }

# one copy of the logits
peak_below 140 "$DTRAIN" eval "$many" --calibrate
# the table is counted before it is made (the address space of a sanitizer has no limit)
exits 0 '' "$DTRAIN" init "$config" "$work/runs/more" data.fields.class.classes=2000000
sanitized || (
    ulimit -v 6000000
    exits 70 'keeps the outputs of the validation split, .* samples x 2000000: .* MiB: out of memory' \
        "$DTRAIN" eval "$work/runs/more" --calibrate
)

# two runs: the sums of all samples would be 305 MiB; the rows do not depend on how many are in memory
both="$many $work/runs/2"
peak_below 220 "$DTRAIN" eval $both --split val
peak_below 220 "$DTRAIN" predict $both "$work/set.tar" -o "$work/all.csv"
exits 0 '' "$DTRAIN" predict $both "$work/set.tar" -o "$work/some.csv" data.where='label = 2'
py has_rows "$work/all.csv" "$work/some.csv"
echo passed
