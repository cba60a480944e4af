#!/usr/bin/env bash
# Mixup and CutMix in training: batches differ from plain ones, two replicas see the same as one, the network
# learns. In bf16, where the processor has it, losses are those of fp32 but for rounding.
. "${SOURCE:?}/tests/small_run.sh" || exit

small_data "$work" 6 6
config=$(small_config "$work")
mixed=("data.mix={mixup: 0.4, cutmix: 1.0}" metrics.every="1 steps" model.dropout=0 train.max_steps=60)
precisions=(fp32)
has_bf16 && precisions+=(bf16)

some() { # the first five steps
    exits 75 '' "$DTRAIN" "$config" "$@" run.stop_at=5
}

for p in "${precisions[@]}"; do
    train "${mixed[@]}" run.name="$p" train.precision="$p"
    some "${mixed[@]}" run.name="$p-replicas" train.precision="$p" device.threads=2 device.replicas=2
    some train.max_steps=60 metrics.every="1 steps" model.dropout=0 run.name="$p-plain" train.precision="$p"
done

py check "$work/runs" "${precisions[@]}"
