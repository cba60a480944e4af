#!/usr/bin/env bash
# shellcheck for the scripts that users copy, yamllint for manifests; batch scripts are checked as they are submitted.
. "${SOURCE:?}/tests/small_run.sh" || exit

# a lost host is noticed as soon by whatever starts Open MPI's daemons
for file in launch/targets/launch_hosts.c launch/mpi_env.sh k8s/base/mpijob.yaml k8s/trainer/runtime.yaml; do
    for setting in time intvl probes; do
        grep -oE "[_ ]$setting(\", \"|, value: \"|=)[0-9]+" "$SOURCE/$file" | grep -oE '[0-9]+$' | sort -u
    done | paste -sd' '
done | sort | uniq -c >"$work/log"
[[ $(tr -s ' ' <"$work/log") =~ ^\ 4\ [0-9]+\ [0-9]+\ [0-9]+$ ]] || fail "the keepalives of Open MPI's daemons differ"

command -v shellcheck >/dev/null || { echo "skipped: no shellcheck"; exit 77; }
command -v yamllint >/dev/null || { echo "skipped: no yamllint"; exit 77; }

small_data "$work"
config=$(small_config "$work")
cd "$work"
"$DTRAIN" launch slurm --print --nodes 2 --stage /scratch "$config" >one.sh 2>"$work/log" || fail "launch slurm --print"
"$DTRAIN" launch slurm --print --sweep "$config" run.seed=1,2 >many.sh 2>"$work/log" || fail "launch slurm --print --sweep"
"$DTRAIN" launch pbs --print --walltime 1:00:00 "$config" >pbs.sh 2>"$work/log" || fail "launch pbs --print"
shellcheck one.sh many.sh pbs.sh >"$work/log" || fail "shellcheck of launch/slurm/train.sbatch or launch/pbs/train.pbs"
shellcheck "$SOURCE"/launch/docker/setup.sh "$SOURCE"/launch/docker/dtrain-{stop,launch} >"$work/log" || fail "shellcheck of launch/docker"

# images: packages are fetched ahead of the source
awk '/^COPY launch.packages.sh/ {p = NR} /^COPY \. / {s = NR} END {exit !(p && s > p)}' "$SOURCE/launch/docker/Dockerfile" ||
    fail "a change of the source fetches the packages again"

cat >yamllint.yaml <<'YAML'
extends: default
rules: {document-start: disable, line-length: {max: 120}, braces: {max-spaces-inside: 0}, comments: {min-spaces-from-content: 1}}
YAML
find "$SOURCE/k8s" -name '*.yaml' ! -path '*/job/*' -exec yamllint --strict -c yamllint.yaml {} + >"$work/log" || fail "yamllint of k8s"
sed -i 's/line-length: {max: 120}/line-length: disable/' yamllint.yaml # a value must stand in its line
sed 's/@[A-Z]*@/x/g' "$SOURCE/k8s/job/kustomization.yaml" | yamllint --strict -c yamllint.yaml - >"$work/log" || fail "yamllint of k8s/job"
for task in "$SOURCE"/tests/golden/launch/cloud-*.yaml; do
    yamllint -d '{extends: relaxed, rules: {line-length: disable}}' "$task" >"$work/log" || fail "yamllint of $task"
    for part in setup run; do
        sed -n "/^$part: |/,/^[a-z]/s/^  //p" "$task" | shellcheck -s bash - >"$work/log" || fail "shellcheck of $part in $task"
    done
done
kubectl version --client >/dev/null 2>&1 || { echo "passed, without the manifests of dtrain launch k8s: no kubectl"; exit 0; }
"$DTRAIN" launch k8s --print --namespace ml --image x "$config" >job.yaml 2>"$work/log" || fail "launch k8s --print"
yamllint -d '{extends: default, rules: {document-start: disable, line-length: disable, indentation: {indent-sequences: whatever}}}' job.yaml >"$work/log" || fail "yamllint of dtrain launch k8s"
echo passed
