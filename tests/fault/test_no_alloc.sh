#!/usr/bin/env bash
# dtrain's own code allocates nothing in a step: a run of 60 steps makes exactly as many allocations of
# its own as a run of 12 (same epoch, no save or evaluation between). What libraries allocate is printed.
. "${SOURCE:?}/tests/small_run.sh" || exit
sanitized && { echo "skipped: a sanitizer has its own malloc"; exit 77; }

cc -O1 -shared -fPIC -o "$work/counter.so" "$SOURCE/tests/fault/malloc_counter.c" -ldl
small_data "$work"
config=$(small_config "$work")
train run.name=first train.max_steps=1 # chooses kernels, for the others too
for steps in 12 60; do
    MALLOC_COUNTER_OUT=$work/count.$steps LD_PRELOAD=$work/counter.so \
        "$DTRAIN" "$config" run.name=steps$steps train.max_steps=$steps data.workers=1 data.readers=0 data.prefetch=8 >/dev/null 2>"$work/log.$steps" ||
        { cat "$work/log.$steps"; exit 1; }
done
read -r _ own12 _ library12 <"$work/count.12"
read -r _ own60 _ library60 <"$work/count.60"
echo "allocations by dtrain: $own12 in 12 steps, $own60 in 60; by libraries: $(((library60 - library12) / 48)) a step"
[ "$own12" = "$own60" ] || { echo "FAILED: $(((own60 - own12))) allocations by dtrain's code in 48 steps"; exit 1; }
