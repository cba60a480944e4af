#!/usr/bin/env bash
# SIGTERM, SIGINT, SIGUSR1 and SIGHUP to a process, SIGUSR1 to mpirun, SIGTERM to one rank of two: the step is
# finished, the state saved, exit 75; the same command again ends with the undisturbed run's weights. A run stops
# itself in mid-training and goes on when its signal waits for it: so none comes too late.
. "${SOURCE:?}/tests/small_run.sh" || exit

small_data "$work"
config=$(small_config "$work")
common=(train.global_batch=4 train.max_steps="${STEPS:-20}" checkpoint.every="100000 steps")

calm() { # run, launcher …
    local run=$1
    shift
    "$@" "$DTRAIN" "$config" "${common[@]}" run.name="$run" >/dev/null 2>"$work/log" || fail "exit $? of $run"
    hash "$work/runs/$run"
}
background() { # failpoint, run, launcher …
    local point=$1 run=$2
    shift 2
    DTRAIN_FAILPOINT=$point "$@" "$DTRAIN" "$config" "${common[@]}" run.name="$run" >/dev/null 2>"$work/log" &
    pid=$!
}
end() { # exit code, what was sent
    local rc=0
    wait $pid || rc=$?
    [ $rc = "$1" ] || fail "$2: exit $rc, not $1"
}
stop_and_resume() { # run, signal, whom (process, launcher or its rank), weights that must come out, launcher …
    local run=$1 signal=$2 whom=$3 want=$4 p asked
    shift 4
    background step:10:stop "$run" "$@"
    wait_until have_stopped $([ "$whom" = process ] && echo 0 || echo 2)
    asked=("${stopped[@]}")
    [ "$whom" != rank ] || asked=("${stopped[0]}")
    if [ "$whom" = launcher ]; then kill "-$signal" $pid; else kill "-$signal" "${asked[@]}"; fi
    for p in "${asked[@]}"; do wait_until is_pending "$signal" "$p"; done
    kill -CONT "${stopped[@]}"
    end 75 "SIG$signal to $whom of $run"
    grep -q 'stopped after step' "$work/runs/$run/log" || fail "$run: its log does not say that it was stopped"
    [ "$(calm "$run" "$@")" = "$want" ] || fail "$run: other weights after resuming"
    echo "SIG$signal to $run: exit 75, resumed to the same weights"
}

want=$(calm calm env)
for signal in TERM INT USR1; do
    stop_and_resume "process-$signal" $signal process "$want" env
done

# no thread that computes may take one: generated matrix products use the stack pointer as a register, and a
# handler's frame would be written into the heap
takers() { # PID: names of its threads that do not block SIGTERM (15)
    local t mask
    for t in "/proc/$1/task/"*; do
        mask=$(sed -n 's/^SigBlk:\t*/0x/p' "$t/status")
        (( mask >> 14 & 1 )) || cat "$t/comm"
    done
}
background step:10:stop masks env --default-signal=HUP # nohup may be at work
wait_until have_stopped 0
got=$(takers $pid)
[ "$got" = signals ] || fail "SIGTERM can come to these threads: ${got//$'\n'/, }"
kill -HUP $pid
kill -CONT $pid
end 75 "SIGHUP to masks"
echo "one thread of its own takes signals; SIGHUP: exit 75"

# SIGHUP that is ignored stays so
background step:10:stop ignored env --ignore-signal=HUP
wait_until have_stopped 0
kill -HUP $pid
kill -INT $pid
kill -CONT $pid
end 75 "SIGINT behind an ignored SIGHUP"
grep -q 'by SIGINT' "$work/log" || fail "SIGHUP was ignored, and is said to have stopped it"

# SIGINT twice within 0.3 s is what timeout(1) may make of one, also where the process did not run meanwhile; one that
# comes later ends it, here in a step without end
is_answered() { ! is_pending "$1" $pid; }
has_begun() { grep -qs '"kind":"step"' "$work/runs/twice$try/metrics.jsonl"; }
for try in {1..20}; do
    background step:2:hang "twice$try" env
    wait_until has_begun
    begin=${EPOCHREALTIME/[.,]/}
    kill -INT $pid
    wait_until is_answered INT
    kill -STOP $pid
    kill -INT $pid
    [ $((${EPOCHREALTIME/[.,]/} - begin)) -gt 250000 ] || break
    kill -KILL $pid # this script did not run between the two
    wait $pid || true
done
sleep 0.4
kill -CONT $pid
sleep 0.5
kill -0 $pid 2>/dev/null || fail "SIGINT twice within 0.3 s ended the process"
for try in {1..100}; do # one may still count as the first
    kill -INT $pid 2>/dev/null || break
    sleep 0.4
done
! kill -KILL $pid 2>/dev/null || fail "SIGINT again and again does not end the process"
end 130 "SIGINT again"
echo "a second SIGINT ends at once, unless it comes with the first"

if have_mpi; then
    launcher=("${ranks[@]}" 2)
    want=$(calm calm-np2 "${launcher[@]}")
    stop_and_resume mpirun USR1 launcher "$want" "${launcher[@]}"
    stop_and_resume rank TERM rank "$want" "${launcher[@]}"

    # before step 0, while the ranks still find each other: kept, and answered after the first step. Rank 0 waits for this
    # script before it makes its first file
    background io:1:stop early "${launcher[@]}"
    both_know_mpi() {
        local p list
        list=$(children $pid 2>/dev/null) || return 1
        read -ra pids <<<"$list"
        [ ${#pids[@]} = 2 ] || return 1
        for p in "${pids[@]}"; do grep -qs dtrain_mpi "/proc/$p/maps" || return 1; done
    }
    wait_until both_know_mpi
    kill -STOP "${pids[@]}"
    wait_until have_stopped 2
    kill -USR1 $pid
    for p in "${pids[@]}"; do wait_until is_pending USR1 "$p"; done
    while kill -CONT "${pids[@]}" 2>/dev/null; do sleep 0.05; done
    end 75 "SIGUSR1 before step 0"
    [ "$(calm early "${launcher[@]}")" = "$want" ] || fail "early: other weights after resuming"
    echo "SIGUSR1 before step 0: exit 75, resumed to the same weights"

    # TERM to mpirun itself in the middle of a step of seven seconds: what launch/mpi_env.sh sets leaves the time to
    # finish it and save, though mpirun says 1
    unset OMPI_MCA_odls_base_sigkill_timeout
    . "$SOURCE/launch/mpi_env.sh"
    background step:9:stop,step:10:slow slow "${launcher[@]}"
    wait_until have_stopped 2
    kill -TERM $pid # before anything else it lets its ranks go on
    end 1 "SIGTERM to mpirun in a slow step"
    export OMPI_MCA_odls_base_sigkill_timeout=1
    grep -q 'by SIGTERM; saved' "$work/log" || fail "SIGTERM to mpirun in a slow step: nothing is saved"
    [ "$(calm slow "${launcher[@]}")" = "$want" ] || fail "slow: other weights after resuming"
    echo "SIGTERM to mpirun in a slow step: saved"

    # the keyboard's SIGINT goes to all processes of the foreground: to this script, which passes it on as SIGUSR1, and
    # not to mpirun
    session() { cut -d' ' -f6 "/proc/$1/stat"; }
    theirs=$(mpi 1 sh -c 'cut -d" " -f6 "/proc/$PPID/stat"')
    [ "$theirs" != "$(session $$)" ] || fail "mpirun gets what the keyboard sends to the script"
    # and a script that is killed takes its ranks with it, which save
    background step:10:stop orphan bash -c '. "$0/launch/mpi_env.sh"; mpi 2 "$@"' "$SOURCE"
    script=$pid
    # the script has other children before mpirun
    until pid=$(children "$script") && pid=${pid% } && have_stopped 2; do
        kill -0 "$script" 2>/dev/null || fail "the script ended before its ranks"
        sleep 0.02
    done
    kill -KILL "$script"
    wait "$script" 2>/dev/null || true
    for p in "${stopped[@]}"; do wait_until is_pending USR1 "$p"; done
    kill -CONT "${stopped[@]}"
    while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
    grep -q 'by SIGUSR1; saved' "$work/log" || fail "ranks went on without the script that started them"
    echo "a script that is killed: its ranks save"

    # what all ranks know is said once, and said before the launcher ends the job
    exits 2 '' "${ranks[@]}" 3 "$DTRAIN" "$config" "${common[@]}" run.name=many
    [ "$(grep -c 'error: 3 ranks cannot share' "$work/log")" = 1 ] || fail "not one line about too many ranks"
fi
