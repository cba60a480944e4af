#!/usr/bin/env bash
# SIGTERM, SIGINT, SIGUSR1 and SIGHUP to a process, SIGUSR1 to mpirun, SIGUSR1 to one rank of two: the step is
# finished, the state saved, exit 75; the same command again ends with the undisturbed run's weights.
. "${SOURCE:?}/tests/small_run.sh" || exit

small_data "$work"
config=$(small_config "$work")
common=(train.global_batch=8 train.max_steps="${STEPS:-120}" checkpoint.every="100000 steps")

calm() { # run, launcher …
    local run=$1
    shift
    "$@" "$DTRAIN" "$config" "${common[@]}" run.name="$run" >/dev/null 2>"$work/log" || fail "exit $? of $run"
    hash "$work/runs/$run"
}
stop_and_resume() { # run, signal, whom (launcher or rank), weights that must come out, launcher …
    local run=$1 signal=$2 whom=$3 want=$4 pid rc=0 target
    shift 4
    "$@" "$DTRAIN" "$config" "${common[@]}" run.name="$run" >/dev/null 2>"$work/log" &
    pid=$!
    wait_for_step "$run"
    target=$pid
    # the ranks of a launcher are its children
    [ "$whom" = launcher ] || target=$(cut -d' ' -f1 "/proc/$pid/task/$pid/children")
    kill "-$signal" "$target"
    wait $pid || rc=$?
    [ $rc = 75 ] || fail "SIG$signal to $whom of $run gave exit $rc, not 75"
    grep -q 'stopped after step' "$work/runs/$run/log" || fail "$run: its log does not say that it was stopped"
    [ "$(calm "$run" "$@")" = "$want" ] || fail "$run: other weights after resuming"
    echo "SIG$signal to $run: exit 75, resumed to the same weights"
}

want=$(calm calm env)
for signal in TERM INT USR1; do
    stop_and_resume "process-$signal" $signal launcher "$want" env
done

# no thread that computes may take one: generated matrix products use the stack pointer as a register, and a
# handler's frame would be written into the heap
takers() { # PID: names of its threads that do not block SIGTERM (15)
    local t mask
    for t in "/proc/$1/task/"*; do
        mask=$(sed -n 's/^SigBlk:\t*/0x/p' "$t/status" 2>/dev/null)
        [ -n "$mask" ] || continue # it has just ended
        (( mask >> 14 & 1 )) || cat "$t/comm"
    done
}
"$DTRAIN" "$config" "${common[@]}" run.name=masks >/dev/null 2>"$work/log" &
pid=$!
wait_for_step masks
got=$(takers $pid)
[ "$got" = signals ] || fail "SIGTERM can come to these threads: ${got//$'\n'/, }"
kill -HUP $pid
rc=0
wait $pid || rc=$?
[ $rc = 75 ] || fail "SIGHUP to masks gave exit $rc, not 75"
echo "one thread of its own takes signals; SIGHUP: exit 75"

# SIGHUP that is ignored stays so; SIGINT twice at once is what timeout(1) makes of one; a second one later ends
# the process, here in a step of many seconds
begin() { # run, override …
    (trap '' HUP; exec "$DTRAIN" "$config" "${common[@]}" run.name="$@" >/dev/null 2>"$work/log") &
    pid=$!
    until grep -qs signals "/proc/$pid/task/"*/comm; do sleep 0.02; done
    kill -HUP $pid
}
end() { # exit code, what was sent
    local rc=0
    wait $pid || rc=$?
    [ $rc = "$1" ] || fail "$2: exit $rc, not $1"
}
begin twice
kill -INT $pid
kill -INT $pid 2>/dev/null || true
end 75 "SIGINT in a row"
grep -q 'by SIGINT' "$work/log" || fail "SIGHUP was ignored, and is said to have stopped it"
begin later train.global_batch=52 train.micro_batch=52 data.fields.iris.size='[224,224]'
kill -INT $pid
sleep 0.4
kill -INT $pid
end 130 "a second SIGINT after 0.4 s"
echo "a second SIGINT ends at once, unless it comes with the first"

if command -v mpirun >/dev/null && [ -e "$BUILD/dtrain_mpi.so" ]; then
    launcher=("${ranks[@]}" 2)
    want=$(calm calm-np2 "${launcher[@]}")
    stop_and_resume mpirun USR1 launcher "$want" "${launcher[@]}"
    stop_and_resume rank TERM rank "$want" "${launcher[@]}"

    # before step 0, while the ranks still find each other: kept, and answered after the first step
    "${launcher[@]}" "$DTRAIN" "$config" "${common[@]}" run.name=early >/dev/null 2>"$work/log" &
    pid=$!
    both_ranks_know_mpi() {
        local list pids p
        list=$(children $pid) || fail "the job ended before its ranks found each other"
        read -ra pids <<<"$list"
        [ ${#pids[@]} = 2 ] || return 1
        for p in "${pids[@]}"; do grep -qs dtrain_mpi "/proc/$p/maps" || return 1; done
    }
    until both_ranks_know_mpi; do sleep 0.01; done
    kill -USR1 $pid
    rc=0
    wait $pid || rc=$?
    [ $rc = 75 ] || fail "SIGUSR1 before step 0 gave exit $rc, not 75"
    [ "$(calm early "${launcher[@]}")" = "$want" ] || fail "early: other weights after resuming"
    echo "SIGUSR1 before step 0: exit 75, resumed to the same weights"

    # the keyboard's SIGINT goes to all processes of the foreground: to this script, which passes it on as SIGUSR1, and
    # not to mpirun
    session() { cut -d' ' -f6 "/proc/$1/stat"; }
    theirs=$(mpi 1 sh -c 'cut -d" " -f6 "/proc/$PPID/stat"')
    [ "$theirs" != "$(session $$)" ] || fail "mpirun gets what the keyboard sends to the script"
    # and a script that is killed takes its ranks with it, which save
    bash -c '. "$0/launch/mpi_env.sh"; mpi 2 "$@"' "$SOURCE" "$DTRAIN" "$config" "${common[@]}" run.name=orphan \
        >/dev/null 2>"$work/log" &
    pid=$!
    wait_for_step orphan
    kill -KILL $pid
    wait $pid 2>/dev/null || true
    for i in {1..200}; do grep -q 'by SIGUSR1; saved' "$work/log" && break; sleep 0.05; done
    grep -q 'by SIGUSR1; saved' "$work/log" || fail "ranks went on without the script that started them"

    # what all ranks know is said once, and said before the launcher ends the job
    rc=0
    "${ranks[@]}" 5 "$DTRAIN" "$config" "${common[@]}" run.name=many >/dev/null 2>"$work/log" || rc=$?
    [ $rc = 2 ] || fail "five ranks for four micro-batches gave exit $rc, not 2"
    [ "$(grep -c 'error: 5 ranks cannot share' "$work/log")" = 1 ] || fail "not one line about too many ranks"
fi
