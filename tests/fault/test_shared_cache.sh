#!/usr/bin/env bash
# data.cache: shared under mpirun -np 4 is one copy for the host: the ranks' proportional shares of it add
# up to its size. A rank is SIGKILLed: no shared memory is left behind, one that a dead job did leave is
# removed, and the same command resumes to the weights of a calm run without a cache.
. "${SOURCE:?}/tests/small_run.sh" || exit
need_mpi

# bytes of the cache in the address space of each rank: "Rss Pss Shared" in KiB, summed
share_of() {
    local pids=("$@")
    for p in "${pids[@]}"; do
        cat "/proc/$p/smaps" || fail "cannot read the maps of rank $p"
    done |
        awk '/^[0-9a-f]+-[0-9a-f]+ /{mine = /\/dev\/shm\/dtrain-/} mine && /^Rss:/{r += $2} mine && /^Pss:/{p += $2} END{print r + 0, p + 0}'
}
segment_of() { # PID: the file of the cache that it has mapped
    sed -n 's/.* \(\/dev\/shm\/dtrain-[^ ]*\).*/\1/p' "/proc/$1/maps" | sort -u
}

small_data "$work" 8 6
config=$(small_config "$work" 8)
job=("${ranks[@]}" 4 "$DTRAIN" "$config" train.global_batch=16 checkpoint.every="10 steps" train.max_steps="${STEPS:-30}")

"${job[@]}" run.name=calm >/dev/null 2>"$work/log" || fail "exit $?"
DTRAIN_FAILPOINT=step:19:stop "${job[@]}" run.name=cached data.cache=shared run.stop_at=20 >"$work/out" 2>"$work/log" &
pid=$!
wait_until have_stopped 4
read -r rss pss < <(share_of "${stopped[@]}")
segment=$(segment_of "${stopped[0]}")
[ -n "$segment" ] || fail "the ranks map no shared memory"
kill -CONT "${stopped[@]}"
wait $pid && rc=0 || rc=$?
[ $rc = 75 ] || fail "exit $rc instead of 75"
held=$(sed -n 's/.*cache shared: .* it holds \([0-9.]*\) MiB.*/\1/p' "$work/log" | tail -1)
echo "4 ranks map ${rss} KiB of it, together one copy of ${pss} KiB; it holds $held MiB"
awk -v rss="$rss" -v pss="$pss" -v held="$held" 'BEGIN {
    kib = held * 1024
    exit !(kib > 500 && pss >= 0.5 * kib && pss <= 1.3 * kib + 5000 && rss >= pss)
}' || fail "shares do not add up to one copy"
[ ! -e "$segment" ] || fail "shared memory is left after the run"

DTRAIN_FAILPOINT=step:15:stop "${job[@]}" run.name=lost data.cache=shared >"$work/out" 2>"$work/log" &
pid=$!
wait_until have_stopped 4
segment=$(segment_of "${stopped[0]}")
[ -n "$segment" ] || fail "the ranks map no shared memory"
kill -9 "${stopped[1]}"
kill -CONT "${stopped[@]}"
wait $pid && fail "a rank was killed and the job ended with 0"
[ ! -e "$segment" ] || fail "a killed rank left shared memory behind"

dead="/dev/shm/dtrain-$(id -u)-$(printf %016x $$)" # as of a job that died at once
(umask 077; head -c 100000 /dev/zero >"$dead")
"${job[@]}" run.name=lost data.cache=shared >"$work/out" 2>"$work/log" || fail "exit $? when run again"
[ ! -e "$dead" ] || fail "what a dead job left is still there"
[ "$(hash "$work/runs/lost")" = "$(hash "$work/runs/calm")" ] || fail "other weights with a cache"
echo "resumed to the same weights"
