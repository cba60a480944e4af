#!/usr/bin/env bash
# A rank of two that is stopped (SIGSTOP), or hangs, is found by comm.timeout in every phase: before it is in MPI, at the first
# exchange, in a step, while rank 0 saves, while it saves itself, in an evaluation, at the end. A file operation that does
# not return is named, and ends the job at run.io_timeout; a slow one is waited for, however short comm.timeout is.
. "${SOURCE:?}/tests/small_run.sh" || exit
need_mpi

small_data "$work"
config=$(small_config "$work")
cat >"$work/rank" <<'SH'
#!/bin/sh
# RANK FAILPOINT COMMAND …: only rank RANK has the failpoint; "start": it stops before it is the command
if [ "$OMPI_COMM_WORLD_RANK" = "$1" ]; then
    if [ "$2" = start ]; then kill -STOP $$; else export DTRAIN_FAILPOINT="$2"; fi
fi
shift 2
exec "$@"
SH
chmod +x "$work/rank"
common=(train.global_batch=8 train.max_steps=12 "eval.every=4 steps" "checkpoint.every=3 steps")

job() { # exit code, rank, failpoint, key=value …: in $work/log what the ranks say
    local want=$1 rank=$2 point=$3 rc=0
    shift 3
    rm -rf "$work/runs"
    timeout -s KILL 300 "${ranks[@]}" 2 "$work/rank" "$rank" "$point" "$DTRAIN" "$config" "${common[@]}" "$@" \
        >"$work/out" 2>"$work/log" || rc=$?
    [ $rc = "$want" ] || fail "rank $rank at $point: exit $rc, not $want"
}
says() { # pattern
    grep -E -m1 -- "$1" "$work/log" || fail "no line like: $1"
}
stopped() { # rank, failpoint
    job 240 "$1" "$2" comm.timeout=4s
    case $2 in step:*) says "warning: after step [0-9]+: rank $1 on .* has given no sign of life for 3 s" ;; esac
    says "error: (after step [0-9]+: |)(gradient bucket .*: |)(rank $1 on .* (no sign of life|did not take part)|.* has waited .* for the other ranks)"
}

stopped 1 start
says "is stopped or lost \(here: process [0-9]+\)"
stopped 0 start
stopped 1 choices:1:stop
stopped 0 choices:1:stop
stopped 1 step:2:stop
stopped 1 step:3:stop  # rank 0 saves
stopped 0 ckpt:9:stop  # rank 0 too, in the midst of its save
stopped 1 evaluate:1:stop
stopped 0 evaluate:3:stop # behind the last step
stopped 1 finalize:1:stop

# alive, but doing nothing
hangs() { # rank, failpoint
    job 240 "$1" "$2" comm.timeout=4s
    says "error: .*rank $1 on .* did not take part"
}
hangs 1 step:3:hang
hangs 0 evaluate:1:hang

job 5 0 ckpt:9:hang run.io_timeout=11s comm.timeout=4s
says "warning: .*runs/.*: .*: no answer for 5 s"
says "warning: .*runs/.*: .*: no answer for 10 s"
says "error: .*runs/.*: cannot .*: no answer for 11 s.*run.io_timeout"
# alone
rc=0
DTRAIN_FAILPOINT=ckpt:9:hang "$DTRAIN" "$config" "${common[@]}" run.name=alone run.io_timeout=2s 2>"$work/log" || rc=$?
[ $rc = 5 ] || fail "a lone process whose save hangs: exit $rc, not 5"
says "error: .*runs/.*: cannot .*: no answer for 2 s"

job 0 0 ckpt:9:slow comm.timeout=3s
