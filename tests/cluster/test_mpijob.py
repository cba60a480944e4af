"""Functions of test_mpijob.sh: what it trains on, and checks of what it wrote."""
import yaml


def check_job(work):
    def job(name):
        things = list(yaml.safe_load_all(open(f"{work}/job-{name}.yaml")))
        assert not [t["kind"] for t in things if t["kind"] in ("PersistentVolumeClaim", "NetworkPolicy")], "the namespace's own"
        return next(t for t in things if t["kind"] == "MPIJob")["spec"]
    def pod(name, role="Worker"):
        return job(name)["mpiReplicaSpecs"][role]["template"]["spec"]
    def resources(name):
        r = pod(name)["containers"][0]["resources"]
        assert {k: v for k, v in r["limits"].items() if k in r["requests"]} == r["requests"], r
        return str(r["requests"]["cpu"]), r["requests"]["memory"], r["limits"].get("nvidia.com/gpu")
    assert resources("gpu") == ("32", "64Gi", 4), resources("gpu")  # the overlay's
    assert resources("given") == ("12", "20Gi", 4), resources("given")
    assert pod("with")["containers"][0]["resources"]["limits"]["rdma/rdma_shared_device_a"] == 1
    assert pod("with")["priorityClassName"] and pod("with")["tolerations"] and pod("with")["imagePullSecrets"]
    arch = {"kubernetes.io/arch": "arm64"}
    assert pod("with", "Launcher")["nodeSelector"] == arch and pod("with")["nodeSelector"].items() > arch.items()
    assert pod("with")["containers"][0]["image"] == 'a: "b'
    for role in ("Launcher", "Worker"):
        security = pod("with", role)["securityContext"]
        assert security["runAsNonRoot"] and not {"runAsUser", "runAsGroup", "fsGroup"} & set(security), security
        assert pod("with", role)["containers"][0]["command"] == ["dtrain-user"] + pod("gpu", role)["containers"][0]["command"]
        assert all(v["emptyDir"]["sizeLimit"] for v in pod("cpu", role)["volumes"] if "emptyDir" in v)
    args = pod("cpu", "Launcher")["containers"][0]["args"]
    assert args[:5] == ["-x", 'MINE=a b;"c" $$(HOME) x$$$$y ^$$$$(HOME) $$z', "-x", "NCCL_DEBUG=WARN", "dtrain"], args
    assert pod("cpu", "Launcher")["containers"][0]["envFrom"] == [
        {"prefix": "DTRAIN_SECRET_", "secretRef": {"name": name}} for name in ("aws", 'odd: "name')]
    assert "envFrom" not in pod("gpu", "Launcher")["containers"][0]
    names = [e["name"] for e in pod("cpu", "Launcher")["containers"][0]["env"]]
    policy = next(t for t in yaml.safe_load_all(open(f"{work}/namespace.yaml")) if t["kind"] == "NetworkPolicy")["spec"]
    dns = next(r for r in policy["egress"] if "ports" in r)
    assert {(p["port"], p["protocol"]) for p in dns["ports"]} == {(n, p) for n in (53, 5353) for p in ("TCP", "UDP")}
    assert {"169.254.20.10/32", "169.254.169.254/32"} <= {t["ipBlock"]["cidr"] for t in dns["to"] if "ipBlock" in t}
    assert not {"OMPI_MCA_btl", "OMPI_MCA_pml"} & set(names), "a transport is forced"
