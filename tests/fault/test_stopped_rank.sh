#!/usr/bin/env bash
# A rank of two that is stopped (SIGSTOP), or hangs, is found by comm.timeout in every phase: before it is in MPI, at the first
# exchange, in a step, while rank 0 saves, while it saves itself, in an evaluation, at the end. A file operation that does
# not return is named, and ends the job at run.io_timeout; a slow one is waited for, however short comm.timeout is. Calls of
# MPI and handlers of signals that never return (stuck.c) end with their process.
. "${SOURCE:?}/tests/small_run.sh" || exit
need_mpi

small_data "$work"
config=$(small_config "$work")
cat >"$work/rank" <<'SH'
#!/bin/sh
# RANK FAILPOINT COMMAND …: only rank RANK (or all) has the failpoint; "start": it stops before it is the command;
# "stuck CALL:FILE": see stuck.c
if [ "$1" = all ] || [ "$OMPI_COMM_WORLD_RANK" = "$1" ]; then
    case $2 in
    start) kill -STOP $$ ;;
    stuck*) export LD_PRELOAD=${0%/*}/stuck.so STUCK="${2#* }" ;;
    *) export DTRAIN_FAILPOINT="$2" ;;
    esac
fi
shift 2
exec "$@"
SH
chmod +x "$work/rank"
cc -O1 -shared -fPIC -o "$work/stuck.so" "$SOURCE/tests/fault/stuck.c" -ldl
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
    case $2 in step:*) says "warning: after step [0-9]+: no heartbeat from rank $1 on .* for 3 s" ;; esac
    says "error: (after step [0-9]+: |)(gradient bucket .*: |)(no heartbeat from rank $1 on |rank $1 on .* did not take part|.* has waited .* for the other ranks)"
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

# calls of MPI that never return, the beats' own too, on all ranks: nobody is left who could end the others
for call in "MPI_Testsome:$work/runs/small/metrics.jsonl" MPI_Test:/; do
    job 240 all "stuck $call" comm.timeout=4s
    says "error: (after step [0-9]+: |)a call of MPI has not returned for 4 s \(last position of this rank on .*: step [0-9]+, .*\): "
done
LD_PRELOAD=$work/stuck.so STUCK=MPI_Abort:/ job 240 1 step:2:stop comm.timeout=4s
# a handler of SIGSEGV that was there first and hangs, in a step
(export LD_PRELOAD=$work/stuck.so STUCK=handler DTRAIN_FAILPOINT=step:3:hang
 exec "$DTRAIN" "$config" "${common[@]}" run.name=crash 2>"$work/log") &
pid=$!
has_steps() { grep -qs '"kind":"step"' "$work/runs/crash/metrics.jsonl"; }
wait_until has_steps
kill -SEGV $pid
rc=0
wait $pid || rc=$?
[ $rc = 139 ] || fail "a handler that hangs: exit $rc, not 139"
says "error: after step [0-9]+: a segmentation fault"

rc=0
LD_PRELOAD=$work/stuck.so STUCK=fsync:/ "$DTRAIN" "$config" "${common[@]}" run.name=flush run.io_timeout=2s 2>"$work/log" || rc=$?
[ $rc = 5 ] || fail "a flush that hangs: exit $rc, not 5"
says "error: .*runs/.*: cannot .*: no response for 2 s"
job 5 0 ckpt:9:hang run.io_timeout=11s comm.timeout=4s
says "warning: .*runs/.*: .*: no response for 5 s"
says "warning: .*runs/.*: .*: no response for 10 s"
says "error: .*runs/.*: cannot .*: no response for 11 s.*run.io_timeout"
# alone
rc=0
DTRAIN_FAILPOINT=ckpt:9:hang "$DTRAIN" "$config" "${common[@]}" run.name=alone run.io_timeout=2s 2>"$work/log" || rc=$?
[ $rc = 5 ] || fail "a lone process whose save hangs: exit $rc, not 5"
says "error: .*runs/.*: cannot .*: no response for 2 s"

job 0 0 ckpt:9:slow comm.timeout=3s
