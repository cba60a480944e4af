#!/usr/bin/env bash
# run.reproducible=elastic: 15 steps (STEPS; 200 where FULL=1) give the same model.safetensors on 1, 2, 3, 4 and 8 ranks, and
# when a run is stopped and resumed at other world sizes; in fp32, and in bf16 where the CPU has it. Samples
# are mixed, so that batches and soft labels are part of it. The metrics at the end are the same, too.
# Without elastic, a resume on another number of ranks is a warning.
. "${SOURCE:?}/tests/small_run.sh" || exit
need_mpi

small_data "$work"
config=$(small_config "$work")

check() { # precision label run: its hash must equal the reference
    local got
    got="$(hash "$work/runs/$3"), metrics $(md5sum <"$work/runs/$3/result.json")"
    echo "$1 $2: $got"
    [ -n "${reference:-}" ] || reference=$got
    [ "$got" = "$reference" ] || fail "$1 $2 differs from $reference"
}

precisions=(fp32)
has_bf16 && precisions+=(bf16)
for precision in "${precisions[@]}"; do
    reference=
    steps=${STEPS:-${FULL:+200}}
    steps=${steps:-15}
    common=(run.reproducible=elastic train.global_batch=16 train.max_steps=$steps train.precision=$precision
            data.mix.mixup=0.4 data.mix.cutmix=1.0
            checkpoint.every="100000 steps" eval.metrics="[loss, recall, macro_f1, eer]")
    for np in 1 2 3 4 8; do
        mpi $np "$DTRAIN" "$config" "${common[@]}" run.name=$precision-np$np \
            >/dev/null 2>"$work/log" || fail "exit $?"
        check $precision "np=$np" $precision-np$np
    done
    # stop twice on the way, go on with another number of ranks
    name=$precision-changing
    for stop in 3:$((steps / 3)) 1:$((2 * steps / 3)) 4:$steps; do
        rc=0
        mpi ${stop%:*} "$DTRAIN" "$config" "${common[@]}" run.name=$name run.stop_at=${stop#*:} \
            >/dev/null 2>"$work/log" || rc=$?
        [ $rc = 0 ] || [ $rc = 75 ] || fail "exit $rc"
        [ -d "$work/runs/$name/checkpoints/step-$(printf '%08d' ${stop#*:})" ] || fail "no checkpoint of step ${stop#*:}"
    done
    check $precision "np=3, 1, 4 in turn" $name
done

# an optimizer with norms of each tensor; on two hosts; with two replicas
reference=
fake_hosts 2
for np in 1 2 3 4; do
    words=(train.optimizer.name=lamb train.global_batch=16 train.max_steps=$steps)
    [ $np != 2 ] || words+=(device.replicas=2 device.threads=2)
    mpi $np ${hosts[@]+"${hosts[@]}"} "$DTRAIN" "$config" run.reproducible=elastic "${words[@]}" run.name=lamb-np$np \
        >/dev/null 2>"$work/log" || fail "exit $?"
    check lamb "np=$np" lamb-np$np
done

# ranks whose bits would differ: told apart before the first step
cat >"$work/apart" <<'END'
#!/bin/sh
[ "$OMPI_COMM_WORLD_RANK" != 1 ] || export ONEDNN_MAX_CPU_ISA=SSE41
exec "$@"
END
chmod +x "$work/apart"
differ="rank 0 on .* computes with 'cpu .*', but rank 1 on .* with 'cpu generic.*'"
rc=0
mpi 3 "$work/apart" "$DTRAIN" "$config" run.reproducible=elastic run.name=apart >/dev/null 2>"$work/log" || rc=$?
[ $rc = 2 ] && [ "$(grep -c "error: $differ.*elastic" "$work/log")" = 1 ] || fail "ranks of two kinds: exit $rc"
mpi 3 "$work/apart" "$DTRAIN" "$config" train.max_steps=2 run.name=apart >/dev/null 2>"$work/log" || fail "exit $?"
[ "$(grep -c "warning: $differ" "$work/log")" = 1 ] || fail "ranks of two kinds: no warning, or several"

# without elastic bits: another number of ranks is a warning
n=0
for np in 2 1; do
    rc=0
    mpi $np "$DTRAIN" "$config" train.max_steps=4 run.name=resume run.stop_at=$((++n * 2)) >/dev/null 2>"$work/log" || rc=$?
    [ $rc = 0 ] || [ $rc = 75 ] || fail "exit $rc on $np ranks"
done
grep -qF 'this run had 2 ranks and continues with 1: bits will differ' "$work/log" || fail "other ranks: no warning"
