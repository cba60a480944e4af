#!/usr/bin/env bash
# train.micro_batch: auto: the largest divisor of train.global_batch whose plan fits train.memory, found without a trial;
# the checkpoint keeps it, also where a resumed run has other memory; the bits are those of that number.
. "${SOURCE:?}/tests/small_run.sh" || exit
small_data "$work" 6 4
config=$(small_config "$work" 6 large)
# what timing chooses has weights packed in other sizes
sed -i 's/^device: .*/device: {kind: cpu, threads: 2, replicas: 2, time_engines: false}/' "$config"
takes() { # MICRO KEY …: MiB of the plan, which images that are decoded are no part of
    "$DTRAIN" check "$config" "${@:2}" train.micro_batch="$1" 2>"$work/log" | awk '/ MiB$/ && !/ decoding/ { n += $(NF - 1) } END { print n }'
}
chosen() { sed -n 's/^.*train.micro_batch: auto: \([0-9]*\) fits.*/\1/p' "$work/log"; }
between=$(awk "BEGIN { print int(($(takes 2) + $(takes 4)) / 2) }")

train run.name=auto train.max_steps=4 train.micro_batch=auto train.memory="${between}MiB"
[ "$(chosen)" = 2 ] || fail "chose $(chosen) for $between MiB, where 2 takes $(takes 2) and 4 takes $(takes 4)"
train run.name=two train.max_steps=4 train.micro_batch=2
[ "$(hash "$work/runs/auto")" = "$(hash "$work/runs/two")" ] || fail "not the run with train.micro_batch=2"
train run.name=all train.max_steps=2 train.micro_batch=auto train.memory=100GiB
[ "$(chosen)" = 8 ] || fail "chose $(chosen) where everything fits"

# -- a lone micro-batch, whose weights are packed at use, may take less than a smaller one
most=$(takes 16 device.replicas=1) less=$(takes 8 device.replicas=1)
awk "BEGIN { exit !($most < $less) }" || fail "16 take $most MiB, 8 $less: this test shows nothing"
train run.name=lone train.max_steps=1 device.replicas=1 train.micro_batch=auto train.memory="$(awk "BEGIN { print int($most + 1) }")MiB"
[ "$(chosen)" = 16 ] || fail "chose $(chosen) where a lone one of 16 fits"

# -- stopped; what is free later makes no difference
exits 75 '' "$DTRAIN" "$config" run.name=stopped train.max_steps=4 train.micro_batch=auto train.memory="${between}MiB" run.stop_at=2
train run.name=stopped train.max_steps=4 train.micro_batch=auto train.memory=100GiB
[ "$(hash "$work/runs/auto")" = "$(hash "$work/runs/stopped")" ] || fail "a resumed run chose again"
"$DTRAIN" eval "$work/runs/auto" >"$work/a" 2>"$work/log" || fail "eval"
"$DTRAIN" eval "$work/runs/two" >"$work/b" 2>"$work/log" || fail "eval"
cmp "$work/a" "$work/b" || fail "other figures"

# -- each of two ranks has work
if have_mpi; then
    train_on 2 run.name=ranks train.max_steps=2 train.micro_batch=auto train.memory=100GiB
    [ "$(chosen)" = 4 ] || fail "chose $(chosen) for two ranks"
fi

refused 'not even the smallest fits' train.micro_batch=auto train.memory=1MiB
refused 'elastic promises bits' train.micro_batch=auto run.reproducible=elastic
echo passed
