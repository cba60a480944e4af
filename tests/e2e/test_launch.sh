#!/usr/bin/env bash
# dtrain launch without starting anything: what --print shows, for a dozen jobs (tests/golden/launch), is what SkyPilot's
# own parser takes, templates are found where they are installed and can be the user's own, and bad input is one line and
# exit 2. And dtrain check --cost. `test_launch.sh --write` writes the golden files.
. "${SOURCE:?}/tests/small_run.sh" || exit
cd "$SOURCE"
unset "${!OMPI_@}" "${!PRTE_@}" "${!OMP_@}" "${!DTRAIN_@}" "${!AWS_@}" CUDA_VISIBLE_DEVICES
DTRAIN=$BUILD/dtrain
write=${1:-}

# -- golden files: without what depends on the machine and on who runs the test
printed() {
    "$DTRAIN" launch "$@" --print 2>"$work/log" | sed "s|$DTRAIN|dtrain|g; s|$PWD|FOLDER|g; s|OMPI_ALLOW_RUN_AS_ROOT[A-Z_]*=1 ||g" || fail "launch $*"
}
# -- hostile values, for every golden case: what is started gets each word as it was given
odd=("run.name=\"-x it's \\\"q\\\" \$HOME \`touch pwned\` \$(touch pwned) \\\\ #c ! * {a,b} % - : é @NODES@\""
    $'run.dir=-d "e\nf\tg" \'h\' $HOME `touch pwned` $(touch pwned);touch pwned&\u2028\u0085x')
mkdir "$work/recorders"
for program in mpirun srun dtrain; do # all say what they were started with
    printf '#!/bin/bash\n[ "$1" != --mpi=list ] || { echo pmix; exit; }\nprintf "%%s\\0" "$@" >>%q\n' "$work/argv" >"$work/recorders/$program"
done
for program in squeue scontrol qstat qsub; do printf '#!/bin/sh\n' >"$work/recorders/$program"; done
chmod +x "$work"/recorders/*
"$python" -c 'import yaml' 2>/dev/null || { echo "skipped: no python3-yaml"; exit 77; }
starts() { # FILE: what is run on its behalf
    case $1 in
        *.yaml) "$python" -c 'import sys, yaml; print(yaml.safe_load(open(sys.argv[1]))["run"])' "$1" ;;
        *) sed "s|^$DTRAIN |dtrain |" "$1" ;; # of one rank
    esac
}
survives() { # FILE, words that must arrive
    local file=$1 word
    shift
    rm -rf "$work/argv" "$work/odd"
    mkdir "$work/odd"
    starts "$file" >"$work/script" || fail "no parser takes $file"
    bash -n "$work/script" || fail "no script: $file"
    (cd "$work/odd" && PATH="$work/recorders:$PATH" SLURM_JOB_ID=1 SLURM_JOB_NAME=x SLURM_NNODES=1 SKYPILOT_NODE_RANK=0 SKYPILOT_NODE_IPS=1.2.3.4 \
        PBS_JOBID=1.server PBS_JOBNAME=x PBS_O_WORKDIR=. PBS_NODEFILE=/dev/null \
        bash "$work/script") >"$work/log" 2>&1 || fail "exit $? of $file"
    readarray -d '' -t got <"$work/argv"
    for word in "$@"; do
        found=
        for one in "${got[@]}"; do [ "$one" != "$word" ] || found=1; done
        [ "$found" ] || fail "$file: this does not arrive: $word"
    done
    [ -z "$(find "$work/odd" -name pwned)" ] || fail "$file: a shell has read a value"
}
golden() { # name, words
    local name=$1 words=("${odd[@]}")
    shift
    [ "$name" != slurm-mnist.sbatch ] || words=("${odd[1]/run.dir/data.path}") # a sweep names its runs itself
    "$DTRAIN" launch "$@" "${words[@]}" --print >"$work/odd-$name" 2>"$work/log" || fail "launch $*"
    survives "$work/odd-$name" "${words[@]}"
    printed "$@" >"$work/$name"
    if [ "$write" ]; then cp "$work/$name" "tests/golden/launch/$name"; fi
    diff "tests/golden/launch/$name" "$work/$name" || fail "launch $* prints something else (test_launch.sh --write)"
}
printf '# hosts\nnode1 slots=2\nnode2:2  # the other\n' >"$work/list"
golden local-fusion.txt local -n 8 configs/fusion.yaml
golden local-photos.txt local configs/photos.yaml "run.name=it's" 'data.path=my photos.tar'
golden local-pose.txt local -n 2 --restarts 3 configs/pose.yaml train.epochs=1
golden hosts-fusion.txt hosts --hosts node1:4,node2:4 --net 10.0.0.0/24 configs/fusion.yaml run.name=far
AWS_SECRET_ACCESS_KEY=private-word golden hosts-lens.txt hosts --hostfile "$work/list" --net eth1 --program /opt/dtrain/bin/dtrain configs/lens_resnet18.yaml train.micro_batch=8
NCCL_DEBUG=INFO golden hosts-mnist.txt hosts --hosts node1 --ssh 'ssh -p 2222' --net eth0 configs/mnist.yaml
buckets=(--data s3://my/data --runs s3://my/runs)
golden cloud-fusion.yaml cloud --cloud aws/us-east-1 --gpus A100:8 --spot "${buckets[@]}" configs/fusion.yaml train.epochs=9
golden cloud-pose.yaml cloud --cloud gcp --cpus 16+ --memory 64+ --data gs://my/data --runs gs://my/runs configs/pose.yaml
golden cloud-lens.yaml cloud --cloud azure --nodes 2 -n 2 --image registry.example/dtrain:0.1 \
    --data https://my.blob.core.windows.net/data --runs https://my.blob.core.windows.net/runs configs/lens_resnet18.yaml run.name=a_b train.micro_batch=8
golden cloud-acoustic.yaml cloud "${buckets[@]}" configs/acoustic.yaml "run.name=two words"
"$DTRAIN" launch cloud --data s3://my/data --spot --print configs/fusion.yaml checkpoint.mirror=s3://my/runs/ >"$work/spot.yaml" 2>"$work/log" &&
    ! grep -q 'MOUNT_CACHED\|run.dir' "$work/spot.yaml" && grep -q "checkpoint.mirror=s3://my/runs/" "$work/spot.yaml" || fail "launch cloud with a mirror"
"$DTRAIN" launch cloud "${buckets[@]}" --print configs/fusion.yaml run.stop_at=5 2>"$work/log" | grep 'recover_on_exit_codes: \[240\]' >/dev/null ||
    fail "launch cloud: run.stop_at is recovered for ever"
golden slurm-fusion.sbatch slurm --nodes 2 --gpus-per-node 4 --time 4:00:00 --account bio configs/fusion.yaml run.name=long
golden slurm-mnist.sbatch slurm --sweep --jobs 2 configs/mnist.yaml run.seed=0..2
golden pbs-fusion.pbs pbs --nodes 2 --ncpus 32 --ngpus 4 --mem 64gb --walltime 4:00:00 --queue gpu --account bio --pbs '-W umask=027' configs/fusion.yaml
golden pbs-pose.pbs pbs configs/pose.yaml run.stop_at=5
[ "$(ls tests/golden/launch | wc -l)" = 14 ] || fail "golden files that no case writes: $(ls tests/golden/launch)"

# -- inside another job of Slurm: mpirun stays off the job's nodes unless told otherwise, sbatch gets none of its variables
mkdir "$work/inside"
printf '#!/bin/sh\nenv >"%s/inside/env"\necho 7\n' "$work" >"$work/inside/sbatch"
chmod +x "$work/inside/sbatch"
job=(SLURM_JOB_ID=4 SLURM_JOBID=4 SLURM_ARRAY_TASK_ID=3 SLURM_MEM_PER_CPU=100 SLURM_CPUS_PER_TASK=3 PMIX_RANK=0 SLURM_CONF=/x
     SLURM_PMIX_FENCE=tree "PATH=$work/inside:$PATH")
env "${job[@]}" "$DTRAIN" launch slurm configs/fusion.yaml >"$work/log" 2>&1 || fail "launch slurm in a job: exit $?"
[ "$(grep -E '^(SLURM|PMIX)_' "$work/inside/env" | sort | tr '\n' ' ')" = 'SLURM_CONF=/x SLURM_PMIX_FENCE=tree ' ] ||
    fail "sbatch gets variables of another job: $(grep -E '^(SLURM|PMIX)_' "$work/inside/env")"
for target in 'local -n 2' 'hosts --hosts a:2 --net lo'; do
    env "${job[@]}" PRTE_MCA_plm=slurm "$DTRAIN" launch $target --print configs/fusion.yaml >"$work/inside/line" 2>"$work/log" ||
        fail "launch $target in a job: exit $?"
    for word in OMPI_MCA_ras=^slurm OMPI_MCA_plm=^slurm PRTE_MCA_ras=^slurm PRTE_MCA_plm=slurm; do
        tr -d "'" <"$work/inside/line" | grep -F "$word" >/dev/null || fail "no $word: $(cat "$work/inside/line")"
    done
done
for variable in PBS_JOBID=1.host LSB_JOBID=1 PE_HOSTFILE=/x; do # PBS, LSF, Grid Engine
    env $variable "$DTRAIN" launch local -n 2 --print configs/fusion.yaml >"$work/inside/line" 2>"$work/log" || fail "launch local in a job: exit $?"
    for word in OMPI_MCA_ras OMPI_MCA_plm PRTE_MCA_ras PRTE_MCA_plm; do
        tr -d "'" <"$work/inside/line" | grep -F "$word=^slurm,tm,pbs,lsf,gridengine " >/dev/null || fail "$variable: no $word: $(cat "$work/inside/line")"
    done
done

# -- values of options: YAML gives them back as they were, a batch script has them in its directives or as words
"$DTRAIN" launch cloud --cloud 'aws/us east: #1' --gpus 'A "100" #x:8' --data $'s3://a b/\'c\': "d" #e\n- f' --runs 'no' --print \
    configs/fusion.yaml run.name=off >"$work/odd.yaml" 2>"$work/log" || fail "launch cloud of odd options"
py check_odd "$work/odd.yaml" || fail "odd options of launch cloud"
printf 'module() { echo "module $*"; }\nmodule load mpi/@NODES@ $HOME `true`\n' >"$work/modules"
slurm=("$DTRAIN" launch slurm configs/fusion.yaml --print)
"${slurm[@]}" 'run.name="x y \"z\" \\ # $HOME"' --partition "a b" --time "1-0 \"" --sbatch '--comment="one two" --exclusive' \
    --setup "$work/modules" --stage "/disk/\$USER/\${USER}x/\$(touch pwned) \`touch pwned\`'" --container-image 'nvcr.io#a/b c:1' --container-mounts '/d e:/d' \
    >"$work/odd.sbatch" 2>"$work/log" || fail "launch slurm of odd options"
for line in '#SBATCH --job-name="x y \"z\" \\ # $HOME"' '#SBATCH --partition="a b"' '#SBATCH --time="1-0 \""'; do
    grep -qxF -- "$line" "$work/odd.sbatch" || fail "no line $line: $(grep SBATCH "$work/odd.sbatch")"
done
[ "$(grep '^#SBATCH' "$work/odd.sbatch" | tail -n 1)" = '#SBATCH --comment="one two" --exclusive' ] || fail "--sbatch is not last"
USER=me survives "$work/odd.sbatch" "run.name=\"x y \\\"z\\\" \\\\ # \$HOME\"" "data.path=/disk/me/mex/\$(touch pwned) \`touch pwned\`'/$(realpath -m "$work/odd/datasets" | md5sum | head -c 16)/biometric.lmdb" \
    "--container-image=nvcr.io#a/b c:1" --container-workdir="$work/odd" \
    "--container-mounts=$work/odd:$work/odd,/disk/me/mex/\$(touch pwned) \`touch pwned\`':/disk/me/mex/\$(touch pwned) \`touch pwned\`',/d e:/d"
grep -qx "module load mpi/@NODES@ $HOME" "$work/log" || fail "the lines of --setup are not run: $(cat "$work/log")"

# -- what a batch script does, with programs that stand for Slurm's: a set in the place of another one of its name is copied,
# beside it, and a job that reads the other goes on with it; a task of an array is named by its number; run.stop_at ends
mkdir "$work/slurm"
cp -r "$work/recorders" "$work/slurm/bin"
printf '#!/bin/bash\nwhile [[ ${1:-} == --* ]]; do shift; done\n[ "${1:-}" != bash ] || exec "$@"\n' >"$work/slurm/bin/srun"
printf '#!/bin/sh\nexit 75\n' >"$work/slurm/bin/mpirun"
printf '#!/bin/sh\necho RUNNING\n' >"$work/slurm/bin/squeue"
printf '#!/bin/sh\necho "$@"\n' >"$work/slurm/bin/scontrol"
batch() { # words of launch slurm: what the script says
    local rc=0
    "$DTRAIN" launch slurm --print --stage "$work/slurm/disk" "$SOURCE/configs/mnist.yaml" "$@" 2>"$work/log" |
        (cd "$work/slurm" && PATH="$work/slurm/bin:$PATH" SLURM_JOB_ID=7 SLURM_JOB_NAME=x SLURM_NNODES=1 bash) >"$work/out" 2>>"$work/log" || rc=$?
    [ $rc = 75 ] || fail "exit $rc of a batch script"
}
for version in new old; do
    mkdir -p "$work/slurm/$version"
    echo $version >"$work/slurm/$version/set.tar"
done
touch -d yesterday "$work/slurm/old/set.tar"
for version in new old; do batch data.path=$version/set.tar; done
[ "$(sort "$work"/slurm/disk/*/set.tar | paste -sd,)" = new,old ] || fail "staged: $(head "$work"/slurm/disk/*/*)"
exec {reads}<"$(grep -l new "$work"/slurm/disk/*/set.tar)"
echo newer >"$work/slurm/new/set.tar"
touch -d tomorrow "$work/slurm/new/set.tar"
batch data.path=new/set.tar
[ "$(cat <&$reads)" = new ] && grep -qx newer "$work"/slurm/disk/*/set.tar || fail "a staged set is written over"
exec {reads}<&-
grep -qx 'requeue 7' "$work/out" || fail "not queued again: $(cat "$work/out")"
SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_ID=0 batch data.path=new/set.tar
grep -qx 'requeue 7_0' "$work/out" || fail "the whole array is queued again: $(cat "$work/out")"
batch data.path=new/set.tar run.stop_at=5
[ ! -s "$work/out" ] || fail "run.stop_at: $(cat "$work/out")"
# a rank that the kernel killed (srun: 137 or 253, others that missed it 240): kills since the start, not those of jobs before it
printf '0::/job/step\n' >"$work/slurm/cgroups"
mkdir -p "$work/slurm/cgroup/job/step"
echo 'oom_kill 5' | tee "$work/slurm/cgroup/job/memory.events" >"$work/slurm/cgroup/job/step/memory.events"
echo 4096 | tee "$work/slurm/cgroup/job/memory.max" >"$work/slurm/cgroup/job/step/memory.max"
"${slurm[@]}" 2>"$work/log" | sed "s|/sys/fs/cgroup|$work/slurm/cgroup|; s|/proc/self/cgroup|$work/slurm/cgroups|" >"$work/slurm/script"
for code in 137 240 253; do
    printf '#!/bin/sh\n[ "$1" != --mpi=list ] || exit 0\n' >"$work/slurm/bin/srun"
    printf '#!/bin/sh\necho "oom_kill 7" >%q\nexit %s\n' "$work/slurm/cgroup/job/step/memory.events" $code >"$work/slurm/bin/mpirun"
    rc=0
    (cd "$work/slurm" && PATH="$work/slurm/bin:$PATH" SLURM_JOB_ID=7 SLURM_JOB_NAME=x SLURM_NNODES=1 bash script) >"$work/out" 2>"$work/log" || rc=$?
    [ $rc = $code ] && grep -q 'x: a rank was killed or lost. If for want of memory: lower train.micro_batch' "$work/log" || fail "code $rc, not $code with advice"
    [ "$(grep -c oom_kill "$work/log")" = 1 ] && grep -qx "$work/slurm/cgroup/job/step: oom_kill 2 since the start, limit 4096" "$work/log" ||
        fail "code $code: what the kernel killed: $(cat "$work/log")"
    echo 'oom_kill 5' >"$work/slurm/cgroup/job/step/memory.events"
done
# the job behind an array is one task, without a PMI
printf '#!/bin/sh\ncat >>%q\necho 7\n' "$work/slurm/given" >"$work/slurm/bin/sbatch"
chmod +x "$work/slurm/bin/sbatch"
PATH=$work/slurm/bin:$PATH "$DTRAIN" launch slurm --sweep --container-image i.sqsh configs/mnist.yaml run.seed=0,1 >/dev/null 2>"$work/log" || fail "launch slurm --sweep"
grep -q '^srun --mpi=none --ntasks=1 --container-image=i.sqsh .* sweep .*--table$' "$work/slurm/given" || fail "the table's job: $(tail -n 3 "$work/slurm/given")"

# -- a job of PBS, with programs that stand for qsub, qstat and mpirun: it submits its file again when it was saved or lost a
# rank, and there is a new checkpoint; not after qdel (TERM), nor with run.stop_at. Real PBS is not in Debian
mkdir -p "$work/pbs/bin"
printf '#!/bin/sh\necho "$@" >>%q\necho 8.server\n' "$work/pbs/submitted" >"$work/pbs/bin/qsub"
printf '#!/bin/sh\necho "    Resource_List.walltime = 00:03:02"\n' >"$work/pbs/bin/qstat"
printf '#!/bin/bash\ntrap "" USR1\nuntil [ -s slept ]; do /bin/sleep 0.05; done\n[ "$CODE" = 0 ] || mkdir -p "runs/a b/checkpoints/step-0$CODE"\n[ -z "$RAISE" ] || kill -"$RAISE" $PPID && /bin/sleep 1\nexit "$CODE"\n' >"$work/pbs/bin/mpirun"
printf '#!/bin/sh\necho "$1" >%q\nexit 1\n' "$work/pbs/slept" >"$work/pbs/bin/sleep"
chmod +x "$work"/pbs/bin/*
echo 'a b' >"$work/pbs/hosts"
(cd "$work/pbs" && PATH="$work/pbs/bin:$PATH" "$DTRAIN" launch pbs "$SOURCE/configs/pose.yaml" 'run.name=a b') >"$work/out" 2>"$work/log" || fail "launch pbs: exit $?"
grep -qx 8.server "$work/out" && grep -qx a-b.pbs "$work/pbs/submitted" && grep -q 'job 8.server: messages in a-b.o8; watch: qstat 8.server' "$work/log" ||
    fail "launch pbs: $(cat "$work/log")"
in_pbs() { # code of mpirun, signal that comes, code of the job, submitted again
    local rc=0
    rm -rf "$work"/pbs/{submitted,runs,slept}
    (cd / && PATH="$work/pbs/bin:$PATH" CODE=$1 RAISE=$2 PBS_JOBID=7.server PBS_JOBNAME=a-b PBS_O_WORKDIR=$work/pbs PBS_NODEFILE=$work/pbs/hosts \
        bash "$work/pbs/a-b.pbs") >"$work/out" 2>"$work/log" || rc=$?
    [ $rc = "$3" ] && [ "$(cat "$work/pbs/submitted" 2>/dev/null)" = "$4" ] || fail "a job of PBS, mpirun $1, signal '$2': exit $rc, submitted: $(cat "$work/pbs/submitted")"
}
in_pbs 75 '' 75 a-b.pbs
grep -q "a-b: ended with 75, submitted again as 8.server to go on from runs/a b/checkpoints/step-075" "$work/out" || fail "no line: $(cat "$work/out")"
[ "$(cat "$work/pbs/slept")" = 62 ] || fail "a limit of 182 s: the signal comes after $(cat "$work/pbs/slept") s"
in_pbs 240 '' 240 a-b.pbs
in_pbs 5 '' 5 ''
in_pbs 0 '' 0 ''
in_pbs 75 TERM 75 ''
(cd "$work/pbs" && PATH="$work/pbs/bin:$PATH" "$DTRAIN" launch pbs "$SOURCE/configs/pose.yaml" 'run.name=a b' run.stop_at=5) >"$work/out" 2>"$work/log" || fail "launch pbs: exit $?"
in_pbs 75 '' 75 ''

# -- what is submitted in part is not denied
printf '#!/bin/sh\n[ "$1" != apply ] || { echo configmap/x created; echo busy >&2; exit 1; }\n' >"$work/slurm/bin/kubectl"
printf '#!/bin/sh\ncase $* in *--dependency*) echo "sbatch: error: busy" >&2; exit 1 ;; esac\necho 7\n' >"$work/slurm/bin/sbatch"
chmod +x "$work/slurm/bin/kubectl"
in_part() { # message, words of launch
    local rc=0
    PATH=$work/slurm/bin:$PATH "$DTRAIN" launch "${@:2}" >"$work/out" 2>"$work/log" || rc=$?
    [ $rc = 2 ] && grep -q "error: $1\$" "$work/log" && [ -s "$work/out" ] || fail "exit $rc: launch ${*:2}"
}
in_part 'only what is listed was applied: kubectl: busy' k8s --namespace ml configs/fusion.yaml
in_part 'the array is job 7, but its table is not queued: sbatch: busy' slurm --sweep configs/mnist.yaml run.seed=0,1

# -- a job that is there is not changed; secrets stay out of the manifest
printf '#!/bin/sh\necho "$@" >>%q\ncase $* in *"get mpijob x"*) echo mpijob.kubeflow.org/x ;; esac\n' "$work/slurm/asked" >"$work/slurm/bin/kubectl"
not_k8s() { # message, words
    local rc=0
    PATH=$work/slurm/bin:$PATH "$DTRAIN" launch k8s --namespace ml configs/fusion.yaml "${@:2}" >"$work/out" 2>"$work/log" || rc=$?
    [ $rc = 2 ] && grep -q "$1" "$work/log" || fail "exit $rc, not 2 and '$1': $(cat "$work/log")"
    ! grep -q 'apply' "$work/slurm/asked" || fail "something was applied: $*"
}
not_k8s 'the job x is in the namespace ml already.*another run.name, or delete.*kubectl -n ml delete mpijob x' run.name=x
for name in AWS_SECRET_ACCESS_KEY MLFLOW_TRACKING_TOKEN my_password AWS_ACCESS_KEY_ID DB_PASS DB_PWD PGPASSWORD SSHPASS \
    WANDB_API_KEY MYAPIKEY GCP_CREDENTIALS GITHUB_PAT S3_CREDS "$(printf 'A%.0s' {1..300})_PASSWORD"; do
    not_k8s "error: --env $name=…: .*--secret NAME" --env "$name=hidden"
    ! grep -q hidden "$work/log" || fail "the value of --env is printed"
done
PATH=$work/slurm/bin:$PATH "$DTRAIN" launch k8s --namespace ml --env AWS_WEB_IDENTITY_TOKEN_FILE=/a --env NCCL_DEBUG=INFO --env NCCL_IB_PKEY=1 \
    --env TOKENIZERS_PARALLELISM=false --env COMPASS=n --env MONKEY_NAME=x --env DATA_PATH=/a \
    --env PATTERN=x --env MLFLOW_TRACKING_AUTH=kubernetes configs/fusion.yaml run.name=y \
    >/dev/null 2>"$work/log" && grep -q apply "$work/slurm/asked" || fail "a job is not submitted: $(cat "$work/log")"

# the codes of which the pod's script is told, and those of the manifests for use by hand
printf '#!/bin/sh\n[ "$1" != kustomize ] || cat "$2/../job/kustomization.yaml"\n' >"$work/slurm/bin/kubectl"
echo 'value: "@FINAL@"' >"$work/own"
mkdir "$work/mine"
touch "$work/mine/kustomization.yaml"
PATH=$work/slurm/bin:$PATH "$DTRAIN" launch k8s --namespace ml --template "$work/own" --overlay "$work/mine" --with "$work/mine" --print \
    configs/fusion.yaml >"$work/out" 2>"$work/log" || fail "exit $?"
[ -e "$work/mine/kustomization.yaml" ] && [ -z "$(find "$work" -maxdepth 1 -name 'dtrain-*')" ] || fail "the job's folder stays, or links took along what they lead to"
sed 's/name: fusion, seed/seed/' configs/fusion.yaml >"$work/unnamed.yaml" # named after the file, which is config.yaml in the pod
"$DTRAIN" launch k8s --namespace ml --print "$work/unnamed.yaml" >"$work/unnamed" 2>"$work/log" || fail "exit $?"
grep -q 'warning: --image is missing' "$work/log" || fail "no warning of the image of the example: $(cat "$work/log")"
grep -qE 'run\.name=\\?"unnamed\\?"' "$work/unnamed" || fail "no name of the run: $(grep config.yaml "$work/unnamed")"
for manifest in k8s/base/mpijob.yaml k8s/trainer/runtime.yaml; do
    grep -qF "{name: DTRAIN_FINAL, $(cat "$work/out")}" $manifest || fail "$manifest has other final codes than $(cat "$work/out")"
done
grep -qF "values: [$(sed 's/.*"\(.*\)"/\1/; s/ /, /g' "$work/out")]" k8s/trainer/runtime.yaml || fail "k8s/trainer/runtime.yaml fails with other codes"

# -- SkyPilot's own parser
sky=${SKY_PYTHON:-${PYTHON:-python3}}
if "$sky" -c 'import sky' 2>/dev/null; then
    py check_sky tests/golden/launch/cloud-*.yaml || fail "SkyPilot does not take a task"
else
    echo "SkyPilot's parser is not asked: no skypilot in $sky"
fi

# -- templates: the user's own; of a build outside the checkout; what is installed
printf 'name: @NAME@\n  gpus @GPUS@\nif @CPUS@\nrun: @WORDS@\n' >"$work/own"
[ "$("$DTRAIN" launch cloud "${buckets[@]}" --cpus 8 --template "$work/own" --print configs/fusion.yaml 2>/dev/null)" = \
    "name: fusion
if 8
run: configs/fusion.yaml data.path=/dtrain/data/biometric.lmdb run.dir=/dtrain/runs" ] || fail "the user's own template"
for one in '{path: a/b.tar, weight: 1}' '[{path: a/b.tar}]' '[a/b.tar]'; do # one set, as it may be written
    [[ $("$DTRAIN" launch cloud "${buckets[@]}" --template "$work/own" --print configs/fusion.yaml "data.path=$one" 2>&1) == *" data.path=/dtrain/data/b.tar "* ]] || fail "data.path=$one of launch cloud"
done
mkdir "$work/outside"
cp -P -r "$DTRAIN" "$BUILD/libdtrain_openmp.so" "$BUILD/launch" "$BUILD/k8s" "$work/outside"
"$work/outside/dtrain" launch cloud "${buckets[@]}" --print configs/fusion.yaml >"$work/out" 2>"$work/log" ||
    fail "a program that was built outside the checkout finds no template"
if [ -e "$BUILD/help/dtrain.1" ] && command -v cmake >/dev/null; then
    cmake --install "$BUILD" --prefix "$work/usr" >/dev/null
    (cd "$work" && cp "$SOURCE/configs/fusion.yaml" . &&
        "$work/usr/bin/dtrain" launch cloud "${buckets[@]}" --print fusion.yaml >"$work/out" 2>"$work/log") ||
        fail "the installed program finds no template"
fi

# -- bad input: one line, exit 2, nothing written
mkdir "$work/here"
wrong() { # expected line, words
    local line=$1 rc=0
    shift
    (cd "$work/here" && ln -sfn "$SOURCE/configs" ../configs && "$DTRAIN" "$@") >"$work/out" 2>"$work/log" || rc=$?
    [ $rc = 2 ] || fail "exit $rc, not 2: $*"
    [ "$(grep -c 'error' "$work/log")" = 1 ] || fail "not one line: $*"
    grep -qF -- "$line" "$work/log" || fail "no line like '$line': $*"
    [ -z "$(ls "$work/here")" ] || fail "$* wrote $(ls "$work/here")"
}
c=../configs/fusion.yaml
wrong "dtrain launch has no 'slrum'; did you mean 'slurm'?" launch slrum $c
wrong "expects a config file" launch local
wrong "train.epochz" launch local $c train.epochz=2
wrong "fusion.yaml" launch local $c model.name=resnet # one image, and the config has two
wrong "9 ranks cannot share the 8 micro-batches" launch local -n 9 $c
# a login node builds no network; ranks and keys are checked
(cd "$work/here" && "$DTRAIN" launch slurm --print $c 'train.groups=[{match: nothing, lr: 2}]') >/dev/null 2>"$work/log" || fail "launch slurm builds the network"
wrong "9 ranks cannot share the 8 micro-batches" launch slurm --nodes 9 $c
wrong "9 ranks cannot share the 8 micro-batches" launch hosts --hosts a:5,b:4 $c
wrong "9 ranks cannot share the 8 micro-batches" launch cloud "${buckets[@]}" -n 9 $c
wrong "--data takes one set" launch cloud "${buckets[@]}" $c 'data.path=[a.tar, b.tar]'
wrong "--data takes one set, without a name" launch cloud "${buckets[@]}" $c 'data.path={path: a.tar, name: night}'
wrong "--stage copies one set, without a name" launch slurm --stage /disk $c 'data.path=[{path: a.tar, name: night}]'
wrong "--stage copies files of one folder" launch slurm --stage /disk $c 'data.path=sets/{a,b}/x.tar'
CUDA_VISIBLE_DEVICES=0,1 wrong "-n 3: this machine has 2 GPUs" launch local -n 3 $c device.kind=cuda
wrong "-n 5: a machine has 4 GPUs" launch cloud "${buckets[@]}" --gpus L4:4 -n 5 $c
wrong "--slots 5: a worker has 4 GPUs" launch k8s --namespace n --gpus 4 --slots 5 $c
wrong "--ntasks-per-node 2: a node has 1 GPU," launch slurm --gpus-per-node 1 --ntasks-per-node 2 $c
wrong "give --hosts a:8,b:8 or --hostfile FILE" launch hosts $c
wrong "'b:' is no host with its ranks" launch hosts --hosts a,b: $c
wrong "none: cannot open: No such file" launch hosts --hostfile none $c
wrong "host no.such.host.invalid does not respond" launch hosts --hosts no.such.host.invalid:1 $c
wrong "host anywhere does not respond: not today" launch hosts --ssh 'echo not today' --hosts anywhere $c
wrong "host anywhere does not respond: no-such-ssh: No such file" launch hosts --ssh 'no-such-ssh -v' --hosts anywhere $c
# hosts are asked 32 at a time: each notes how many are asked besides
mkdir "$work/asked"
cat >"$work/slow_agent" <<END
#!/bin/sh
: >"$work/asked/\$1"
for i in 1 2 3 4 5; do
    ls "$work/asked" | wc -l >>"$work/at_once"
    sleep 0.1
done
rm "$work/asked/\$1"
echo not today
END
chmod +x "$work/slow_agent"
wrong "does not respond: not today" launch hosts --ssh "$work/slow_agent" --hosts "$(seq -s, -f 'h%g' 40)" $c train.global_batch=64 train.micro_batch=1
[ "$(sort -g "$work/at_once" | tail -n 1)" -le 32 ] || fail "$(sort -g "$work/at_once" | tail -n 1) hosts were asked at once"
[ "$(wc -l <"$work/at_once")" = 200 ] || fail "not all of 40 hosts were asked"
# a name is a word of ssh's and mpirun's, and nothing else
for name in 'x;touch${IFS}here' '`touch`' '$(touch)' 'x|touch' "x'y" 'x&' '-oProxyCommand=touch' '.x' 'x y' 'x>y' '[x' '@x'; do
    echo "$name" >"$work/list"
    wrong "list:1: '" launch hosts --hostfile "$work/list" $c
    wrong "--hosts: '" launch hosts --hosts "$name:1" $c
done
# what a host is asked comes there as it is: folder, program and config of any name
odd="$work/an 'odd' \"one\" \$HOME \`touch x\` \$(touch x)
-x"
mkdir "$odd"
cp "$SOURCE/configs/fusion.yaml" "$odd/a b.yaml"
printf '#!/bin/sh\n[ "$1" = far ] && [ $# = 2 ] && cd / && exec sh -c "$2"\n' >"$work/agent"
printf '#!/bin/sh\necho dtrain 0.0.1 "$(pwd)"\n' >"$odd/program"
chmod +x "$work/agent" "$odd/program"
rc=0
(cd "$odd" && "$DTRAIN" launch hosts --ssh "$work/agent" --hosts far:1 --program "$odd/program" "a b.yaml") 2>"$work/log" || rc=$?
[ $rc = 2 ] && grep -qF 'host far has dtrain 0.0.1 ' "$work/log" || fail "exit $rc of a host that is asked in an odd folder"
[ ! -e "$odd/x" ] && [ ! -e "$work/here/x" ] || fail "a shell has read a name"
wrong "'ibm' is not one of aws, gcp, azure" launch cloud "${buckets[@]}" --cloud ibm $c
wrong "--runs is missing" launch cloud --data s3://a $c
wrong "'A100:x' is not as in A100:8" launch cloud "${buckets[@]}" --gpus A100:x $c
wrong "'a b' is no name of an image" launch cloud "${buckets[@]}" --image 'a b' $c
wrong "--cpus: '8 cores' is not as in 16+" launch cloud "${buckets[@]}" --cpus '8 cores' $c
wrong "--data is not UTF-8" launch cloud --data $'\xff' --runs s3://a $c
wrong "run.name: a line break" launch slurm $c 'run.name="a\nb"'
wrong "--queue: 'a b' cannot be in a line of #PBS" launch pbs --queue 'a b' $c
wrong "--mpiprocs 2: a node has 1 GPU," launch pbs --ngpus 1 --mpiprocs 2 $c
wrong "--qos: a line break" launch slurm --qos $'a\nb' $c
wrong "give one of them" launch slurm --container a.sif --container-image a $c
wrong "--container-mounts is for --container-image" launch slurm --container-mounts a:b $c
wrong "none: cannot open" launch slurm --setup none $c
wrong "must lie below this folder" launch cloud "${buckets[@]}" "$SOURCE/configs/fusion.yaml"
printf 'a\nb @NOTHING@\n' >"$work/own"
wrong "own:2: nothing fills @NOTHING@" launch cloud "${buckets[@]}" --template "$work/own" $c
OMPI_COMM_WORLD_SIZE=1 wrong "starts the ranks itself: without mpirun" launch local $c # mpirun does not nest
SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 wrong "a sweep starts its ranks itself" sweep $c run.seed=0,1

# -- check --cost: 5 steps of 16 samples in the run, 3 evaluations of 6 and a test of 6; a table of one's own
wrong "--rate is for --cost" check $c --rate 4
wrong "without the data set the number of samples is not known" check $c --cost --rate 4
small_data "$work"
config=$(small_config "$work")
rc=0
PATH=$work "$DTRAIN" launch local -n 2 --restarts 1 "$config" 2>"$work/log" || rc=$?
[ $rc = 2 ] && grep -q 'error: mpirun is not on this machine: .*openmpi' "$work/log" || fail "exit $rc without an MPI: $(cat "$work/log")"
wrong "'x' is neither a rate in samples/s nor a run with steps" check "$config" --cost --rate x
wrong "'A100' is not as in A100:8=7000" check "$config" --cost --rate cpu=1,A100
wrong "'A100:x' is not as in A100:8=7000" check "$config" --cost --rate A100:x=1
cost=("$DTRAIN" check "$config" --cost train.global_batch=16 train.epochs=3 train.max_steps=9 "eval.every=3 steps")
! "${cost[@]}" >/dev/null 2>"$work/log" || fail "a cost without a rate"
grep -q "has no step yet" "$work/log" || fail "no word about the rate"
printf '# Source: me\nmachine,region,vcpus,gpus,usd,spot_usd,samples_per_s\nslow,here,2,,3600,,\nfast,there,8,L4:1,7200,36,80\n' >"$work/own.csv"
"${cost[@]}" --rate 10 --machines 2 --prices "$work/own.csv" >"$work/out" 2>"$work/log" || fail "exit $?"
# 144 trained + 30 evaluated / 3 (three times 6, and the test part twice) = 154 samples: 15.4 s at 10 a second on two machines;
# 0.9625 s at 2 x 80
grep -q "144 samples to train on, 30 to evaluate; at 10 samples/s: 0.00 hours on 2 machines" "$work/out" || fail "$(tail -5 "$work/out")"
grep -qE '^slow +here +2 +- +0.00 h +30.80\$ +-$' "$work/out" || fail "$(tail -3 "$work/out")"
grep -qE '^fast +there +8 +L4:1 +0.00 h +3.85\$ +0.02\$$' "$work/out" || fail "$(tail -3 "$work/out")"
grep -q "^prices: me$" "$work/out" || fail "no source"
mkdir -p "$work/runs/small"
for rate in 2 400 8; do echo "{\"kind\": \"step\", \"samples_per_s\": $rate}"; done >"$work/runs/small/metrics.jsonl"
"${cost[@]}" >"$work/out" 2>"$work/log" || fail "exit $?"
grep -q "at 8 samples/s (measured: median of 3 steps)" "$work/out" || fail "$(tail -9 "$work/out")"
grep -q "^aws p4d.24xlarge .*A100:8" "$work/out" || fail "not the table of launch/cloud"
! grep -E '^aws p4d.* h ' "$work/out" || fail "the rate of a CPU for a machine with GPUs"
# rates by device, given or measured, scaled, and the cheapest first: 8 a second on 2 vCPUs, 40 on 4 GPUs; stores
printf 'machine,region,vcpus,gpus,usd,spot_usd,samples_per_s\nbig,x,8,,7200,,\nb8,x,96,B:8,3600,360,\nc1,x,9,C:1,1,,\nsmall,x,2,,36,,\nstore,region,usd_per_gb_month,usd_per_gb_out\nhere,x,1000,2000\n' >"$work/own.csv"
"${cost[@]}" --prices "$work/own.csv" --rate "cpu:2=$work/runs/small,B:4=40" >"$work/out" 2>"$work/log" || fail "exit $?"
# 154 samples: 4.81 s on 8 vCPUs, 19.25 s on 2, 1.925 s on 8 GPUs; C is not known
[ "$(sed -n '/^machine/,/^-/p' "$work/out" | tr -s ' ')" = "machine region vcpus gpus time on demand spot
small x 2 - 0.01 h 0.19\$ -
b8 x 96 B:8 0.00 h 1.93\$ 0.19\$
big x 8 - 0.00 h 9.62\$ -
c1 x 9 C:1 - - -
-: no rate is known for that device: --rate DEVICE=SAMPLES/S,…" ] || fail "$(cat "$work/out")"
bytes=$(stat -c %s "$work/small.lmdb/data.mdb")
grep -qE "^here +x +$(awk "BEGIN {printf \"%.2f\", $bytes / 1e6}")\\$ +$(awk "BEGIN {printf \"%.2f\", $bytes / 5e5}")\\$" "$work/out" || fail "no store: $(cat "$work/out")"
printf '# Source: me\nmachine,region,vcpus,gpus,usd,spot_usd,samples_per_s\nslow,here,2,,3600,,\nfast,there,8,L4:1,7200,36,80\n' >"$work/own.csv"
for bad in 's/7200/x/' 's/,80$/,80,1/' 's/^machine/Machine/'; do
    sed "$bad" "$work/own.csv" >"$work/bad.csv"
    ! "${cost[@]}" --prices "$work/bad.csv" >/dev/null 2>"$work/log" || fail "a bad table: $bad"
    grep -q "bad.csv:[24]: " "$work/log" || fail "no line of the bad table: $bad"
done
echo passed
