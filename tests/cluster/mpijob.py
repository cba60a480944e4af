"""Plays Kubernetes and the MPI operator for one MPIJob: mpijob.py MANIFESTS LAYER BASE WORK

A pod is a set of namespaces on a copy-on-write view of LAYER over BASE, with the manifest's user, capabilities, read-only root,
volumes and command, and what the operator adds: the ssh secret, /etc/mpi/hostfile, Open MPI's environment. A launcher
that fails is replaced as the Job's backoffLimit says. Claims are the folders WORK/claims/NAME. An empty file
WORK/kill-POD kills a pod as a lost node does; WORK/delete-POD runs its preStop hook and then sends TERM, as a drain does;
both are replaced by a new pod. WORK/evict-POD ends a worker as an eviction does: its pod stays, failed, and no other takes
its place until WORK/delete-POD. Ends with the launcher's code. To be run as root under
`unshare --net --mount --pid --fork --kill-child`, so that nothing of it can stay.
"""
import json
import os
import subprocess
import sys
import time

import yaml

OPENSHIFT = 1000690000


def sh(*words, **more):
    return subprocess.run(words, check=True, **more)


def log(text):
    print("mpijob: " + text, flush=True)


class Pod:
    def __init__(self, cluster, name, role, template, number):
        self.cluster, self.name, self.role, self.number = cluster, name, role, number
        self.spec = template["spec"]
        self.container = self.spec["containers"][0]
        self.process = None
        self.dir = f"{cluster.work}/pods/{name}"

    def start(self):
        """The init of the pod (enter) waits on its stdin until its network is there."""
        c = self.cluster
        sh("rm", "-rf", self.dir)
        for part in ("upper", "work", "root"):
            os.makedirs(f"{self.dir}/{part}")
        with open(f"{self.dir}/pod.json", "w") as f:
            json.dump({"name": self.name, "role": self.role, "spec": self.spec, "lower": c.lower, "dir": self.dir,
                       "work": c.work, "ssh": c.job["spec"]["sshAuthMountPath"], "number": self.number}, f)
        self.process = subprocess.Popen(
            ["unshare", "--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child", sys.executable, __file__,
             "enter", f"{self.dir}/pod.json"], stdin=subprocess.PIPE)
        for link in (f"h{self.number}", f"p{self.number}"):
            subprocess.run(["ip", "link", "del", link], stderr=subprocess.DEVNULL)
        sh("ip", "link", "add", f"h{self.number}", "type", "veth", "peer", "name", f"p{self.number}")
        sh("ip", "link", "set", f"h{self.number}", "master", "pods", "up")
        while self.init() == 0:
            time.sleep(0.02)
        sh("ip", "link", "set", f"p{self.number}", "netns", str(self.init()))
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def init(self):
        """The pod's process 1 as seen here: the child of unshare."""
        try:
            with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as f:
                return int((f.read().split() or [0])[0])
        except FileNotFoundError:
            return 0

    def hook(self):
        hook = self.container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command")
        if hook:
            log(f"{self.name}: preStop {' '.join(hook)}")
            subprocess.run(["nsenter", "-t", str(self.init()), "--net", "--uts", "--ipc", "--mount", "--pid",
                            "chroot", f"--userspec={user(self.spec)}", f"{self.dir}/root", *hook],
                           timeout=self.spec["terminationGracePeriodSeconds"])

    def end(self, graceful):
        init = self.init() if self.process.poll() is None else 0
        if graceful and init:
            self.hook()
            deadline = time.time() + self.spec["terminationGracePeriodSeconds"]
            if self.init():
                os.kill(init, 15)
            while self.process.poll() is None and time.time() < deadline:
                time.sleep(0.1)
        if self.process.poll() is None:
            os.kill(init, 9)
        self.process.wait()


def user(spec):
    """The manifest's, else one as OpenShift chooses."""
    c = spec["securityContext"]
    assert c["runAsNonRoot"] and c.get("runAsUser") != 0
    return f"{c.get('runAsUser', OPENSHIFT)}:{c.get('runAsGroup', 0)}"


class Cluster:
    def __init__(self, manifests, layer, base, work):
        with open(manifests) as f:
            things = [t for t in yaml.safe_load_all(f) if t]
        self.job = next(t for t in things if t["kind"] == "MPIJob")
        self.layer, self.work = layer, work
        self.lower = f"{work}/pods/layer:{base}"
        self.name = self.job["metadata"]["name"]
        self.space = self.job["metadata"].get("namespace", "default")
        self.config = {t["metadata"]["name"]: t["data"] for t in things if t["kind"] == "ConfigMap"}
        assert not [t for t in things if t["kind"] == "PersistentVolumeClaim"], "a job must not touch the claims"
        replicas = self.job["spec"]["mpiReplicaSpecs"]
        self.workers = [Pod(self, f"{self.name}-worker-{i}", "worker", replicas["Worker"]["template"], i + 2)
                        for i in range(replicas["Worker"]["replicas"])]
        self.launcher = Pod(self, f"{self.name}-launcher", "launcher", replicas["Launcher"]["template"], 1)
        self.claims = [v["persistentVolumeClaim"]["claimName"] for v in self.launcher.spec["volumes"]
                       if "persistentVolumeClaim" in v]
        self.evicted = set()

    def make_files(self):
        """Objects as folders: config maps, claims, and those that the operator makes."""
        for name, data in self.config.items():
            os.makedirs(f"{self.work}/config/{name}", exist_ok=True)
            for file, text in data.items():
                with open(f"{self.work}/config/{name}/{file}", "w") as f:
                    f.write(text)
        for name in self.claims:
            os.makedirs(f"{self.work}/claims/{name}", exist_ok=True)
            os.chown(f"{self.work}/claims/{name}", 0, self.launcher.spec["securityContext"].get("fsGroup", OPENSHIFT))
            os.chmod(f"{self.work}/claims/{name}", 0o2775)
        os.makedirs(f"{self.work}/ssh")
        key = f"{self.work}/ssh/id_rsa"
        sh("ssh-keygen", "-q", "-t", "ecdsa", "-b", "521", "-N", "", "-f", key)
        sh("cp", f"{key}.pub", f"{self.work}/ssh/authorized_keys")
        os.chmod(key, 0o644)  # as the operator mounts it; ssh minds only a file of the user's own
        os.makedirs(f"{self.work}/mpi")
        assert f"{self.name}-config" not in self.config, "the operator's own ConfigMap has this name"
        slots = self.job["spec"]["slotsPerWorker"]
        with open(f"{self.work}/mpi/hostfile", "w") as f:
            f.writelines(f"{self.full(w)} slots={slots}\n" for w in self.workers)
        with open(f"{self.work}/hosts", "w") as f:
            f.write("127.0.0.1 localhost\n")
            for p in self.workers + [self.launcher]:
                f.write(f"10.99.0.{p.number} {self.full(p)} {p.name}\n")

    def full(self, pod):
        return f"{pod.name}.{self.name}.{self.space}.svc"

    def wait_ready(self):
        """launcherCreationPolicy: WaitForWorkersReady, with the readinessProbe."""
        import socket
        for w in self.workers:
            port = next(p["containerPort"] for p in w.container["ports"] if p["name"] == "ssh")
            while True:
                try:
                    socket.create_connection((f"10.99.0.{w.number}", port), 1).close()
                    break
                except OSError:
                    assert w.process.poll() is None, f"{w.name} ended with {w.process.poll()}"
                    time.sleep(0.1)

    def asked(self, what, pod):
        path = f"{self.work}/{what}-{pod.name}"
        if not os.path.exists(path):
            return False
        os.remove(path)
        log(f"{what} {pod.name}")
        return True

    def tend_workers(self):
        for w in self.workers:
            lost = self.asked("kill", w)
            if self.asked("evict", w):
                w.end(graceful=False)
                self.evicted.add(w)
            if lost or self.asked("delete", w):
                w.end(graceful=not lost)
                self.evicted.discard(w)
            if w.process.poll() is not None and w not in self.evicted:
                log(f"{w.name} starts again")
                w.start()

    def run(self):
        sh("ip", "link", "set", "lo", "up")
        sh("ip", "link", "add", "pods", "type", "bridge")
        sh("ip", "addr", "add", "10.99.0.254/24", "dev", "pods")
        sh("ip", "link", "set", "pods", "up")
        self.make_files()
        os.makedirs(f"{self.work}/pods")
        sh("mount", "-t", "tmpfs", "tmpfs", f"{self.work}/pods")  # BASE may be /, and must hold nothing of the above
        sh("cp", "-a", self.layer, f"{self.work}/pods/layer")
        for w in self.workers:
            w.start()
        self.wait_ready()
        failures = 0
        while True:
            log("the launcher starts")
            self.launcher.start()
            deleted = False
            while self.launcher.process.poll() is None:
                self.tend_workers()
                if self.asked("delete", self.launcher):
                    self.launcher.end(graceful=True)
                    deleted = True
                time.sleep(0.1)
            code = self.launcher.process.returncode
            log(f"the launcher ended with {code}")
            failures += 1  # podReplacementPolicy: Failed: a deleted pod counts, too, when it has failed
            if (code == 0 and not deleted) or failures > self.job["spec"]["runPolicy"]["backoffLimit"]:
                break
            for _ in range(10):  # the Job's back-off, shorter
                self.tend_workers()
                time.sleep(0.1)
        for w in self.workers:
            w.end(graceful=False)
        return code


def mount_volumes(pod, root):
    """What the pod's manifest mounts, and what kubelet and operator add; the root read-only last."""
    volumes = {v["name"]: v for v in pod["spec"]["volumes"]}
    container, work = pod["spec"]["containers"][0], pod["work"]
    binds = [(f"{work}/ssh", pod["ssh"], True)]
    if pod["role"] == "launcher":
        binds.append((f"{work}/mpi", "/etc/mpi", True))
    for m in container["volumeMounts"]:
        v = volumes[m["name"]]
        if "configMap" in v:
            binds.append((f"{work}/config/{v['configMap']['name']}", m["mountPath"], True))
        elif "persistentVolumeClaim" in v:
            binds.append((f"{work}/claims/{v['persistentVolumeClaim']['claimName']}", m["mountPath"],
                          m.get("readOnly", False)))
        else:
            assert "emptyDir" in v, v
            binds.append((None, m["mountPath"], False))
    sh("mount", "-t", "overlay", "overlay", "-o",
       f"lowerdir={pod['lower']},upperdir={pod['dir']}/upper,workdir={pod['dir']}/work", root)
    for path in ["/proc", "/dev", "/sys"] + [b[1] for b in binds]:
        os.makedirs(root + path, exist_ok=True)
    sh("cp", f"{work}/hosts", root + "/etc/hosts")
    with open(root + "/etc/passwd", "r+") as f:
        if "runAsUser" not in pod["spec"]["securityContext"]:  # CRI-O's entry, with which sshd starts no program
            f.seek(0, os.SEEK_END)
            f.write(f"{OPENSHIFT}:x:{OPENSHIFT}:0:{OPENSHIFT} user:/data:/sbin/nologin\n")
    if container["securityContext"]["readOnlyRootFilesystem"]:
        sh("mount", "-o", "remount,ro", root)
    sh("mount", "-t", "proc", "proc", root + "/proc")
    sh("mount", "-t", "sysfs", "-o", "ro", "sysfs", root + "/sys")
    sh("mount", "--rbind", "/dev", root + "/dev")
    for source, path, read_only in binds:
        if source is None:
            sh("mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", root + path)
        else:
            sh("mount", "--bind", source, root + path)
            if read_only:
                sh("mount", "-o", "remount,bind,ro", root + path)


def enter(path):
    """Process 1 of a pod, in its namespaces: becomes the container's command."""
    with open(path) as f:
        pod = json.load(f)
    sys.stdin.readline()  # the network is there
    sh("hostname", pod["name"])
    sh("ip", "link", "set", f"p{pod['number']}", "name", "eth0")
    sh("ip", "addr", "add", f"10.99.0.{pod['number']}/24", "dev", "eth0")
    sh("ip", "link", "set", "eth0", "up")
    sh("ip", "link", "set", "lo", "up")
    root = pod["dir"] + "/root"
    mount_volumes(pod, root)
    container = pod["spec"]["containers"][0]
    uid, gid = user(pod["spec"]).split(":")
    security = container["securityContext"]
    assert security["capabilities"]["drop"] == ["ALL"] and not security["allowPrivilegeEscalation"]
    env = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
           "HOME": "/opt/mpiuser" if uid == "1000" else "/", "HOSTNAME": pod["name"], "K_MPI_JOB_ROLE": pod["role"]}
    if pod["role"] == "launcher":
        env.update({"OMPI_MCA_orte_keep_fqdn_hostnames": "true", "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
                    "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10"})
    env.update({e["name"]: e["value"] for e in container.get("env", [])})
    os.chroot(root)
    os.chdir(container["workingDir"])
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    group = pod["spec"]["securityContext"].get("fsGroup", OPENSHIFT)
    command = ["setpriv", f"--reuid={uid}", f"--regid={gid}", f"--groups={group}", "--no-new-privs",
               "--bounding-set=-all", "--inh-caps=-all", *container["command"], *container.get("args", [])]
    os.execvpe(command[0], command, env)


if sys.argv[1] == "enter":
    enter(sys.argv[2])
sys.exit(Cluster(*sys.argv[1:5]).run())
