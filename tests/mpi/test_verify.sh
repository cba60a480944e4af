#!/usr/bin/env bash
# run.verify_every: a bit that flips in one rank's weights ends the run with exit 70; the message names step, rank, host
# and tensor; what was saved before stays, is not joined by anything, and the same command resumes from it.
. "${SOURCE:?}/tests/small_run.sh" || exit
need_mpi

small_data "$work"
config=$(small_config "$work")
cat >"$work/rank" <<'SH'
#!/bin/sh
[ "$OMPI_COMM_WORLD_RANK" != "$FLIPS" ] || export DTRAIN_FAILPOINT=$POINT
exec "$@"
SH
chmod +x "$work/rank"
ends() { # exit code, np, rank, failpoint, key=value …
    local want=$1 np=$2 rc=0
    export FLIPS=$3 POINT=$4
    shift 4
    "${ranks[@]}" "$np" "$work/rank" "$DTRAIN" "$config" train.global_batch=6 train.max_steps=12 \
        "checkpoint.every=5 steps" "$@" >"$work/out" 2>"$work/log" || rc=$?
    [ $rc = "$want" ] || fail "$*: exit $rc, not $want"
}
saved() { ls "$work/runs/$1/checkpoints" | grep -c '^step-' || true; }

ends 0 3 none "" run.name=calm
# it looks after steps 3, 5 (in front of the save) and 6: the third time
ends 70 3 2 flip:3:eio run.name=flip "run.verify_every=3 steps"
grep -Eq "error: after step 6: run.verify_every: rank 2 on .* holds other values in '[^']+' than most others \(0 of 2" \
    "$work/log" || fail "not named"
[ "$(saved flip)" = 1 ] || fail "not one checkpoint"
ends 0 3 none "" run.name=flip "run.verify_every=3 steps"
[ "$(hash "$work/runs/flip")" = "$(hash "$work/runs/calm")" ] || fail "other weights"
# in front of a save, of two ranks
ends 70 2 0 flip:1:eio run.name=save "run.verify_every=1000 steps"
grep -q 'error: after step 5: run.verify_every: rank 1 on .* than rank 0' "$work/log" || fail "not named"
[ "$(saved save)" = 0 ] || fail "it was saved"
# nobody asked: nobody looks
ends 0 3 2 flip:1:eio run.name=blind
