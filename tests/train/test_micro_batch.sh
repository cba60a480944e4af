#!/usr/bin/env bash
# train.micro_batch: auto: the largest divisor of train.global_batch whose plan fits train.memory, found without a trial;
# the checkpoint keeps it, also where a resumed run has other memory; the bits are those of that number.
. "${SOURCE:?}/tests/small_run.sh" || exit
small_data "$work" 6 4
config=$(small_config "$work")
takes() { # MICRO: MiB of the plan
    "$DTRAIN" check "$config" train.micro_batch="$1" 2>"$work/log" | awk '/ MiB$/ { n += $(NF - 1) } END { print n }'
}
chosen() { sed -n 's/^.*train.micro_batch: \([0-9]*\) fits.*/\1/p' "$work/log"; }
between=$(awk "BEGIN { print int(($(takes 4) + $(takes 8)) / 2) }")

train run.name=auto train.max_steps=4 train.micro_batch=auto train.memory="${between}MiB"
[ "$(chosen)" = 4 ] || fail "chose $(chosen) for $between MiB, where 4 takes $(takes 4) and 8 takes $(takes 8)"
train run.name=four train.max_steps=4 train.micro_batch=4
[ "$(hash "$work/runs/auto")" = "$(hash "$work/runs/four")" ] || fail "not the run with train.micro_batch=4"
train run.name=all train.max_steps=2 train.micro_batch=auto train.memory=100GiB
[ "$(chosen)" = 16 ] || fail "chose $(chosen) where everything fits"

# -- stopped; what is free later makes no difference
exits 75 '' "$DTRAIN" "$config" run.name=stopped train.max_steps=4 train.micro_batch=auto train.memory="${between}MiB" run.stop_at=2
train run.name=stopped train.max_steps=4 train.micro_batch=auto train.memory=100GiB
[ "$(hash "$work/runs/auto")" = "$(hash "$work/runs/stopped")" ] || fail "a resumed run chose again"
"$DTRAIN" eval "$work/runs/auto" >"$work/a" 2>"$work/log" || fail "eval"
"$DTRAIN" eval "$work/runs/four" >"$work/b" 2>"$work/log" || fail "eval"
cmp "$work/a" "$work/b" || fail "other figures"

# -- each of two ranks has work
if have_mpi; then
    train_on 2 run.name=two train.max_steps=2 train.micro_batch=auto train.memory=100GiB
    [ "$(chosen)" = 8 ] || fail "chose $(chosen) for two ranks"
fi

refused 'not even the smallest fits' train.micro_batch=auto train.memory=1MiB
refused 'elastic promises bits' train.micro_batch=auto run.reproducible=elastic
echo passed
