#!/usr/bin/env bash
# Resident memory stays flat: from step 200 to step 700 it changes by less than 2 %, with evaluations and
# checkpoints on the way. Loader threads are fixed: a thread that the tuner adds on a busy machine takes memory once.
. "${SOURCE:?}/tests/small_run.sh" || exit
sanitized && { echo "skipped: a sanitizer keeps what is freed"; exit 77; }

small_data "$work"
config=$(small_config "$work" 6 large)
train train.global_batch=4 train.epochs=1000 train.max_steps=700 metrics.every="1 steps" \
    eval.every="20 steps" checkpoint.every="20 steps" run.name=flat data.workers=2 data.readers=0 data.prefetch=8

py check_flat "$work/runs/flat/metrics.jsonl"
