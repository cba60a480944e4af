#!/usr/bin/env python3
"""Training steps on the CPU: dtrain beside PyTorch, in one run, as the table of docs/benchmarks.md.

    tests/bench/bench_nets.py [--build build] [--python PYTHON] [--only fusion,resnet18] [--steps 12] [--rounds 1]

Both sides have all cores. dtrain reads, decodes and augments real records, trains in fp32, bf16 (where the CPU has it) and
`auto`; PyTorch gets tensors in memory and runs eager, channels-last and compiled (with channels-last), in fp32 and bf16:
its best counts. Medians of the steps after the first three; of the small networks many more, after the epoch that fills
the cache. The sides alternate, --rounds times, and each round's ratio is its own, so that a machine whose speed drifts
slows both. Share: of what the library's kernels alone reach (bench_library). Start: from the command to the first step's
beginning, on a second start, with choices on disk; PyTorch: to its first step. RSS: peak of dtrain's process; of
PyTorch's smallest. A line for each network also tells two ranks of one thread.

With ONEDNN_MAX_CPU_ISA=AVX2 (and ATEN_CPU_CAPABILITY=avx2, for PyTorch) in the environment: fp32 without AVX-512.
PYTHON has torch; without one in the running Python a virtual environment is made (.cache/bench-venv).
"""
import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import time

from bench_short import ROOT, SHORT, machine, most, runs_peers

ENV = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
WARM = 3
VIT = ["train.optimizer.lr=0.001", "data.mix={p: 0}"]
SMALL = ["data.fields.image={size: [28, 28], channels: 1, normalize: {mean: [0.5], std: [0.25]}}", "model.width=16"]
PACK = {"acoustic": ["--pattern", "leak{leak}_pipe{pipe}_{hz}_{n}.wav", "--rate", "16000", "--mono"]}
LITTLE = ("mnist", "fsdd", "photos")  # a step takes milliseconds: many of them, behind the epoch that fills the cache

# name: config, data, batch, micro-batches at once (0: one a core), further keys, goal (x PyTorch's best)
NETS = {
    "fusion": ("fusion", "biometric", 32, 8, [], 4.0),
    "resnet18": ("resnet50", "photos", 16, 0, ["model.depth=18"], 1.7),
    "resnet50": ("resnet50", "photos", 8, 0, [], 1.4),
    "vit_b16": ("vit", "photos", 4, 1, VIT, 1.3),
    "vit_b16_batch16": ("vit", "photos", 16, 4, VIT, 1.3),
    "mnist": ("photos", "photos", 32, 0, SMALL, 3.0),
    "fsdd": ("acoustic", "acoustic", 32, 0, ["data.fields.sound.n_mels=40"], 3.0),
    "photos": ("photos", "photos", 32, 0, [], 3.0),
}


def steps_of(o, name):
    """Steps that are not measured, and those that are."""
    return (most(80, 2), 20 * o.steps) if name in LITTLE else (WARM, o.steps)


# ---- PyTorch: this file again, in a process of its own --------------------------------------------
def network(name):
    import torch
    import torch.nn as nn
    import torch.nn.functional as F

    class Fusion(nn.Module):
        def __init__(self, classes=45):
            super().__init__()
            self.fingerprint, self.iris = self.encoder(1), self.encoder(3)
            self.head = nn.Sequential(nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, classes))

        @staticmethod
        def encoder(channels):
            layers = []
            for i, o in zip((channels, 32, 64, 128), (32, 64, 128, 256)):
                layers += [nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2)]
            return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 384), nn.ReLU(), nn.Linear(384, 256))

        def forward(self, fingerprint, iris):
            return self.head(torch.cat((self.fingerprint(fingerprint), self.iris(iris)), 1))

    class Block(nn.Module):
        def __init__(self, i, o, stride):
            super().__init__()
            self.a, self.b = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.Conv2d(o, o, 3, 1, 1, bias=False)
            self.na, self.nb = nn.BatchNorm2d(o), nn.BatchNorm2d(o)
            self.short = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o)) if i != o else nn.Identity()

        def forward(self, x):
            return F.relu(self.nb(self.b(F.relu(self.na(self.a(x))))) + self.short(x))

    def resnet10(channels, width, classes):
        stem = [nn.Conv2d(channels, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        blocks = [Block(width << max(k - 1, 0), width << k, 2 if k else 1) for k in range(4)]
        return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width << 3, classes))

    if name == "fusion":
        return Fusion(), [(1, 103, 96), (3, 240, 320)], 45
    small = {"mnist": (1, 28, 28, 16), "fsdd": (1, 40, 101, 16), "photos": (3, 96, 128, 32)}.get(name)
    if small:
        return resnet10(small[0], small[3], 10), [small[:3]], 10
    import torchvision.models as models
    made = {"resnet18": models.resnet18, "resnet50": models.resnet50, "vit_b16": models.vit_b_16}[name.replace("_batch16", "")]
    return made(num_classes=1000), [(3, 224, 224)], 1000


def peer_main(o):
    import torch
    import torch.nn.functional as F
    torch.set_num_threads(o.threads)
    torch.manual_seed(1)
    net, shapes, classes = network(o.peer)
    x, y = [torch.rand(o.batch, *s) for s in shapes], torch.randint(0, classes, (o.batch,))
    if o.variant != "eager":
        net, x = net.to(memory_format=torch.channels_last), [t.to(memory_format=torch.channels_last) for t in x]
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    run = torch.compile(net) if o.variant == "compiled" else net

    def step():
        opt.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=o.precision == "bf16"):
            loss = F.cross_entropy(run(*x), y)
        loss.backward()
        opt.step()

    start, times = time.time() - float(o.began), []
    for _ in range(WARM + o.steps):
        t = time.perf_counter()
        step()
        times.append(time.perf_counter() - t)
    print(json.dumps({"rate": o.batch / statistics.median(times[WARM:]), "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                      "start": start, "version": torch.__version__}))


def peer(o, name, precision, variant):
    cmd = [o.python, os.path.abspath(__file__), "--peer", name, "--precision", precision, "--variant", variant, "--threads", str(o.cores),
           "--batch", str(NETS[name][2]), "--steps", str(steps_of(o, name)[1]), "--began", str(time.time())]
    try:
        return json.loads(subprocess.run(cmd, cwd=ROOT, capture_output=True, text=True, timeout=o.limit, check=True).stdout.splitlines()[-1])
    except (subprocess.SubprocessError, ValueError, IndexError) as e:
        print("bench_nets: PyTorch failed:", name, precision, variant, (getattr(e, "stderr", "") or str(e))[-300:], file=sys.stderr)
        return None


# ---- dtrain ----------------------------------------------------------------------------------------
class Dtrain:
    def __init__(self, o):
        self.o, self.n = o, 0
        self.bin = os.path.join(ROOT, o.build, "dtrain")
        self.dir = os.path.join(ROOT, ".cache", "bench-nets")

    def data(self, kind):
        n = most({"biometric": 45, "photos": 512, "acoustic": 2000}[kind], 60 if kind == "photos" else 8 if kind == "biometric" else 300)
        raw, out = f"{self.dir}/{kind}-{n}", f"{self.dir}/{kind}-{n}.lmdb"
        if not os.path.exists(out):
            for words in (["synth", kind, raw, "--n", str(n)], ["pack", raw, out, *PACK.get(kind, [])]):
                subprocess.run([self.bin, *words], cwd=ROOT, check=True, capture_output=True)
        return out, n

    def keys(self, name, precision, ranks=1):
        config, kind, batch, n_micro, extra, _ = NETS[name]
        path, n = self.data(kind)
        micro = min(batch // (n_micro or self.o.cores), batch // ranks)
        keys = [f"data.path={path}", f"run.dir={self.dir}/runs", f"train.global_batch={batch}", f"train.micro_batch={micro}",
                f"train.precision={precision}", "train.epochs=100000", f"train.max_steps={sum(steps_of(self.o, name))}", "eval.every=1000000 steps",
                "checkpoint.every=1000000 steps", "data.cache=ram", "data.cache_form=decoded", "device.kind=cpu"]
        if kind == "photos":
            keys += ["data.augment.image=[]", "data.mix={p: 0}", "data.split={val: 0, test: 0}", "data.shuffle=global"]
            if name in ("mnist", "photos"):
                keys += ["data.fields.class.classes=10"]
        if kind == "biometric":
            keys += [f"data.fields.subject.classes={n}"]
        if kind == "acoustic":
            keys += ["data.fields.label={kind: class, source: leak, classes: 2}", "data.split={val: 0, test: 0, stratify: null}", "data.augment.sound=[]"]
        return [f"configs/{config}.yaml", *keys, *extra]

    def run(self, name, precision, ranks=1):
        self.n += 1
        run = f"{name}-{os.getpid()}-{self.n}"
        cmd = [self.bin, *self.keys(name, precision, ranks), f"run.name={run}"]
        if ranks > 1:
            cmd = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), *cmd, "device.threads=1"]
        metrics, begin, first = os.path.join(self.dir, "runs", run, "metrics.jsonl"), time.time(), None
        with open(os.path.join(self.dir, run + ".log"), "w") as log:
            p = subprocess.Popen(cmd, cwd=ROOT, env=ENV, stdout=log, stderr=log)
            while p.poll() is None:
                first = first or (self.rows(metrics) and time.time())
                time.sleep(0.01)
        rows = self.rows(metrics)
        text = open(log.name).read()
        warm = steps_of(self.o, name)[0]
        if p.returncode or len(rows) <= warm:
            raise SystemExit(f"bench_nets: {' '.join(cmd)}: exit {p.returncode}: {text[-600:]}")
        seconds = [r["seconds"]["step"] for r in rows[warm:]]
        chosen = re.search(r"auto: (fp32|bf16), ([0-9.]+)", text)
        return {"rate": NETS[name][2] / statistics.median(seconds), "rss": max(r["rss"] for r in rows) / 1048576,
                "start": (first or time.time()) - begin - rows[0]["seconds"]["step"], "chosen": chosen.group(1) if chosen else precision.replace("auto", "fp32")}

    @staticmethod
    def rows(path):
        try:
            return [r for r in (json.loads(line) for line in open(path) if line.endswith("\n")) if r["kind"] == "step"]
        except OSError:
            return []

    def library(self, name, precision):
        cmd = [os.path.join(ROOT, self.o.build, "bench_library"), *self.keys(name, precision)]
        return json.loads(subprocess.run(cmd, cwd=ROOT, check=True, capture_output=True, text=True).stdout)["samples_per_s"]


# ---- the table -------------------------------------------------------------------------------------
def middle(list_of, key):
    values = [r[key] for r in list_of if r]
    return statistics.median(values) if values else None


def number(x, digits=1):
    return "–" if x is None else f"{x:.{digits}f}"


def bench(o, d, name):
    precisions = ["fp32"] + ["bf16"] * o.bf16
    variants = tuple(o.variants.split(",")) if o.python else ()
    ours, theirs, pairs, ratios, shares = {}, {}, [], [], []
    d.run(name, "auto")  # its choices are on disk from now on
    for _ in range(o.rounds):
        for p in [*precisions, "auto"]:
            ours.setdefault(p, []).append(d.run(name, p))
            for v in variants if p != "auto" else ():
                theirs.setdefault((p, v), []).append(peer(o, name, p, v))
        auto, best = ours["auto"][-1], max([r[-1]["rate"] for r in theirs.values() if r[-1]], default=None)
        ratios.append(auto["rate"] / best if best else None)
        shares.append(auto["rate"] / d.library(name, auto["chosen"]))
        if o.cores > 1 and not SHORT:
            pairs.append(d.run(name, "auto", o.cores)["rate"] / auto["rate"])
    rates = " / ".join(number(middle(ours[p], "rate")) for p in ours)
    peers = "; ".join(f"{p} " + ", ".join(f"{v} {number(middle(theirs[p, v], 'rate'))}" for v in variants) for p in precisions) if variants else "skipped"
    best = statistics.median(ratios) if ratios[0] else None
    rss = min((middle(r, "rss") for r in theirs.values() if any(r)), default=None)
    mine = middle(ours["auto"], "rss")
    start = min((middle(r, "start") for r in theirs.values() if any(r)), default=None)
    print(f"| {name}, batch {NETS[name][2]} | {rates} ({ours['auto'][-1]['chosen']}) | {peers} | {number(best, 2)} | {NETS[name][5]} | "
          f"{statistics.median(shares):.2f} | {mine:.0f} MiB{f', {mine / rss:.2f}' if rss else ''} | "
          f"{number(middle(ours['auto'], 'start'), 2)} s, {number(start)} s | {number(statistics.median(pairs) if pairs else None, 2)} |", flush=True)
    rate = max((middle(r, "rate") for r in theirs.values() if any(r)), default=None)
    return {"rate": middle(ours["auto"], "rate"), "peer_rate": rate, "ratio": best, "rss": mine, "peer_rss": rss}


def python_with_torch(venv):
    for candidate in (sys.executable, os.path.join(venv, "bin", "python")):
        if os.path.exists(candidate) and subprocess.run([candidate, "-c", "import torch, torchvision"], capture_output=True).returncode == 0:
            return candidate
    print("bench_nets: installing PyTorch into", venv, file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    subprocess.run([os.path.join(venv, "bin", "pip"), "-q", "install", "torch", "torchvision", "numpy"], check=True)
    return os.path.join(venv, "bin", "python")


def look_at_machine(o):
    """Cores and bf16 into o; the machine in words."""
    cpu, bf16 = machine(o.build)
    o.cores, o.bf16 = len(os.sched_getaffinity(0)), bf16 and not SHORT
    return f"{cpu}, {o.cores} cores; load {os.getloadavg()[0]:.1f}"


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--build", default="build")
    a.add_argument("--python", help="a Python with torch and torchvision")
    a.add_argument("--only", default="mnist" if SHORT else ",".join(NETS), help="networks, with commas: " + ", ".join(NETS))
    a.add_argument("--steps", type=int, default=12, help="that are measured")
    a.add_argument("--rounds", type=int, default=1)
    a.add_argument("--variants", default="eager,channels-last,compiled")
    a.add_argument("--limit", type=float, default=900, help="seconds of a PyTorch process")
    for word in ("--peer", "--precision", "--variant", "--began"):
        a.add_argument(word, help=argparse.SUPPRESS)
    for word in ("--threads", "--batch"):
        a.add_argument(word, type=int, help=argparse.SUPPRESS)
    o = a.parse_args()
    if o.peer:
        return peer_main(o)
    unknown = [n for n in o.only.split(",") if n not in NETS]
    if unknown:
        a.error(f"no network {unknown[0]}; there are: {', '.join(NETS)}")
    where = look_at_machine(o)
    o.steps, o.rounds = most(o.steps, 1), most(o.rounds, 1)
    if not o.python and runs_peers("torch"):
        o.python = python_with_torch(os.path.join(ROOT, ".cache", "bench-venv"))
    os.makedirs(os.path.join(ROOT, ".cache", "bench-nets"), exist_ok=True)
    print(f"{where}; {o.rounds} rounds of {o.steps} steps, samples/s\n")
    print(f"| network | dtrain fp32{' / bf16' if o.bf16 else ''} / auto | PyTorch | auto: × its best | goal | share of the library | peak memory, of PyTorch's | start, PyTorch's | a rank a core |")
    print("|---|---|---|---|---|---|---|---|---|")
    d = Dtrain(o)
    for name in o.only.split(","):
        bench(o, d, name)


if __name__ == "__main__":
    main()
