"""Functions of test_apiserver.sh: the pods of a job, and what an API server made of objects."""
import json

import yaml


def missing(sent, got, at=""):
    """What was sent and is not in what the server has."""
    if isinstance(sent, dict) and isinstance(got, dict):
        for k, v in sent.items():
            yield from missing(v, got[k], f"{at}/{k}") if k in got else [f"{at}/{k}"]
    elif isinstance(sent, list) and isinstance(got, list) and len(sent) == len(got):
        for i, v in enumerate(sent):
            yield from missing(v, got[i], f"{at}/{i}")
    elif sent != got:
        yield f"{at}: {sent} is {got}"


def items(path):
    with open(path) as f:
        return [t for thing in yaml.safe_load_all(f) for t in thing.get("items", [thing])]


def check_kept(manifests, got):
    with open(manifests) as f:
        sent = {(t["kind"], t["metadata"]["name"]): t for t in yaml.safe_load_all(f) if t}
    kept = {(t["kind"], t["metadata"]["name"]): t for t in items(got)}
    assert sent.keys() == kept.keys(), kept.keys()
    lost = [f"{name}{m}" for name in sent for m in missing(sent[name], kept[name])]
    assert not lost, lost


def pods_of(path, weaken=None):
    job = next(t for t in items(path) if t["kind"] == "MPIJob")
    for role, replica in job["spec"]["mpiReplicaSpecs"].items():
        spec = dict(replica["template"]["spec"], restartPolicy=replica["restartPolicy"])
        for security in [spec["securityContext"]] + [c["securityContext"] for c in spec["containers"]]:
            security.pop(weaken, None)
        yield {"apiVersion": "v1", "kind": "Pod", "spec": spec,
               "metadata": dict(replica["template"]["metadata"], name=role.lower(), namespace="ml")}


def pods(path, weaken=None):
    print(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(pods_of(path, weaken))}))


def security(pod):
    return [pod["spec"]["securityContext"]] + [c["securityContext"] for c in pod["spec"]["containers"]]


def check_unchanged(path, got, weaken=None):
    """The restricted profile fills nothing in: pods that were admitted with a policy's help would be refused by it."""
    for sent, admitted in zip(pods_of(path, weaken), items(got), strict=True):
        assert security(sent) == security(admitted), (security(sent), security(admitted))


def check_user(got, user):
    user = int(user)
    for pod in items(got):
        c = security(pod)
        assert user in (c[0].get("runAsUser"), c[1].get("runAsUser")) and c[0]["fsGroup"] == user, c
