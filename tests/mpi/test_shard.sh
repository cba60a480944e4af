#!/usr/bin/env bash
# train.shard: optimizer. Weights, averages, moments and results have the bits of a run that divides nothing, on the same numbers of
# ranks: in bf16 where the CPU has it, with several optimizers, on unequal hosts, across evaluations of averages, when it goes on
# with fewer ranks, begins without the key, and is killed while it saves. What it cannot do is refused.
. "${SOURCE:?}/tests/small_run.sh" || exit
need_mpi

small_data "$work"
config=$(small_config "$work")
common=(train.global_batch=16 train.max_steps=9 "eval.every=4 steps" "checkpoint.every=3 steps" "run.verify_every=3 steps" train.ema=0.9)
run() { # NP NAME WORD …
    local rc=0
    mpi "$1" ${hosts[@]+"${hosts[@]}"} "$DTRAIN" "$config" "${common[@]}" run.name="$2" "${@:3}" >"$work/out" 2>"$work/log" || rc=$?
    [ $rc = 0 ] || [ $rc = 75 ] || fail "exit $rc of $2: ${*:3}"
}
same() { # NAME NAME
    local f
    cmp "$work/runs/$1/result.json" "$work/runs/$2/result.json" || fail "$1 and $2 have other results"
    for f in model raw optimizer; do
        cmp "$work/runs/$1/checkpoints/step-00000009/$f.safetensors" "$work/runs/$2/checkpoints/step-00000009/$f.safetensors" ||
            fail "$1 and $2 differ in $f"
    done
}

shard=train.shard=optimizer
for name in whole parts; do
    words=($([ $name = whole ] || echo $shard))
    run 8 $name "${words[@]}" run.stop_at=2
    run 4 $name "${words[@]}" run.stop_at=3
    run 3 $name "${words[@]}" run.stop_at=6
    run 1 $name "${words[@]}"
done
same whole parts

if has_bf16; then # fp32 weights stay on all ranks: kernels may pack from them at their use
    for np in 2 4; do
        run $np half$np train.precision=bf16
        run $np half_parts$np train.precision=bf16 $shard
        same half$np half_parts$np
    done
fi

# other optimizers; two ranks on a host and one on another, of two replicas, gradients in bf16
fake_hosts 2
words=(train.optimizer.name=lamb device.replicas=2 device.threads=2 comm.gradient_dtype=bf16)
run 3 lamb "${words[@]}"
run 3 lamb_parts "${words[@]}" $shard
same lamb lamb_parts
hosts=()

# begun without the key; then rank 0 is killed in a save, between the first file and the manifest
run 2 calm
run 2 killed run.stop_at=3
export DTRAIN_FAILPOINT=ckpt:20:kill
! mpi 2 "$DTRAIN" "$config" "${common[@]}" run.name=killed $shard >"$work/out" 2>"$work/log" || fail "not killed"
unset DTRAIN_FAILPOINT
ls -d "$work"/runs/killed/checkpoints/.tmp-step-* >/dev/null 2>&1 || fail "not killed in a save"
run 2 killed $shard
same calm killed

# a step is dropped after a save that came after one that failed: all ranks know that there is nothing to save
DTRAIN_FAILPOINT=ckpt:12:eio,ckpt:19:eio,step:4:stop "${ranks[@]}" 2 "$DTRAIN" "$config" "${common[@]}" run.name=dropped \
    $shard run.grace=0s eval.every=0 "checkpoint.every=2 steps" comm.timeout=60 >"$work/out" 2>"$work/log" &
pid=$!
wait_until have_stopped 2
kill -TERM "${stopped[@]}"
kill -CONT "${stopped[@]}"
rc=0
wait $pid || rc=$?
[ $rc = 75 ] && grep -q 'could not be written: checkpoint of step 2' "$work/log" && grep -q 'was dropped' "$work/log" ||
    fail "exit $rc of dropped"

refused 'train.shard: optimizer is for run.reproducible' $shard run.reproducible=elastic
refused 'train.shard: optimizer cannot clip by train.clip_agc' $shard train.clip_norm=0 train.clip_agc=0.01
refused 'train.shard: optimizer has nothing to shard' $shard train.optimizer.name=adafactor
refused 'expected one of none, optimizer' train.shard=full
