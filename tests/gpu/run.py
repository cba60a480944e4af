#!/usr/bin/env python3
"""What only a machine with a GPU can show, in parts of nine minutes, as such machines are lent:

    tests/gpu/run.py a|b|c [OUT] --bundle dtrain-….tar.gz      (built before: the target gpu_bundle, for sm_90)
    tests/gpu/run.py a --plan [--seconds 300]                  prints what runs, in which order, and what is dropped

  a  ceilings (copy, matmul); op tests, losses and bits in three precisions while PyTorch's networks compile; then
     training steps beside PyTorch, eager and compiled
  b  check --kernels, Nsight Compute, variants of ViT and ResNet-50, learning on real sets, ResNet-50 from one set of
     weights beside PyTorch
  c  two and four ranks on the one GPU with real NCCL (2.30 or newer), lost ranks, compute-sanitizer

Nothing is compiled. Items run in the order of the part. Where the time that is left does not hold all of them, those of
the least worth are left out; if others end early, they run after all. An item that fails ends no other. Goals are shares
of the copy and matmul rates measured on the same machine. OUT (gpu-report) gets at most five files: report.md and report.json
after each item, bench.jsonl, logs.tar.gz, and engines.tar.gz, which the next part takes by --engines.

Exit: 0 all passed, 1 something failed or ran out of time, 2 wrong use, 77 no GPU.
"""
import argparse
import collections
import csv
import functools
import glob
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MARGIN_S = 10  # for the report
Item = collections.namedtuple("Item", "name seconds worth what", defaults=("",))  # worth 0: the last to be dropped
PARTS = {
    "a": [Item("ceilings", 25, 0, "copy and matmul rates by PyTorch; its networks begin to compile"),
          Item("ops", 70, 1, "every op test on the device, against references and finite differences"),
          Item("losses", 50, 2, "fusion in fp32: 20 losses within 1e-3 of the CPU's; in bf16 stated"),
          Item("bits", 110, 3, "the same bits again, stopped, killed and by accumulation, in fp32, bf16 and fp16"),
          Item("speed", 170, 1, "ResNet-50, ViT-B/16 and fusion in bf16, both modes, beside PyTorch eager and compiled"),
          Item("speed_more", 100, 4, "ResNet-50 in fp16, ConvNeXt-T and EfficientNet-B0 the same"),
          Item("speed_graphs", 60, 5, "PyTorch's networks with mode=reduce-overhead")],
    "b": [Item("kernels", 70, 1, "check --kernels of five networks: each kind of kernel beside its floor"),
          Item("ncu", 60, 3, "time and bytes of 80 launches of ResNet-50's step under Nsight Compute"),
          Item("learn_bf16", 110, 0, "three real sets reach the accuracy that the CPU reaches"),
          Item("learn_fp16", 90, 4, "the same in fp16"),
          Item("weights", 50, 2, "ResNet-50 and torchvision's from the same weights: 200 losses"),
          Item("variants", 90, 2, "ViT with gelu tanh, batch 256 and Adafactor; ResNet-50 in fp16, with device.fp16_sums and without"),
          Item("jpeg", 60, 5, "ResNet-50 fed with JPEGs, beside PyTorch")],
    "c": [Item("elastic", 90, 0, "elastic: the same weights on 1, 2 and 4 ranks"),
          Item("shard", 70, 1, "train.shard, also with bf16's masters at their owners: the weights of a run without it"),
          Item("captured", 45, 2, "a captured step: the weights of a plain one"),
          Item("sync_bn", 45, 2, "batch norms over ranks: the losses of one rank"),
          Item("bf16_gradients", 45, 3, "gradients in bf16: the same bits again"),
          Item("lost", 70, 1, "SIGKILL and SIGSTOP of a rank end the job within comm.timeout"),
          Item("memcheck", 80, 4, "compute-sanitizer memcheck over op tests of custom kernels"),
          Item("racecheck", 80, 5, "compute-sanitizer racecheck over the same")],
}


class Skip(Exception):
    """Why an item cannot run here."""


class Failed(Exception):
    pass


# ---- what runs -----------------------------------------------------------------------------------------
def keep(items, left):
    """Those that fit into `left` seconds, taken by their worth, in the order of the part."""
    kept = []
    for item in sorted(items, key=lambda i: i.worth):
        if item.seconds <= left:
            kept.append(item)
            left -= item.seconds
    return [i for i in items if i in kept]


def run_items(items, total, execute, clock=time.monotonic):
    """execute(item, limit): an item may take what those that will run behind it do not need. Yields (item, result);
    None: it was dropped."""
    end, waiting = clock() + total - MARGIN_S, list(items)
    while fits := keep(waiting, end - clock()):
        waiting.remove(fits[0])
        yield fits[0], execute(fits[0], end - clock() - sum(i.seconds for i in fits[1:]))
    yield from ((item, None) for item in waiting)


# ---- one machine -----------------------------------------------------------------------------------------
class Machine:
    def __init__(self, o, work):
        self.o, self.work, self.facts, self.failed = o, work, {}, []
        self.env = {**os.environ, "XDG_CACHE_HOME": os.path.join(work, "home"), "SOURCE": ROOT}
        self.end, self.log, self.ceilings, self.background = 0, None, {}, None
        self.dtrain = os.path.abspath(o.dtrain) if o.dtrain else self.unpack(o.bundle)
        self.folder = os.path.dirname(self.dtrain)
        # CUDA's libraries of the Python packages, so that both sides of a comparison have the same
        found = subprocess.run([o.python, "-c", "import glob, importlib.util as u; s = u.find_spec('nvidia')\n"
                                "for p in (s.submodule_search_locations if s else []): print(*sorted(glob.glob(p + '/*/lib')))"],
                               capture_output=True, text=True)
        paths = ([os.path.dirname(o.nccl)] if o.nccl else []) + found.stdout.split() + [self.env.get("LD_LIBRARY_PATH", "")]
        self.env["LD_LIBRARY_PATH"] = ":".join(filter(None, paths))

    def unpack(self, bundle):
        with tarfile.open(bundle) as tar:
            tar.extractall(os.path.join(self.work, "bundle"))
        found = glob.glob(os.path.join(self.work, "bundle", "*", "dtrain"))
        if not found:
            sys.exit(f"run.py: there is no dtrain in {bundle}")
        return found[0]

    def fact(self, name, value, good=True):
        self.facts[name] = str(value)
        if not good:
            self.failed.append(f"{name}: {value}")

    def start(self, *cmd, env=None):
        self.log.write(f"$ {' '.join(cmd)}\n")
        self.log.flush()
        return subprocess.Popen(cmd, cwd=ROOT, env={**self.env, **(env or {})}, stdout=self.log, stderr=self.log,
                                start_new_session=True)

    def wait(self, p):
        try:
            return p.wait(timeout=max(self.end - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, signal.SIGKILL)
            p.wait()
            raise

    def run(self, *cmd, env=None, wants=0):
        rc = self.wait(self.start(*cmd, env=env))
        if rc != wants:
            raise Failed(f"exit {rc}, not {wants}: {' '.join(cmd)[:160]}")

    def text_of(self, log):
        return open(os.path.join(self.work, log), errors="replace").read()

    # ---- dtrain
    def fusion(self, run, *words, device="cuda", steps=20, np=1, wants=0, start=False):
        """Two micro-batches a step, so that what accumulates and what adds two flat buffers are the same sums."""
        data = os.path.join(self.work, "biometric.lmdb")
        if not os.path.exists(data):
            self.run(self.dtrain, "synth", "biometric", data + ".raw", "--n", "8")
            self.run(self.dtrain, "pack", data + ".raw", data)
        small = ["data.fields.iris.size=[24, 32]", "data.fields.fingerprint.size=[26, 24]"] if self.o.device == "cpu" else []
        ranks, env = [], {}
        if np > 1:
            ranks, env = [shutil.which("mpirun"), "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", str(np)], {
                "NCCL_MULTI_RANK_GPU_ENABLE": "1", "CUDA_VISIBLE_DEVICES": "0"}
        cmd = [*ranks, self.dtrain, "configs/fusion.yaml", f"data.path={data}", "data.fields.subject.classes=8", f"run.dir={self.work}/runs",
               f"run.name={run}", f"data.cache_dir={self.work}/cache", f"device.kind={device if self.o.device == 'cuda' else 'cpu'}",
               "train.global_batch=8", "train.micro_batch=4", f"train.max_steps={steps}", "train.precision=fp32", "metrics.sinks=[jsonl]",
               "eval.every=1000 steps", "data.split={val: 0, test: 0}", *small, *words]
        return self.start(*cmd, env=env) if start else self.run(*cmd, env=env, wants=wants)

    def losses(self, run):
        with open(f"{self.work}/runs/{run}/metrics.jsonl") as f:
            return [r["loss"] for r in map(json.loads, f) if r["kind"] == "step"]

    def weights(self, run):
        with open(max(glob.glob(f"{self.work}/runs/{run}/checkpoints/step-*/model.safetensors")), "rb") as f:
            return hashlib.sha256(f.read()).hexdigest()

    def same(self, a, b, what):
        equal = self.weights(a) == self.weights(b)
        self.fact(what, "the same bits" if equal else "OTHER BITS", equal)

    def near(self, a, b, what, goal=1e-3):
        pairs = list(zip(self.losses(a), self.losses(b)))
        worst = max((abs(x - y) for x, y in pairs), default=float("inf"))
        self.fact(what, f"{worst:.2e} in {len(pairs)} steps" + (f" (goal {goal:g})" if goal else ""), not goal or worst <= goal)

    def checkpoint_of(self, p, run):
        while p.poll() is None and not glob.glob(f"{self.work}/runs/{run}/checkpoints/step-*") and time.monotonic() < self.end:
            time.sleep(0.01)

    # ---- PyTorch beside it
    def bench_command(self, *words):
        ceilings = [f"--{k}={v}" for k, v in self.ceilings.items()]
        return [self.o.python, "tests/bench/bench_gpu.py", "--dtrain", self.dtrain, "--python", self.o.python, *ceilings,
                *(["--dry-run", "--device", "cpu"] if self.o.device == "cpu" else []), *words]

    def bench(self, *words):
        """Rows of bench_gpu.py as facts, one a goal."""
        out = os.path.join(self.work, "bench.jsonl")
        at = os.path.getsize(out) if os.path.exists(out) else 0
        rc = self.wait(self.start(*self.bench_command("--seconds", f"{self.end - time.monotonic() - 5:.0f}", "--out", out, *words)))
        rows = {}
        with open(out, "a+") as f:
            f.seek(at)
            rows = {r["name"]: r for r in map(json.loads, f)}  # the last of a name counts
        for name, r in rows.items():
            sides = [f"{s} " + (f"{v['samples_per_s']:.0f}/s" if "samples_per_s" in v else str(v.get("failed") or v.get("not_run")))
                     for s, v in r.items() if isinstance(v, dict)]
            self.fact(f"{name}, batch {r['batch']} {r['precision']}", ", ".join(sides) or "not run")
            for g in r["goals"]:
                self.fact(f"{name}, goal {g['goal']}", f"{g['got'] if g['got'] is None else format(g['got'], '.4g')}: {g['state']}", g["state"] != "FAIL")
        if rc not in (0, 3):  # 3: a goal was missed, which is a fact
            raise Failed(f"bench_gpu.py: exit {rc}")

    def program(self, name):
        found = shutil.which(name) or max(glob.glob(f"/usr/local/cuda*/bin/{name}") + glob.glob(f"/opt/nvidia/*/*/{name}"), default=None)
        return found or self.skip(f"no {name} on this machine")

    def skip(self, why):
        raise Skip(why)


# ---- items of a --------------------------------------------------------------------------------------------
SPEED, SPEED_MORE = "resnet50_bf16,vit_b_16_bf16,fusion_bf16", "resnet50_fp16,convnext_t_bf16,efficientnet_b0_bf16"


def ceilings(m):
    for name in ("copy", "matmul"):
        m.run(*m.bench_command("--peer", name))
        m.ceilings[name] = json.loads(m.text_of("ceilings.log").splitlines()[-1])["rate"]
        m.fact(name, f"{m.ceilings[name]:.2f} {'TB/s' if name == 'copy' else 'TFLOP/s'}")
    m.background = m.start(*m.bench_command("--prepare", "--only", f"{SPEED},{SPEED_MORE}"), env={"TORCHINDUCTOR_COMPILE_THREADS": "3"})


def op_tests(m, names, env=None, before=()):
    found = [t for n in names for t in sorted(glob.glob(os.path.join(m.folder, n)))] or m.skip("no op tests beside dtrain: take the target gpu_bundle")
    env = {**(env or {}), **({"DTRAIN_TEST_DEVICE": "real"} if m.o.device == "cuda" else {})}
    running = [(os.path.basename(t), m.start(*before, t, env=env)) for t in found]
    for name, p in running:
        rc = m.wait(p)
        m.fact(name, "passed" if rc == 0 else f"exit {rc}", rc == 0)


def ops(m):
    op_tests(m, ["test_ops_*_cuda"])


def losses(m):
    # At a tenth of the config's rate: at all of it rounding alone grows past 1e-3 within 20 small steps.
    words = ("train.optimizer.lr=2.0e-4",)
    cpu = m.fusion("loss_cpu", *words, "device.threads=1", "device.replicas=1", device="cpu", start=True)
    m.fusion("loss_gpu", *words)
    m.fusion("loss_bf16", *words, "train.precision=bf16")
    if m.wait(cpu):
        raise Failed("the run on the CPU failed")
    m.near("loss_gpu", "loss_cpu", "fp32, largest difference to one CPU thread")
    m.near("loss_bf16", "loss_gpu", "bf16, largest difference to fp32", goal=None)


def bits(m):
    for precision in ("fp32",) if m.o.device == "cpu" else ("fp32", "bf16", "fp16"):
        words, run = (f"train.precision={precision}",), f"bits_{precision}_"
        m.fusion(run + "1", *words)
        m.fusion(run + "2", *words)
        m.fusion(run + "3", *words, "run.stop_at=7", wants=75)
        m.fusion(run + "3", *words)
        m.same(run + "1", run + "2", f"{precision}, a second run")
        m.same(run + "1", run + "3", f"{precision}, stopped and resumed")
    killed = m.fusion("bits_killed", "checkpoint.every=1 steps", start=True)
    m.checkpoint_of(killed, "bits_killed")
    killed.kill()
    m.fact("killed", "in mid-run" if m.wait(killed) == -9 else "only after its end: not judged")
    m.fusion("bits_killed", "checkpoint.every=1 steps")
    m.same("bits_fp32_1", "bits_killed", "killed and resumed")
    if m.o.device == "cuda":  # the CPU's library adds inside its products
        m.fusion("bits_elastic", "run.reproducible=elastic")
        m.same("bits_fp32_1", "bits_elastic", "accumulation against plain")


def benches(*words):
    return lambda m: m.bench(*words)


speed, speed_more = benches("--only", SPEED), benches("--only", SPEED_MORE)
speed_graphs = benches("--only", SPEED, "--side", "compiled", "--mode", "reduce-overhead")


# ---- items of b --------------------------------------------------------------------------------------------
def photos(m, config, *words):
    data = os.path.join(m.work, "photos.tar")
    if not os.path.exists(data):
        m.run(m.dtrain, "synth", "photos", data + ".raw", "--n", "512")
        m.run(m.dtrain, "pack", data + ".raw", data)
    batch, small = (256, []) if m.o.device == "cuda" else (4, ["data.fields.image={size: [32, 32], short_side: 32}"])
    return [f"configs/{config}.yaml", f"data.path={data}", f"run.dir={m.work}/runs", f"data.cache_dir={m.work}/cache", f"device.kind={m.o.device}",
            "train.precision=bf16", f"train.global_batch={batch}", f"train.micro_batch={batch}", *small, "train.epochs=100", "metrics.sinks=[jsonl]",
            "eval.every=1000 steps", "checkpoint.every=1000 steps", "data.split.val=0", "data.augment.image=[]", "run.resume=never", *words]


def kernels(m):
    nets = {"resnet50": [], "vit": [], "fusion": None, "convnext_t": ["model={name: convnext, size: ti}"], "efficientnet_b0": ["model={name: efficientnet, size: b0}"]}
    for name, words in nets.items():
        if words is None:
            m.fusion("kernels", steps=1)
            job = ["configs/fusion.yaml", f"data.path={m.work}/biometric.lmdb", "data.fields.subject.classes=8", f"device.kind={m.o.device}"]
        else:
            job = photos(m, "resnet50" if words else name, *(["model.depth="] if words else []), *words)
        m.run(m.dtrain, "check", *job, "--kernels")
        m.fact(name, next((line.strip() for line in reversed(m.text_of("kernels.log").splitlines()) if line.endswith("  all")), "no sum"))


UNITS = {"nsecond": 1e-9, "ns": 1e-9, "usecond": 1e-6, "us": 1e-6, "msecond": 1e-3, "ms": 1e-3, "second": 1, "s": 1,
         "byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}


def sum_kernels(lines):
    """{kernel: [launches, seconds, bytes]} of the CSV that ncu writes."""
    sums = collections.defaultdict(lambda: [set(), 0.0, 0.0])
    for row in csv.DictReader(line for line in lines if line.startswith('"')):
        kernel = sums[re.sub(r"^.*::|[<(].*", "", row["Kernel Name"])[:60]]
        kernel[0].add(row["ID"])
        kernel[1 if "duration" in row["Metric Name"] else 2] += float(row["Metric Value"].replace(",", "")) * UNITS[row["Metric Unit"]]
    return {name: [len(ids), s, b] for name, (ids, s, b) in sums.items()}


def ncu(m):
    profiler, job, out = m.program("ncu"), [m.dtrain, *photos(m, "resnet50", "device.capture=false", "train.max_steps=2")], f"{m.work}/kernels.csv"
    m.run(*job, "run.name=engines")  # chooses them; then launched one by one, the first step skipped
    m.run(profiler, "--clock-control", "none", "--launch-skip", "700", "--launch-count", "80", "--metrics",
          "gpu__time_duration.sum,dram__bytes.sum", "--csv", "--log-file", out, *job, "run.name=ncu")
    with open(out, errors="replace") as f:
        for name, (n, s, b) in sorted(sum_kernels(f).items(), key=lambda k: -k[1][1]):
            m.fact(name, f"{s * 1e3:.3f} ms, {n} launches, {b / 1e9:.3f} GB, {b / s / 1e12 if s else 0:.2f} TB/s")


def learn(precision, m):
    if not m.o.data:
        m.skip("--data FOLDER with mnist_png.tar, sign_digits.tar, fsdd.tar")
    rc = m.wait(m.start("tests/bench/bench_quality.sh", m.folder, m.o.data, f"device.kind={m.o.device}", f"train.precision={precision}",
                        env={"ONLY": "digits signs acoustic"}))
    for name, value in re.findall(r"^([a-z ,]*digits[a-z ,]*): (.*)$", m.text_of(f"learn_{precision}.log"), re.M):
        m.fact(name, value, "falls short" not in value)
    if rc:
        raise Failed(f"bench_quality.sh: exit {rc}")


learn_bf16, learn_fp16 = (functools.partial(learn, precision) for precision in ("bf16", "fp16"))


def weights(m):
    """All of a set is one batch, so that both programs see the same pictures in each step."""
    steps, n = (200, 64) if m.o.device == "cuda" else (2, 8)
    raw, data, init = (os.path.join(m.work, "one" + end) for end in ("", ".tar", ".safetensors"))
    m.run(m.dtrain, "synth", "photos", raw, "--n", str(n))
    m.run(m.dtrain, "pack", raw, data, "--resize", "224", "--encode", "png")
    job = [*photos(m, "resnet50", f"data.path={data}", "data.fields.image={source: png, size: [224, 224], short_side: 224}", f"train.global_batch={n}",
                   f"train.micro_batch={n}", "train.precision=fp32", "train.optimizer={name: sgd, lr: 0.01, momentum: 0.9, nesterov: false, weight_decay: 0}",
                   "train.schedule={name: constant}", "train.label_smoothing=0", "data.mix={p: 0}", "train.epochs=100000", f"train.max_steps={steps}")]
    m.run(m.dtrain, "init", job[0], f"{m.work}/runs/one", *[w for w in job[1:] if not w.startswith(("run.dir=", "run.resume="))])
    m.run(m.dtrain, "export", f"{m.work}/runs/one", init, "--which", "latest", "--names", "torchvision")
    m.run(m.dtrain, *job, "run.name=one", "run.resume=auto")
    m.run(*m.bench_command("--peer", "same_weights", "--weights", init, "--shards", data, "--steps", str(steps)))
    theirs = json.loads(m.text_of("weights.log").splitlines()[-1])["losses"]
    ours = m.losses("one")
    m.fact("first loss, difference", f"{abs(ours[0] - theirs[0]):.2e} (goal 1e-2)", abs(ours[0] - theirs[0]) <= 1e-2)
    m.fact("mean of the last 20 losses", f"{sum(ours[-20:]) / len(ours[-20:]):.4f}, torchvision's {sum(theirs[-20:]) / len(theirs[-20:]):.4f}")


variants = benches("--side", "dtrain", "--only", "vit_b_16_tanh_bf16,vit_b_16_256_bf16,vit_b_16_adafactor_bf16,resnet50_fp16,resnet50_fp16_sums")
jpeg = benches("--only", "resnet50_jpeg_bf16")


# ---- items of c --------------------------------------------------------------------------------------------
def need_ranks(m):
    info = subprocess.run([m.dtrain, "info"], env=m.env, capture_output=True, text=True).stdout
    version = re.search(r"NCCL (\d+)\.(\d+)", info)
    if not shutil.which("mpirun"):
        m.skip("no mpirun on this machine")
    if m.o.device == "cuda" and not (version and tuple(map(int, version.groups())) >= (2, 30)):
        m.skip(f"{version[0] if version else 'no NCCL'}: ranks that share a GPU need 2.30 (--nccl FILE)")


def elastic(m):
    need_ranks(m)
    for np in (1, 2, 4):
        m.fusion(f"elastic{np}", "run.reproducible=elastic", "train.micro_batch=2", np=np)
        m.same("elastic1", f"elastic{np}", f"{np} ranks")


def pair(m, name, word, what, *both):
    need_ranks(m)
    m.fusion(name + "_a", *both, np=2)
    m.fusion(name + "_b", *both, *([word] if word else []), np=2)
    m.same(name + "_a", name + "_b", what)


def shard(m):
    for precision in ("fp32",) if m.o.device == "cpu" else ("fp32", "bf16"):
        pair(m, f"shard_{precision}", "train.shard=optimizer", f"{precision}, train.shard against none", f"train.precision={precision}")


def captured(m):
    pair(m, "captured", "device.capture=false", "plain against captured")


def sync_bn(m):
    words = ("model.sync_bn=true", "train.optimizer.lr=2.0e-4")
    need_ranks(m)
    m.fusion("sync_whole", *words, "train.micro_batch=8")
    m.fusion("sync_two", *words, np=2)
    m.near("sync_two", "sync_whole", "two ranks against one")


def bf16_gradients(m):
    pair(m, "bf16", None, "a second run", "comm.gradient_dtype=bf16")


def lost(m):
    need_ranks(m)
    for name in ("KILL", "STOP"):
        run = f"lost_{name}"
        job = m.fusion(run, "checkpoint.every=1 steps", "comm.timeout=10", "train.epochs=100000", steps=1000000, np=2, start=True)
        m.checkpoint_of(job, run)
        victim = open(f"/proc/{job.pid}/task/{job.pid}/children").read().split()[-1]
        os.kill(int(victim), getattr(signal, "SIG" + name))
        begin = time.monotonic()
        try:
            rc = m.wait(job)
        finally:
            if name == "STOP" and os.path.exists(f"/proc/{victim}"):
                os.kill(int(victim), signal.SIGKILL)
        m.fact(f"SIG{name} of a rank", f"exit {rc} after {time.monotonic() - begin:.0f} s", rc != 0 and time.monotonic() - begin < 40)


def sanitizer(tool, m):
    if m.o.device == "cpu":
        m.skip("there is no GPU to watch")
    op_tests(m, ["test_ops_custom_cuda", "test_ops_augment_cuda"], before=(m.program("compute-sanitizer"), "--tool", tool, "--error-exitcode", "9"))


memcheck, racecheck = (functools.partial(sanitizer, tool) for tool in ("memcheck", "racecheck"))


# ---- all of them -------------------------------------------------------------------------------------------
def execute(m, item, limit):
    m.facts, m.failed, state, why = {}, [], "passed", ""
    begin = time.monotonic()
    m.end = begin + limit
    print(f"== {item.name}: {item.what} (at most {limit:.0f} s)", file=sys.stderr, flush=True)
    with open(os.path.join(m.work, item.name + ".log"), "w") as m.log:
        try:
            globals()[item.name](m)
            state, why = ("FAILED", "; ".join(m.failed)) if m.failed else (state, why)
        except Skip as e:
            state, why = "not run", str(e)
        except subprocess.TimeoutExpired:
            state, why = "out of time", f"ended after {limit:.0f} s"
        except (Failed, OSError, ValueError, LookupError) as e:
            state, why = "FAILED", str(e)[:300]
    print(f"   {item.name}: {state}{why and f' ({why})'}", file=sys.stderr, flush=True)
    return {"item": item.name, "what": item.what, "state": state, "why": why, "seconds": round(time.monotonic() - begin, 1), "facts": m.facts}


def write_report(o, out, machine, results, work):
    with open(os.path.join(out, "report.json"), "w") as f:
        json.dump({"part": o.part, "machine": machine, "device": o.device, "items": results}, f, indent=1)
    with open(os.path.join(out, "report.md"), "w") as f:
        f.write(f"# dtrain on a GPU, part {o.part}\n\n{time.strftime('%Y-%m-%d %H:%M')}, {machine}\n\n| item | what it shows | state | seconds |\n|---|---|---|---|\n")
        for r in results:
            f.write(f"| {r['item']} | {r['what']} | {r['state']}{r['why'] and ': ' + r['why'].replace('|', '/')} | {r['seconds']} |\n")
        for r in filter(lambda r: r["facts"], results):
            f.write(f"\n## {r['item']}\n" + "".join(f"- {k}: {v}\n" for k, v in r["facts"].items()))
    for name, pattern in (("logs", "*.log"), ("engines", "**/engines-*.txt")):
        with tarfile.open(os.path.join(out, name + ".tar.gz"), "w:gz") as tar:
            for path in glob.glob(os.path.join(work, pattern), recursive=True):
                tar.add(path, os.path.relpath(path, work))
    if os.path.exists(os.path.join(work, "bench.jsonl")):
        shutil.copy(os.path.join(work, "bench.jsonl"), out)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("part", choices=PARTS)
    p.add_argument("out", nargs="?", default="gpu-report")
    p.add_argument("--bundle", help="archive of the target gpu_bundle")
    p.add_argument("--dtrain", help="a built program in its place; op tests are found beside it")
    p.add_argument("--python", default=sys.executable, help="a Python with torch, torchvision and timm")
    p.add_argument("--nccl", help="libnccl.so.2 of 2.30 or newer, for part c")
    p.add_argument("--data", help="folder with the tars of tests/bench/bench_quality.sh, for part b")
    p.add_argument("--engines", help="engines.tar.gz of an earlier part")
    p.add_argument("--seconds", type=float, default=540)
    p.add_argument("--items", help="only these, with commas")
    p.add_argument("--plan", action="store_true", help="print what would run, at the full time of each item")
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: tries the script, tiny, and says nothing of a GPU")
    o = p.parse_args()
    items = [i for i in PARTS[o.part] if not o.items or i.name in o.items.split(",")]
    if o.plan:
        at = [0.0]
        for item, ran in run_items(items, o.seconds, lambda i, limit: at.__setitem__(0, at[0] + i.seconds) or True, lambda: at[0]):
            print(f"{item.name:16} {f'{item.seconds:4} s, until {at[0]:.0f} s' if ran else 'dropped'}  {item.what}")
        return 0
    if not o.bundle and not o.dtrain:
        p.error("--bundle or --dtrain is missing")
    os.makedirs(o.out, exist_ok=True)
    smi = shutil.which("nvidia-smi") and subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit",
                                                         "--format=csv,noheader"], capture_output=True, text=True)
    machine = "the CPU, tiny: says nothing of a GPU" if o.device == "cpu" else smi.stdout.splitlines()[0] if smi and smi.returncode == 0 and smi.stdout else ""
    with tempfile.TemporaryDirectory() as work:
        if not machine:
            write_report(o, o.out, "no GPU on this machine: nothing has run", [], work)
            print("run.py: there is no GPU on this machine (nvidia-smi lists none): nothing has run", file=sys.stderr)
            return 77
        if o.engines:
            with tarfile.open(o.engines) as tar:
                tar.extractall(work)
        m, results = Machine(o, work), []
        for item, r in run_items(items, o.seconds, lambda item, limit: execute(m, item, limit)):
            results.append(r or {"item": item.name, "what": item.what, "state": "dropped", "why": "no time was left", "seconds": 0, "facts": {}})
            write_report(o, o.out, machine, results, work)  # after each: a machine that is taken away leaves what was done
        if m.background and m.background.poll() is None:
            os.killpg(m.background.pid, signal.SIGKILL)
            m.background.wait()
    return int(any(r["state"] in ("FAILED", "out of time") for r in results))


if __name__ == "__main__":
    sys.exit(main())
