#!/usr/bin/env bash
# A rank that computes slower than the others is named once, with host and phase, in the log and in the metrics.
. "${SOURCE:?}/tests/small_run.sh" || exit
need_mpi

small_data "$work"
config=$(small_config "$work")
cc -O1 -shared -fPIC -o "$work/lag.so" "$SOURCE/tests/mpi/lag.c" -ldl
cat >"$work/rank" <<SH
#!/bin/sh
[ "\$OMPI_COMM_WORLD_RANK" != 1 ] || export LD_PRELOAD=$work/lag.so
exec "\$@"
SH
chmod +x "$work/rank"
"${ranks[@]}" 3 "$work/rank" "$DTRAIN" "$config" train.global_batch=6 train.max_steps=45 >"$work/out" 2>"$work/log" ||
    fail "exit $?"
says='rank 1 on .* takes [0-9.]+ times as long as the median rank, most of it for compute'
[ "$(grep -cE "warning: $says" "$work/log")" = 1 ] || fail "rank 1 is not named once"
line=$(grep '"kind":"slow_rank".*"rank":1' "$work/runs/small/metrics.jsonl") || fail "not in the metrics"
case $line in *'"rank":1,"host":"'*'","phase":"compute","times":'*) ;; *) fail "$line" ;; esac
