#!/usr/bin/env bash
# The manifests of k8s/ and of dtrain launch k8s: against the schemas of MPIJob and of Kubernetes; then played for real:
# launcher and workers as containers with sshd, user 1000 and a read-only root, hostfile and keys as the operator makes
# them. A killed, a drained and an evicted worker and a drained launcher, of a user that OpenShift chose: the ranks start
# again, and the run ends with the undisturbed bits.
. "${SOURCE:?}/tests/small_run.sh" || exit
need_mpi
PATH+=:/usr/sbin
for program in kubectl sshd ssh-keygen ip unshare setpriv; do
    command -v $program >/dev/null || { echo "skipped: no $program"; exit 77; }
done
"$python" -c 'import yaml' 2>/dev/null || { echo "skipped: no python3-yaml"; exit 77; }

small_data "$work"
config=$(small_config "$work")
sed -i "s/global_batch: 8/global_batch: 16/; s#$work/small.lmdb#small.lmdb#; s#, dir: $work/runs##" "$config" # below the volumes
# kernels are not timed: pods keep no choices, and two runs could choose otherwise
small=(train.global_batch=8 train.max_steps=40 "checkpoint.every=4 steps" device.time_engines=false)
manifests() { # options of launch k8s …
    "$DTRAIN" launch k8s --print --namespace ml "$@" 2>"$work/log" || fail "exit $? of: dtrain launch k8s $*"
}

# ---- manifests
for folder in namespace namespace-kind trainer; do
    kubectl kustomize "$SOURCE/k8s/$folder" >"$work/$folder.yaml" 2>"$work/log" || fail "k8s/$folder"
done
for overlay in cpu gpu kind; do
    kubectl kustomize "$SOURCE/k8s/overlays/$overlay" >"$work/overlay-$overlay.yaml" 2>"$work/log" || fail "k8s/overlays/$overlay"
done
(cd "$work" && manifests --workers 2 --image test --queue main "$config" "${small[@]}" run.name=Bio_1 \
    --slots 2 --env 'MINE=a b;"c" $(HOME) x$$y ^$$(HOME) $z' --env NCCL_DEBUG=WARN --secret aws --secret 'odd: "name' "metrics.sinks=[jsonl, prometheus]" metrics.listen=127.0.0.1:9500) >"$work/job-cpu.yaml"
(cd "$work" && manifests --workers 1 --gpus 4 --image test "$config" run.name=g) >"$work/job-gpu.yaml"
(cd "$work" && manifests --gpus 4 --cpus 12 --memory 20Gi --image test "$config" run.name=given) >"$work/job-given.yaml"
with=()
for component in "$SOURCE"/k8s/components/*/; do with+=(--with "$(basename "$component")"); done
(cd "$work" && manifests --gpus 8 "${with[@]}" --queue team --image 'a: "b' "$config" run.name=on) >"$work/job-with.yaml"
"$python" "$SOURCE/tests/cluster/check_manifests.py" "$SOURCE/../shared/reference" "$work"/{namespace,overlay,trainer,job}*.yaml \
    >"$work/log" 2>&1 || fail "manifests against their schemas"
cat "$work/log"
grep -q 'name: bio-1$' "$work/job-cpu.yaml" || fail "the job's name"
grep -q 'kueue.x-k8s.io/queue-name: main' "$work/job-cpu.yaml" || fail "no queue"
grep -q 'kueue.x-k8s.io/queue-name: team' "$work/job-with.yaml" && grep -q 'kueue.x-k8s.io/priority-class: training' "$work/job-with.yaml" ||
    fail "the component of Kueue has another queue than --queue"
py check_job "$work" || fail "the workers' resources, or what is passed to the ranks"
# memory is what dtrain check finds, and half a GiB a rank
(cd "$work" && "$DTRAIN" check "$config" device.kind=cpu device.threads=1 2>"$work/log") | awk '
    /^memory of a rank/ {on = 1; next} !/^  / {on = 0} on {sum += $(NF - 1)}
    END {m = 2 * (sum + 512) / 64; m = 64 * (m == int(m) ? m : int(m) + 1); print m "Mi"}' >"$work/want"
[ "$(cat "$work/want")" != 1024Mi ] || fail "dtrain check finds nothing"
grep -q "memory: $(cat "$work/want")" "$work/job-cpu.yaml" || fail "memory is not $(cat "$work/want")"
grep -q 'prometheus.io/scrape: "true"' "$work/job-cpu.yaml" && grep -q 'prometheus.io/port: "9500"' "$work/job-cpu.yaml" &&
    grep -q 'containerPort: 9500' "$work/job-cpu.yaml" && grep -qF -- '- metrics.listen="[::]:9500"' "$work/job-cpu.yaml" && grep -q 'name: bio-1-metrics$' "$work/job-cpu.yaml" &&
    grep -q 'training.kubeflow.org/job-name: bio-1$' "$work/job-cpu.yaml" || fail "Prometheus does not find the job"
grep -q 'prometheus.io/scrape: "false"' "$work/job-gpu.yaml" || fail "Prometheus would look where nobody answers"

refused() { # text, words …
    local text=$1 rc=0
    shift
    "$DTRAIN" launch k8s "$@" >"$work/out" 2>"$work/log" || rc=$?
    [ $rc = 2 ] && [ "$(grep -c . "$work/log")" = 1 ] && grep -q -- "$text" "$work/log" || fail "exit $rc, expected 2 and: $text"
}
cd "$work"
refused 'namespace is missing' "$config"
refused 'at most 8 ranks' --namespace ml --workers 9 "$config"
refused 'cannot be the name of a job' --namespace ml "$config" run.name=9x
refused 'not UTF-8' --namespace ml --image $'a\377' "$config"
refused 'not UTF-8' --namespace ml --env $'A=\377' "$config"
refused 'expected NAME=VALUE' --namespace ml --env 'A B=c' "$config"
refused 'k8s/components/none' --namespace ml --with none "$config"
refused 'error: kubectl: ' --namespace ml --image a "$config" # there is no cluster
ls -d "$work"/dtrain-* 2>/dev/null && fail "a folder is left"

# ---- the job, played
[ "$(id -u)" = 0 ] && unshare --net --mount --pid --fork true 2>/dev/null || { echo "skipped: no namespaces here, or not root"; exit 77; }
layer=$work/layer # what launch/docker adds to a base; the base is this machine
mkdir -p "$layer"/{usr/local/bin,opt/mpiuser,etc/ssh/ssh_config.d}
cp -L "$DTRAIN" "$BUILD/dtrain_mpi.so" "$layer/opt/"
for library in $(ldd "$DTRAIN" "$BUILD/dtrain_mpi.so" | sed -n "s#.*=> \($BUILD[^ ]*\).*#\1#p"); do cp -L "$library" "$layer/opt/"; done
ln -s /opt/dtrain "$layer/usr/local/bin/dtrain"
cp "$SOURCE"/launch/docker/dtrain-{stop,launch,user} "$layer/usr/local/bin/"
cp "$SOURCE/launch/docker/sshd_config" "$layer/opt/mpiuser/.sshd_config"
mkdir -p "$layer/var/lib/extrausers"
ln -s /tmp/passwd "$layer/var/lib/extrausers/passwd"
sed 's/^passwd:.*/passwd: extrausers files/' /etc/nsswitch.conf >"$layer/etc/nsswitch.conf"
(grep -v '^mpiuser:\|^[^:]*:[^:]*:1000:' /etc/passwd; echo 'mpiuser:x:1000:1000::/opt/mpiuser:/bin/bash') >"$layer/etc/passwd"
sed -n '/CONF$/,/^CONF/p' "$SOURCE/launch/docker/setup.sh" | sed '1d;$d' >"$layer/etc/ssh/ssh_config.d/dtrain.conf"
grep -q 2222 "$layer/etc/ssh/ssh_config.d/dtrain.conf" || fail "no configuration of ssh in launch/docker/setup.sh"

play() { # name, word for the pods …: starts the job; its claims are in $work/NAME/claims
    local name=$1
    mkdir -p "$work/$name/claims/dtrain-data"
    cp -r "$work/small.lmdb" "$work/$name/claims/dtrain-data/"
    manifests --workers 2 --image test --env OMP_WAIT_POLICY=passive "${env[@]}" "$config" "${small[@]}" >"$work/$name/manifests.yaml"
    # saved in a moment here: a job that ends need not be waited for twice half a minute
    sed -i '/odls_base_sigkill_timeout/{n;s/"30"/"3"/}' "$work/$name/manifests.yaml"
    shift
    [ $# = 0 ] || sed -i "s/^\( *\)- run.dir=.runs/&\n\1- $*/" "$work/$name/manifests.yaml"
    unshare --net --mount --pid --fork --kill-child --mount-proc python3 "$SOURCE/tests/cluster/mpijob.py" "$work/$name/manifests.yaml" \
        "$layer" / "$work/$name" >"$work/$name/log" 2>&1 &
    pid=$!
}
finish() { # name
    local rc=0
    wait $pid || rc=$?
    [ $rc = 0 ] || { tail -n 40 "$work/$1/log" >&2; fail "$1: exit $rc"; }
}
starts() { grep -c 'the launcher starts\|again in' "$work/$1/log"; }
asleep() { # starts of the disturbed job: both ranks of the last one have stopped themselves
    local p stat
    [ "$(starts disturbed)" = "$1" ] || return 1
    stopped=()
    for p in /proc/[0-9]*; do
        read -r stat 2>/dev/null <"$p/stat" && [[ $stat == *'(dtrain) T'* ]] && grep -qsz "^JOB=$work$" "$p/environ" && stopped+=("${p#/proc/}")
    done
    [ ${#stopped[@]} = 2 ]
}
ask() { # WHAT-POD CONDITION: done to a pod while the ranks stand; then they go on
    touch "$work/disturbed/$1"
    wait_until "$2"
    kill -CONT "${stopped[@]}" 2>/dev/null || true
}
is_lost() { ! kill -0 "${stopped[0]}" 2>/dev/null || ! kill -0 "${stopped[1]}" 2>/dev/null; }
is_told() { is_pending USR1 "${stopped[0]}" || is_pending USR1 "${stopped[1]}"; }
weights() { hash "$work/$1/claims/dtrain-runs/small"; }

env=()
play calm
finish calm
want=$(weights calm)
[ "$(stat -c %u "$work/calm/claims/dtrain-runs/small/log")" = 1000 ] || fail "the run is not of user 1000"
echo "two workers with sshd, user 1000, read-only root: trained"

env=(--env DTRAIN_FAILPOINT=step:6:stop --env "JOB=$work")
as=1000690000
if ldconfig -p | grep libnss_extrausers >/dev/null; then
    env+=(--with openshift)
else
    as=1000
    echo "a user that OpenShift chose: left out, no libnss-extrausers"
fi
play disturbed
wait_until asleep 1
ask kill-small-worker-1 is_lost
wait_until asleep 2
ask delete-small-launcher is_told
wait_until asleep 3
waits() { grep -c 'waiting for small-worker-1' "$work/disturbed/log"; }
waits_again() { [ "$(waits)" -gt "$before" ]; }
before=$(waits || true)
ask evict-small-worker-1 is_lost
wait_until waits_again
touch "$work/disturbed/delete-small-worker-1" # what the line says
wait_until asleep 4
ask delete-small-worker-0 is_told
wait_until asleep 5
kill -CONT "${stopped[@]}"
finish disturbed
[ "$(grep -c 'by SIGUSR1; saved' "$work/disturbed/log")" -ge 2 ] || { cat "$work/disturbed/log" >&2; fail "a deleted pod did not save"; }
grep -q 'resuming at step' "$work/disturbed/log" || fail "nothing was resumed"
[ "$(stat -c %u "$work/disturbed/claims/dtrain-runs/small/log")" = $as ] || fail "the run is not of user $as"
[ "$(weights disturbed)" = "$want" ] || fail "other weights after lost and deleted pods"
echo "user $as: a worker killed, one evicted, launcher and worker deleted: resumed to the same bits"

# a config that pods refuse: the launcher that is made anew does not start the ranks again
env=()
play refused train.no_such_key=1
rc=0
wait $pid || rc=$?
[ $rc = 2 ] || fail "a wrong key: exit $rc"
[ "$(grep -c 'another start would not help' "$work/refused/log")" = 1 ] &&
    [ "$(grep -c 'not started again' "$work/refused/log")" = 3 ] || fail "the ranks started again after exit 2"
