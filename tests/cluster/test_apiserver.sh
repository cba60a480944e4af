#!/usr/bin/env bash
# The manifests at a real API server (etcd and kube-apiserver, no kubelet and no controller): claims and NetworkPolicy, the
# CRD of MPIJob, and each kind of job is created by dtrain launch k8s, kept whole, refused a second time while it is there,
# and created again once it is deleted. Its pods, dry-run by the server, satisfy the restricted profile as they are; with
# --with openshift, a policy as OpenShift's, which chooses the user. KUBEBUILDER_ASSETS is the folder of both programs
# (tests/run.sh all makes it), or they are in PATH.
. "${SOURCE:?}/tests/small_run.sh" || exit
PATH=${KUBEBUILDER_ASSETS:+$KUBEBUILDER_ASSETS:}$PATH
for program in etcd kube-apiserver kubectl openssl curl; do
    command -v $program >/dev/null || { echo "skipped: no $program"; exit 77; }
done
crd=$SOURCE/../shared/reference/mpijob-crd.yaml
[ -e "$crd" ] || { echo "skipped: no CRD of MPIJob ($crd)"; exit 77; }
"$python" -c 'import yaml' 2>/dev/null || { echo "skipped: no python3-yaml"; exit 77; }
[ "$(id -u)" = 0 ] && unshare --net true 2>/dev/null || { echo "skipped: a network of its own needs root"; exit 77; }
[ "${IN_NAMESPACE:-}" ] || IN_NAMESPACE=1 exec unshare --net --pid --fork --kill-child --mount-proc bash "$0"
ip link set lo up

# ---- the server
export HOME=$work KUBECONFIG=$work/kubeconfig
version=$(kube-apiserver --version | sed 's/.* v1\.\([0-9]*\)\..*/\1/')
# the restricted profile: a label of the namespace, and before 1.25 a policy that a plugin enforces
policy=$([ "$version" -ge 25 ] && echo label || echo plugin)
plugins=()
[ $policy = label ] || plugins=(--enable-admission-plugins=PodSecurityPolicy)
openssl genrsa -out "$work/accounts.key" 2048 2>/dev/null
echo 'token,admin,1,system:masters' >"$work/tokens"
cat >"$KUBECONFIG" <<YAML
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:6443", insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: token}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
YAML
etcd --data-dir "$work/etcd" --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
    --listen-peer-urls http://127.0.0.1:2380 >"$work/etcd.log" 2>&1 &
# nothing gives pods a service account here
kube-apiserver --etcd-servers=http://127.0.0.1:2379 --bind-address=127.0.0.1 --advertise-address=127.0.0.1 --secure-port=6443 \
    --cert-dir="$work/certificates" --endpoint-reconciler-type=none --service-cluster-ip-range=10.0.0.0/24 \
    --token-auth-file="$work/tokens" --service-account-issuer=https://localhost --service-account-key-file="$work/accounts.key" \
    --service-account-signing-key-file="$work/accounts.key" --disable-admission-plugins=ServiceAccount "${plugins[@]}" \
    >"$work/apiserver.log" 2>&1 &
pid=$!
is_ready() { kubectl get --raw /readyz >/dev/null 2>&1; }
wait_until is_ready

k() { kubectl "$@" >"$work/out" 2>"$work/log" || fail "exit $? of: kubectl $*"; }
k create namespace ml
if [ $policy = label ]; then
    k label namespace ml pod-security.kubernetes.io/enforce=restricted
fi
k apply --server-side -f "$crd"
is_served() { kubectl get mpijobs >/dev/null 2>&1; }
wait_until is_served
k -n ml apply -k "$SOURCE/k8s/namespace"
k create priorityclass training --value=1000 # of components/priority

# Before 1.25: what a pod must satisfy. What the plugin fills in is not the manifest's: the test compares.
allow() { # rule of the user
    [ $policy = plugin ] || return 0
    kubectl delete psp --all >/dev/null 2>&1
    k create -f - <<YAML
apiVersion: policy/v1beta1
kind: PodSecurityPolicy
metadata: {name: restricted, annotations: {seccomp.security.alpha.kubernetes.io/allowedProfileNames: runtime/default}}
spec:
  privileged: false
  allowPrivilegeEscalation: false
  requiredDropCapabilities: [ALL]
  volumes: [configMap, emptyDir, persistentVolumeClaim, secret]
  runAsUser: $1
  fsGroup: $2
  supplementalGroups: {rule: RunAsAny}
  seLinux: {rule: RunAsAny}
YAML
}
range='{rule: MustRunAs, ranges: [{min: 1000690000, max: 1000699999}]}'

# ---- jobs
small_data "$work"
config=$(small_config "$work")
sed -i 's/global_batch: 8/global_batch: 16/' "$config"
cd "$work"
submit() { "$DTRAIN" launch k8s --namespace ml --image test "$@" >"$work/out" 2>"$work/log"; }
pods() { py pods "$work/job.yaml" "$@" | kubectl -n ml create --dry-run=server -f - -o yaml >"$work/pods.yaml" 2>"$work/log"; }
job() { # name, options of launch k8s …
    local name=$1 rc=0
    shift
    "$DTRAIN" launch k8s --print --namespace ml --image test "$@" run.name="$name" >"$work/$name.yaml" 2>"$work/log" || fail "$name: not printed"
    submit "$@" run.name="$name" || fail "$name: exit $?"
    grep -q "mpijob.kubeflow.org/$name created" "$work/out" || fail "$name: $(cat "$work/out")"
    kubectl -n ml get -f "$work/$name.yaml" -o yaml >"$work/job.yaml" 2>"$work/log" || fail "$name: not all is there"
    py check_kept "$work/$name.yaml" "$work/job.yaml" || fail "$name: the server keeps something else"
    submit "$@" run.name="$name" || rc=$?
    [ $rc = 2 ] && grep -q "the job $name is in the namespace ml already" "$work/log" || fail "$name, again: exit $rc"
    k -n ml delete mpijob "$name"
    submit "$@" run.name="$name" || fail "$name, when it was deleted: exit $?"
    n=$((n + 1))
}
n=0
allow '{rule: MustRunAsNonRoot}' '{rule: MustRunAs, ranges: [{min: 1, max: 65535}]}'
job plain --workers 2 --env 'MINE=a b;"c" $(HOME)' --secret stores --queue main "$config" "metrics.sinks=[jsonl, prometheus]"
pods || fail "plain: its pods are refused"
py check_unchanged "$work/job.yaml" "$work/pods.yaml" || fail "plain: its pods need what the policy fills in"
job gpus --gpus 4 --workers 2 "$config"
pods || fail "gpus: its pods are refused"
py check_unchanged "$work/job.yaml" "$work/pods.yaml" || fail "gpus: its pods need what the policy fills in"
job kind --overlay kind "$config"
with=()
for component in "$SOURCE"/k8s/components/*/; do with+=(--with "$(basename "$component")"); done
job with --gpus 8 "${with[@]}" "$config"
pods || fail "with all components: its pods are refused"
for key in allowPrivilegeEscalation capabilities seccompProfile; do # the profile is enforced
    ! pods $key || ! py check_unchanged "$work/job.yaml" "$work/pods.yaml" $key 2>/dev/null || fail "pods without $key are admitted"
done
echo "Kubernetes 1.$version: $n kinds of jobs created, kept whole, refused a second time; pods satisfy the restricted profile ($policy)"

[ $policy = plugin ] || exit 0
allow "$range" "$range"
job anyone --with openshift "$config"
pods || fail "openshift: its pods are refused"
py check_user "$work/pods.yaml" 1000690000 || fail "openshift: the user is not the cluster's"
kubectl -n ml get mpijob plain -o yaml >"$work/job.yaml"
! pods || fail "user 1000 is allowed where OpenShift chooses"
grep -q 'runAsUser' "$work/log" || fail "refused for another reason"
echo "a policy as OpenShift's: user 1000 refused, 1000690000 given to pods of --with openshift"
