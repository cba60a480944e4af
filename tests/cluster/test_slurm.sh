#!/usr/bin/env bash
# dtrain launch slurm on a real Slurm of four nodes: over nodes by srun and by mpirun; USR1, the time limit, a killed rank
# and a node that goes down: saved or not, the job is queued again and ends with the undisturbed bits; a cancelled one
# stays so. Folds as a job array with a table. Staging with hashes. What Slurm refuses is one line and exit 2. FULL=1 also
# waits for time limits and the like, which takes minutes.
. "${SOURCE:?}/tests/cluster/slurm.sh" || exit
. "$SOURCE/tests/small_run.sh" || exit
need_mpi

small_data "$work"
config=$(small_config "$work")
small=(train.global_batch=8 train.max_steps=20 "checkpoint.every=4 steps" comm.timeout=20)
cd "$work"
mkdir bin
start_slurm

launch() { # options of launch slurm …: id of the job
    "$DTRAIN" launch slurm "$@" 2>"$work/log" || fail "exit $? of: dtrain launch slurm $*"
}
asleep() { # N: that many ranks have stopped themselves (DTRAIN_FAILPOINT); their ids are in ${stopped[@]}
    local begin=$SECONDS p
    while :; do
        stopped=()
        for p in /proc/[0-9]*; do
            [ "$p/exe" -ef "$DTRAIN" ] && grep -qs '^State:.T' "$p/status" &&
                grep -qsz "^SLURM_CONF=$SLURM_CONF" "$p/environ" && stopped+=("${p#/proc/}")
        done
        [ ${#stopped[@]} != "$1" ] || return 0
        [ $((SECONDS - begin)) -le 300 ] || { tail -n 20 ./*.out >&2; fail "${#stopped[@]} ranks came to the step, not $1"; }
        nap 0.2
    done
}
until_pending() { # SIGNAL: in every stopped rank
    local p begin=$SECONDS
    for p in "${stopped[@]}"; do
        until is_pending "$1" "$p"; do
            [ $((SECONDS - begin)) -le 300 ] || fail "SIG$1 does not come to rank $p"
            sleep 0.1
        done
    done
}
same_bits() { # run, weights, what
    [ "$(hash "$work/runs/$1")" = "$2" ] || fail "$3: other weights after resuming"
    echo "$3: the same bits"
}
restarts() { scontrol show job "$1" | sed -n 's/.*Restarts=\([0-9]*\).*/\1/p'; }

# ---- undisturbed: four nodes, of which one is late in MPI_Init; and two
cc -O1 -shared -fPIC -o "$work/late.so" "$SOURCE/tests/cluster/late_fence.c" -ldl -lpthread
id=$(LD_PRELOAD=$work/late.so launch --nodes 4 "$config" "${small[@]}" run.name=calm4)
wait_for_job "$id" COMPLETED
want4=$(hash runs/calm4)
grep -q '"accuracy"' "calm4-$id.out" || fail "no test metrics in calm4-$id.out"
"${ranks[@]}" 4 "$DTRAIN" "$config" "${small[@]}" run.name=plain >/dev/null 2>"$work/log" || fail "exit $? of mpirun"
same_bits plain "$want4" "four nodes as four ranks of mpirun"
id=$(launch --nodes 2 "$config" "${small[@]}" run.name=calm2)
wait_for_job "$id" COMPLETED
want2=$(hash runs/calm2)

# ---- stopped in mid-training by USR1 to the steps, as a user does it
id=$(DTRAIN_FAILPOINT=step:13:stop launch --nodes 4 "$config" "${small[@]}" run.name=usr1)
asleep 4
scancel --signal=USR1 "$id"
until_pending USR1
kill -CONT "${stopped[@]}"
wait_for_line "usr1-$id.out" "ended with 75, queued again"
wait_for_job "$id" COMPLETED
[ "$(restarts "$id")" = 1 ] || fail "USR1: $(restarts "$id") restarts"
[ "$(grep -c 'stopped after step' "usr1-$id.out")" = 1 ] || fail "USR1: usr1-$id.out has lost what was said before"
same_bits usr1 "$want4" "USR1, saved, requeued"

# ---- told before it could take a signal: not lost, but queued again. The batch script is still at its --setup lines; then
# srun is about to start the ranks.
printf 'echo begun >setup\nuntil [ -e go ] || [ -n "$asked" ]; do sleep 0.1; done\n' >wait.sh
id=$(launch --setup wait.sh "$config" "${small[@]}" run.name=early)
wait_for_line setup begun
scancel --signal=USR1 --batch "$id"
wait_for_line "early-$id.out" "ended with 75, queued again"
touch go
printf '#!/bin/sh\n[ "$1" != --mpi=list ] && [ ! -e raised ] && touch raised && kill -USR1 $PPID $$\nexec %s "$@"\n' "$(command -v srun)" >"$work/bin/srun"
chmod +x "$work/bin/srun"
id2=$(PATH=$work/bin:$PATH launch "$config" "${small[@]}" run.name=early2)
wait_for_line "early2-$id2.out" "ended with 138, queued again"
rm "$work/bin/srun" wait.sh
for n in $id $id2; do wait_for_job "$n" COMPLETED; done
echo "USR1 in the first moments: queued again"

# ---- a time limit that is shorter than the start: twice, and not for ever. Here each start is told at its begin, and its
# limit is three minutes away
printf 'asked=1\n' >short.sh
id=$(launch --setup short.sh --time 3 "$config" "${small[@]}" run.name=short)
wait_for_job "$id" FAILED
[ "$(grep -c 'queued again' "short-$id.out")" = 1 ] && grep -q 'the time limit came twice without a new checkpoint' "short-$id.out" ||
    fail "a limit shorter than the start: $(cat "short-$id.out")"
"$DTRAIN" "$config" "${small[@]}" run.name=short >/dev/null 2>"$work/log" || fail "the run that never began: exit $?"
rm short.sh
echo "a limit shorter than the start: ends at the second time"

# ---- names and options as they are: sbatch takes the quotes out again, and the user's option is the last
id=$(launch --sbatch "--comment='two \"words\" # \$HOME' --output=%j.mine" "$config" "${small[@]}" train.max_steps=2 'run.name="x y \"z\" \\ # %% $HOME"')
wait_for_job "$id" COMPLETED
scontrol show job "$id" | grep -F 'JobName=x y "z" \ # %% $HOME' >/dev/null || fail "another name: $(scontrol show job "$id" | grep JobName)"
scontrol show job "$id" | grep -F 'Comment=two "words" # $HOME' >/dev/null || fail "another comment: $(scontrol show job "$id" | grep Comment)"
[ -s "$id.mine" ] && [ -d 'runs/x y "z" \ # %% $HOME' ] || fail "other files: $(ls . runs)"
echo "odd names and options arrive"

# ---- a rank that is bound to one core: the hint is srun's
srun --mpi=pmix --ntasks=2 taskset -c 0 "$DTRAIN" "$config" "${small[@]}" train.max_steps=1 run.name=bound device.threads=auto >"$work/log" 2>&1 || fail "exit $?"
[ "$(nproc)" = 1 ] || grep -q 'bound to one core of .* srun --cpus-per-task=N gives it more' "$work/log" || fail "no hint of srun"

if [ "${FULL:-}" = 1 ]; then
# ---- the time limit: Slurm looks at it every 30 s, and two minutes are what the batch script asks for
id=$(DTRAIN_FAILPOINT=step:13:stop launch --nodes 4 --time 2 "$config" "${small[@]}" run.name=limit)
asleep 4
until_pending USR1
kill -CONT "${stopped[@]}"
wait_for_line "limit-$id.out" "ended with 75, queued again"
wait_for_job "$id" COMPLETED
same_bits limit "$want4" "two minutes before the time limit, saved, requeued"
fi

# ---- a node that goes down
id=$(DTRAIN_FAILPOINT=step:13:stop launch --nodes 2 "$config" "${small[@]}" run.name=down)
asleep 2
lost=$(scontrol show job "$id" | sed -n 's/^ *NodeList=\(n\[*[1-4]\).*/\1/p')
lost=${lost/[/}
scontrol update nodename="$lost" state=down reason=test
kill -CONT "${stopped[@]}" 2>/dev/null || true
wait_for_job "$id" COMPLETED
[ "$(restarts "$id")" = 1 ] || fail "node down: $(restarts "$id") restarts"
scontrol show job "$id" | grep "NodeList=.*$lost[],]*$" >/dev/null && fail "node down: the job ran again on $lost"
scontrol update nodename="$lost" state=resume
same_bits down "$want2" "a node set DOWN, requeued on others"

if [ "${FULL:-}" = 1 ]; then
# ---- a rank that is killed: requeued, as there is a checkpoint of this start
id=$(DTRAIN_FAILPOINT=step:13:stop launch --nodes 2 "$config" "${small[@]}" run.name=killed)
asleep 2
kill -KILL "${stopped[1]}"
kill -CONT "${stopped[0]}" 2>/dev/null || true
wait_for_job "$id" COMPLETED
same_bits killed "$want2" "a rank killed, requeued"

# ---- cancelled: saved, and not queued again
id=$(DTRAIN_FAILPOINT=step:13:stop launch --nodes 2 "$config" "${small[@]}" run.name=cancelled)
asleep 2
scancel "$id" # sends CONT, TERM, and KILL after KillWait
wait_for_line "cancelled-$id.out" "stopped after step"
wait_for_job "$id" CANCELLED
sleep 1
[ "$(job_state "$id")" = "CANCELLED " ] || fail "cancelled: $(job_state "$id")"
echo "scancel: saved, and not queued again"
fi

# ---- a step of one task, as `srun --pty bash` is: what runs there starts ranks itself
srun --ntasks 1 --mpi=pmix "$DTRAIN" sweep "$config" "${small[@]}" train.max_steps=2 run.name=one run.seed=1,2 --jobs 2 >"$work/log" 2>&1 ||
    fail "a sweep in a step of one task: exit $?"
srun --ntasks 1 --mpi=pmix "$DTRAIN" launch local -n 2 "$config" "${small[@]}" train.max_steps=2 run.name=two >"$work/log" 2>&1 ||
    fail "launch local in a step of one task: exit $?"

# ---- inside an allocation of one task: ranks of launch local and sweep stay on this machine, those of launch hosts go where
# they are sent; launch slurm submits a job like any other
in_job() { salloc -Q -N1 -n1 --mem-per-cpu=100 "$@" >"$work/out" 2>"$work/log" || fail "exit $? in an allocation: $*"; }
stays() {
    [ "$(sed -n 's/^{"kind":"start".*"host":"\([^"]*\)".*/\1/p' "runs/$1/metrics.jsonl")" = "$(hostname)" ] || fail "$1: ranks on another host"
}
in_job "$DTRAIN" launch local -n 2 "$config" "${small[@]}" train.max_steps=2 run.name=inside
stays inside
in_job "$DTRAIN" sweep --np 2 "$config" "${small[@]}" train.max_steps=2 run.name=insides run.seed=1,2
stays insides/seed=1
printf '#!/bin/sh\nshift\nexec sh -c "$*"\n' >"$work/bin/agent"
chmod +x "$work/bin/agent"
in_job "$DTRAIN" launch hosts --ssh "$work/bin/agent" --hosts "$(hostname):2" "$config" "${small[@]}" train.max_steps=2 run.name=insideh
stays insideh
in_job "$DTRAIN" launch slurm --mem 500M "$config" "${small[@]}" train.max_steps=2 run.name=inmem
wait_for_job "$(tail -n 1 "$work/out")" COMPLETED
id=$(sbatch --parsable --array=3-3 --cpus-per-task=2 --output=outer.out --wrap "'$DTRAIN' launch slurm '$config' ${small[*]@Q} train.max_steps=2 run.name=intask")
wait_for_job "$id" COMPLETED
wait_for_job "$(tail -n 1 outer.out)" COMPLETED
echo "inside another job: on this machine, and as a job of its own"

# ---- srun --mpi=pmi2 is for MPICH, with PMIx for Open MPI: the same bits
if [ -e "$BUILD/dtrain_mpich.so" ] && srun --mpi=list 2>&1 | grep -w pmi2 >/dev/null; then
    for pmi in pmi2 pmix; do
        srun --mpi=$pmi --nodes 2 "$DTRAIN" "$config" "${small[@]}" train.max_steps=2 run.name=$pmi >"$work/log" 2>&1 || fail "srun --mpi=$pmi: exit $?"
    done
    [ "$(hash runs/pmi2)" = "$(hash runs/pmix)" ] || fail "other weights under srun --mpi=pmi2"
    echo "srun --mpi=pmi2: the ranks are MPICH's"
fi

# ---- srun without a PMI that MPI knows: an error of every task, at once
rc=0
srun --nodes 4 --mpi=none "$DTRAIN" "$config" run.name=alone >"$work/log" 2>&1 || rc=$?
[ $rc = 2 ] || fail "srun --mpi=none: exit $rc, not 2"
grep -q 'started 4 processes, but this one sees a world of 1' "$work/log" || fail "srun --mpi=none: no clear line"
[ ! -e runs/alone ] || fail "srun --mpi=none has begun a run"

if [ "${FULL:-}" = 1 ]; then
# ---- without pmix: mpirun starts the ranks, and passes USR1 on
printf '#!/bin/sh\n[ "$1" != --mpi=list ] || exit 0\nexec %s "$@"\n' "$(command -v srun)" >"$work/bin/srun"
chmod +x "$work/bin/srun"
id=$(PATH=$work/bin:$PATH DTRAIN_FAILPOINT=step:13:stop launch --nodes 4 "$config" "${small[@]}" run.name=mpirun)
asleep 4
scancel --signal=USR1 --batch "$id"
until_pending USR1
kill -CONT "${stopped[@]}"
wait_for_line "mpirun-$id.out" "ended with 75, queued again"
wait_for_job "$id" COMPLETED
same_bits mpirun "$want4" "mpirun over four nodes, USR1, requeued"
fi

# ---- folds as an array, each task of which is asked to save once, staged to each node's own disk, with a table behind it
printf '[ -e "begun$SLURM_ARRAY_TASK_ID" ] || asked=1\n: >"begun$SLURM_ARRAY_TASK_ID"\n' >once.sh
id=$(launch --sweep --setup once.sh --stage "$work/node/staged" "$config" "${small[@]}" run.name=folds train.max_steps=8 \
     data.split.folds=5 data.split.fold=0..4)
table=$(sed -n 's/.*job \([0-9]*\) prints the table.*/\1/p' "$work/log")
wait_for_job "$table" COMPLETED
[ "$(grep -l 'queued again' folds-"${id}"_*.out | wc -l)" = 5 ] && [ "$(job_state "$id")" = "COMPLETED " ] ||
    fail "tasks of an array are not all queued again: $(job_state "$id") $(grep again folds-"${id}"_*.out)"
grep -q '±' "folds-table-$table.out" && grep -q '(5 of 5 runs)$' "folds-table-$table.out" ||
    fail "the table of the folds: $(cat "folds-table-$table.out")"
"$DTRAIN" sweep "$config" "${small[@]}" run.name=folds train.max_steps=8 data.split.folds=5 data.split.fold=0..4 --table \
    >"$work/table" 2>"$work/log" || fail "sweep --table"
cmp "$work/table" "folds-table-$table.out" || fail "the table of the folds is another now"
[ -e "$work"/disk/n1/staged/*/small.lmdb/data.mdb ] || fail "nothing is staged on n1"
echo "five folds as an array, staged: $(head -n 1 "$work/table")"

if [ "${FULL:-}" = 1 ]; then
# ---- a copy that is damaged ends the job before a rank starts
file=$(echo "$work"/disk/n1/staged/*/small.lmdb/data.mdb)
printf '\377\377\377\377\377\377\377\377' | dd of="$file" bs=1 seek=$(($(stat -c %s "$file") / 2)) conv=notrunc status=none
touch -d tomorrow "$file"
id=$(launch --stage "$work/node/staged" --sbatch "--nodelist=n1" "$config" "${small[@]}" run.name=damaged)
wait_for_job "$id" FAILED
grep -q 'staging to .* failed with 3' "damaged-$id.out" || { cat "damaged-$id.out" >&2; fail "a damaged copy is not found"; }
[ ! -e runs/damaged ] || fail "a run has begun on damaged data"

# ---- Apptainer: in front of dtrain on each node
printf '#!/bin/sh\n[ "$1" = exec ] || exit 9\necho "container $2 on $(hostname)"\nshift 3\nexec %s "$@"\n' "$DTRAIN" >"$work/bin/apptainer"
chmod +x "$work/bin/apptainer"
rm -f "$work/bin/srun"
id=$(PATH=$work/bin:$PATH launch --nodes 2 --container dtrain.sif "$config" "${small[@]}" run.name=contained)
wait_for_job "$id" COMPLETED
[ "$(grep -c '^container dtrain.sif on n' "contained-$id.out")" = 2 ] || fail "no container on each node"
fi

# ---- what is refused: one line, exit 2, and nothing in the queue
refused() { # text, options of launch slurm …
    local text=$1 rc=0
    shift
    "$DTRAIN" launch slurm "$@" >"$work/out" 2>"$work/log" || rc=$?
    [ $rc = 2 ] && [ "$(grep -c . "$work/log")" = 1 ] && grep -q -- "$text" "$work/log" || fail "exit $rc, expected 2 and: $text"
    [ -z "$(squeue -h)" ] || fail "a job was submitted: $*"
}
refused 'invalid partition specified: nope' --partition nope "$config"
refused 'at most 4 ranks' --nodes 4 --ntasks-per-node 3 "$config"
scontrol update PartitionName=main Default=NO
refused 'No partition specified' "$config"
echo "refused: partition, nodes, ranks"
