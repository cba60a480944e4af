#!/usr/bin/env bash
# comm.gradient_dtype=bf16 between CPUs: other weights than with fp32, the same on all ranks, and again when repeated.
. "${SOURCE:?}/tests/small_run.sh" || exit
need_mpi

small_data "$work"
config=$(small_config "$work")
job() { # run, dtype
    "${ranks[@]}" 3 "$DTRAIN" "$config" train.global_batch=6 train.max_steps=6 "run.verify_every=3 steps" \
        run.name="$1" comm.gradient_dtype="$2" >"$work/out" 2>"$work/log" || fail "$*: exit $?"
}
job fp32 fp32
job bf16 bf16
job again bf16
[ "$(hash "$work/runs/bf16")" = "$(hash "$work/runs/again")" ] || fail "bf16: other weights when repeated"
[ "$(hash "$work/runs/bf16")" != "$(hash "$work/runs/fp32")" ] || fail "bf16: the weights of fp32"
