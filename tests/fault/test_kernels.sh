#!/usr/bin/env bash
# Kernels that are chosen by timing, as a user meets them: timed once a machine and kept in a file, which may be torn;
# stored in the checkpoint and obeyed on resume, also where the file is gone; rank 0's on all ranks; train.precision: auto
# says what it chose; dtrain check --kernels prints it all. Other tests compare bits with all of that on.
. "${SOURCE:?}/tests/small_run.sh" || exit
small_data "$work"
config=$(small_config "$work" 6 large)
file() { find "$work/cache" -name 'kernels-*.txt' 2>/dev/null; }
engines() { # RUN: what its newest checkpoint has
    py value "$(ls -d "$work/runs/$1"/checkpoints/step-* | tail -1)/state.json" 'r["engines"]'
}
timed() { grep -q "cpu: .* timed in" "$work/log"; }

# every kernel and what it makes of the machine
train run.name=calm train.max_steps=6
"$DTRAIN" check "$config" --kernels >"$work/out" 2>"$work/log" || fail "check --kernels"
grep -q '^ .*[0-9] % .* 1  conv2d gradients (2,32,12,16) x (64,32,3,3) to (2,64,12,16), stride 1 pad 1,1$' "$work/out" ||
    fail "no convolution in check --kernels: $(cat "$work/out")"
grep -q '^ .*% .*  linear forward ' "$work/out" || fail "no linear layer in check --kernels"
n_kernels=$(sed -n 's/^plan: \([0-9]*\) kernels.*/\1/p' "$work/out")
awk -v n="$n_kernels" '$3 != "%" { next } $NF == "all" { good = $4 > 0 && $7 == n && sum == n } { sum += $7 } END { exit !good }' "$work/out" ||
    fail "not all kernels in check --kernels: $(cat "$work/out")"

"$DTRAIN" check "$config" --kernels 'model.encoders.iris={name: vit, patch: 8, dim: 32, heads: 2, blocks: 1}' >"$work/out" 2>"$work/log" ||
    fail "check --kernels of a network with a table of positions"

if [ -z "$(file)" ]; then
    echo "this CPU has nothing to choose from in fp32"
    [ -z "$(engines calm)" ] || fail "choices without candidates"
    exit 0
fi
grep -q '^conv2d .*: direct [0-9]*, winograd [0-9]*, GFLOP/s: [dw]' "$work/out" || fail "no choices in check --kernels"

# the next start finds what was timed; a torn file is one warning, and timed anew
train run.name=again train.max_steps=6
! timed || fail "timed again, with a file"
[ "$(engines calm)" = "$(engines again)" ] && [ "$(hash "$work/runs/calm")" = "$(hash "$work/runs/again")" ] || fail "the file is not obeyed"
truncate -s -3 "$(file)"
train run.name=torn train.max_steps=2
[ "$(grep -c 'warning: .*kernels are chosen anew' "$work/log")" = 1 ] && timed || fail "a torn file"

# a resumed run does as its checkpoint says: it times nothing
rm "$(file)"
exits 75 "cpu: .* timed in" "$DTRAIN" "$config" run.name=stopped train.max_steps=6 run.stop_at=3
before=$(engines stopped)
rm "$(file)"
train run.name=stopped train.max_steps=6
! timed && [ -z "$(file)" ] || fail "a resumed run times kernels"
[ "$(engines stopped)" = "$before" ] || fail "a resumed run chooses other kernels"

# without Winograd nothing is chosen, and a run does not change sides
train run.name=off train.max_steps=2 device.winograd=off
[ -z "$(engines off)" ] || fail "device.winograd=off"
train run.name=off train.max_steps=4 # auto: as the run began
[ -z "$(engines off)" ] || fail "a resumed run turns Winograd on"
exits 2 'error: .*device.winograd' "$DTRAIN" "$config" run.name=again train.max_steps=8 device.winograd=off

# the faster precision, with its reason, kept for the next start and by the checkpoint
if has_bf16; then
    for name in first second; do
        train run.name=$name train.max_steps=2 train.precision=auto
        grep -qE 'train.precision: auto: (fp32|bf16), [0-9.]+ times as fast as (bf16|fp32)' "$work/log" || fail "no reason for the precision"
    done
    ! timed || fail "the precision is timed again"
    engines second | grep '^[01].precision of fusion ' >/dev/null || fail "no precision in the checkpoint"
fi

# rank 0 chooses for all
if have_mpi; then
    rm -f "$(file)"
    train_on 2 run.name=two train.max_steps=2
    [ "$(grep -c 'cpu: .* timed in' "$work/log")" = 1 ] || fail "not one rank times"
fi
