#!/usr/bin/env bash
# One rank of two is SIGKILLed in mid-training (where both have stopped themselves): the job ends long before
# comm.timeout with an exit code that is not 0, a line names the rank, and the same command again ends with the
# undisturbed run's weights.
. "${SOURCE:?}/tests/small_run.sh" || exit
need_mpi

small_data "$work"
config=$(small_config "$work")
job=("${ranks[@]}" 2 "$DTRAIN" "$config" train.global_batch=8
     train.max_steps="${STEPS:-30}" checkpoint.every="10 steps")

"${job[@]}" run.name=calm >/dev/null 2>"$work/log" || fail "exit $?"
DTRAIN_FAILPOINT=step:15:stop "${job[@]}" run.name=lost >"$work/out" 2>"$work/log" &
pid=$!
wait_until have_stopped 2
victim=${stopped[1]}
rank=$(tr '\0' '\n' <"/proc/$victim/environ" | sed -n 's/^OMPI_COMM_WORLD_RANK=//p')
kill -9 "$victim"
kill -CONT "${stopped[0]}" 2>/dev/null || true # mpirun may have been faster
begin=$SECONDS
rc=0
wait $pid || rc=$?
took=$((SECONDS - begin))
[ $rc != 0 ] || fail "rank $rank was killed and the job ended with 0"
[ $took -le 120 ] || fail "the job took $took s to end"
grep -hE "rank $rank\b" "$work/log" "$work/out" >"$work/lines" || fail "no line names rank $rank"
echo "exit $rc after $took s: $(head -1 "$work/lines")"

"${job[@]}" run.name=lost >/dev/null 2>"$work/log" || fail "exit $? when run again"
[ "$(hash "$work/runs/lost")" = "$(hash "$work/runs/calm")" ] || fail "other weights after resuming"
echo "resumed to the same weights"
