#!/usr/bin/env python3
"""Training steps on one GPU: dtrain beside PyTorch, in one run, as JSON lines.

    tests/bench/bench_gpu.py [--dtrain build/dtrain] [--python PYTHON] [--only resnet50_bf16,fusion]
                             [--seconds 240] [--side both|dtrain|peer] [--out FILE] [--dry-run]

Rows, in the order of WORK. In a row without "jpeg" nothing is decoded: dtrain copies pixels from data.cache to the
device in each step, PyTorch's tensors are made there and stay. In a row with "jpeg" both read the same JPEGs of the same tar
shards, crop, flip and normalise them, with all cores. PyTorch: channels-last, autocast, fused optimizer, eager and
torch.compile; the better of the two counts. Medians of the steps after the first ten; one GPU, the same batch. PyTorch's
steps are timed by events on the GPU, its host as far ahead as it gets (at most ten steps).

First every row is run with dtrain and eager PyTorch, then, as far as time goes, compiled. A row is printed when it
changes; the last line of a name counts. What did not run says why. Each row has goals, judged one by one: pass, FAIL or
"not judged" with a reason. Exit: 0 all that there was time for ran and passed, 1 something failed, 3 a goal was missed.

Peak memory: PyTorch's own count (reserved) and, for dtrain, what the driver counts for the process (nvidia-smi), which
includes the context that PyTorch's number leaves out. Host time: a step less waiting for data and for the GPU
(metrics.jsonl). Start: from the command to the first step that metrics.jsonl (dtrain) or a line (PyTorch) shows,
with plans and programs cached.

--dry-run tries it without a device, on the CPU with tiny sizes.
"""
import argparse
import collections
import json
import os
import re
import statistics
import subprocess
import sys
import tarfile
import threading
import time

from bench_short import SHORT, runs_peers

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RATES = {"copy": "of the measured copy rate", "matmul": "of the measured matmul rate"}
VIT_GFLOP = 105  # forward and backward of ViT-B/16 for one picture

# One line a row: config, what to change, batch, precision, the peer's network, goals. Goals: best, eager: samples/s
# beside the better side and beside eager; host_us; copy, matmul: of the measured copy rate the bytes that the step moves
# (tests/cuda/moved_bytes.txt), of the measured matmul rate its products; memory: of the peer's; start_s.
WORK = {
    "resnet50_bf16": ("resnet50", [], 256, "bf16", "resnet50", {"best": 1.3, "copy": 0.6, "memory": 0.8}),
    "fusion_small_bf16": ("fusion", [], 32, "bf16", "fusion", {"eager": 4.0, "host_us": 30}),
    "vit_b_16_bf16": ("vit", [], 128, "bf16", "vit_b_16", {"best": 1.2, "matmul": 0.6, "memory": 0.8}),
    "fusion_bf16": ("fusion", [], 128, "bf16", "fusion", {"best": 1.3, "eager": 4.0, "memory": 0.8}),
    "start_resnet50": ("resnet50", [], 256, "bf16", "resnet50", {"start_s": 3.0}),
    "resnet50_jpeg_bf16": ("resnet50", [], 256, "bf16", "resnet50", {"best": 1.3}),
    "resnet50_fp16": ("resnet50", [], 256, "fp16", "resnet50", {"best": 1.3, "copy": 0.6, "memory": 0.8}),
    "resnet50_fp16_sums": ("resnet50", ["device.fp16_sums=true"], 256, "fp16", "resnet50", {}),
    "convnext_t_bf16": ("vit", ["model={name: convnext, size: ti, drop_path: 0.1}", "model.patch=", "model.dim=", "model.heads=", "model.blocks="],
                        256, "bf16", "convnext_tiny", {"best": 1.2, "memory": 0.8}),
    "efficientnet_b0_bf16": ("resnet50", ["model={name: efficientnet, size: b0}", "model.depth="], 256, "bf16", "efficientnet_b0", {"best": 1.2, "memory": 0.8}),
    "vit_b_16_tanh_bf16": ("vit", ["model.gelu=tanh"], 128, "bf16", "vit_b_16", {"matmul": 0.6}),
    "vit_b_16_256_bf16": ("vit", [], 256, "bf16", "vit_b_16", {"matmul": 0.6}),
    "vit_b_16_adafactor_bf16": ("vit", ["train.optimizer={name: adafactor}"], 128, "bf16", "vit_b_16", {}),
    "resnet18_bf16": ("resnet50", ["model.depth=18"], 512, "bf16", "resnet18", {"best": 1.3, "memory": 0.8}),
    "resnet18_jpeg_bf16": ("resnet50", ["model.depth=18"], 512, "bf16", "resnet18", {"best": 1.3}),
}


def say(*text):
    print("bench_gpu:", *text, file=sys.stderr, flush=True)


def last_line(text):
    return (re.findall(r"error: .*", text) or text.strip().splitlines() or ["no output"])[-1][:300]


# ---- dtrain ------------------------------------------------------------------------------------------
class Memory(threading.Thread):
    """The most that the driver counted for a process."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.mib, self.end = pid, None, False

    def run(self):
        while not self.end:
            try:
                text = subprocess.run(["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"],
                                      capture_output=True, text=True, timeout=10).stdout
            except (OSError, subprocess.SubprocessError):
                return
            rows = [line.partition(",")[::2] for line in text.splitlines()]
            used = [(pid.strip(), mib.strip()) for pid, mib in rows if mib.strip().isdigit()]
            # in a container the driver's process ids are the host's: a lone process is ours
            mine = [int(mib) for pid, mib in used if pid == str(self.pid) or len(used) == 1]
            self.mib = max([self.mib or 0, *mine]) or None
            time.sleep(0.5)


def patience(o, times=1):
    """Seconds that a side may take, and what is said of it if it takes them."""
    own, left = o.limit * times, max(o.end - time.monotonic(), 1)
    return (own, {"failed": "time limit"}) if own <= left else (left, {"not_run": f"the {o.seconds:.0f} s were spent"})


def step_lines(path):
    try:
        records = [json.loads(line) for line in open(path) if line.endswith("\n")]
    except OSError:
        return []
    return [r for r in records if r.get("kind") == "step"]


class Dtrain:
    def __init__(self, o, mode="resume"):
        self.o, self.mode, self.work = o, mode, os.path.join(ROOT, ".cache", "bench-gpu" + "-tiny" * o.tiny)
        os.makedirs(self.work, exist_ok=True)

    def command(self, *args):
        try:
            subprocess.run([self.o.dtrain, *args], cwd=ROOT, check=True, capture_output=True, text=True, timeout=120)
        except subprocess.CalledProcessError as e:
            raise RuntimeError(f"dtrain {args[0]}: {last_line(e.stderr)}") from e

    def data(self, config):
        kind, n = ("biometric", 8) if config == "fusion" else ("photos", 64 if self.o.tiny else 2048)
        raw, out = os.path.join(self.work, kind), os.path.join(self.work, kind + "-{000000..000003}.tar")
        if not os.path.exists(os.path.join(self.work, kind + ".done")):
            self.command("synth", kind, raw, "--n", str(n))
            self.command("pack", raw, out)
            open(os.path.join(self.work, kind + ".done"), "w").close()
        return out, n

    def overrides(self, name, config, batch, precision, steps):
        path, n = self.data(config)
        jpeg = "jpeg" in name
        common = [f"data.path={path}", f"run.dir={self.work}/runs", f"train.global_batch={batch}", f"train.micro_batch={batch}",
                  f"train.precision={precision}", f"device.kind={self.o.device}", "train.epochs=1000000", f"train.max_steps={steps}",
                  "run.resume=never", "eval.every=1000000 steps", "checkpoint.every=1000000 steps", "metrics.sinks=[jsonl]",
                  f"run.reproducible={self.mode}"]
        if config == "fusion":
            return common + [f"data.fields.subject.classes={n}", "data.split={val: 0, test: 0}", "data.augment.fingerprint=[]",
                             "data.cache=ram", "data.cache_form=decoded"]
        side = 32 if self.o.tiny else 224
        image = "[{random_resized_crop: {}}, {flip: horizontal}]" if jpeg else "[]"
        cache = [] if jpeg else ["data.cache=ram", "data.cache_form=decoded"]
        return common + cache + ["data.split.val=0", f"data.augment.image={image}", "data.mix={p: 0}",
                                 f"data.fields.image={{size: [{side}, {side}], short_side: {side}}}"]

    def command_of(self, name, config, extra, batch, precision, steps):
        run = f"{name}-{self.mode}-{os.getpid()}"
        cmd = [self.o.dtrain, f"configs/{config}.yaml", f"run.name={run}", *self.overrides(name, config, batch, precision, steps), *extra]
        return cmd, os.path.join(self.work, run + ".log"), os.path.join(self.work, "runs", run, "metrics.jsonl")

    def run(self, name, config, extra, batch, precision):
        cmd, log, metrics = self.command_of(name, config, extra, batch, precision, self.o.steps + self.o.warm)
        limit, late = patience(self.o)
        with open(log, "w") as f:
            p = subprocess.Popen(cmd, cwd=ROOT, stdout=f, stderr=f)
            memory = Memory(p.pid)
            memory.start()
            try:
                rc = p.wait(timeout=limit)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
                return late
            finally:
                memory.end = True
        steps = step_lines(metrics)
        seconds = [r["seconds"] for r in steps[self.o.warm:]]
        if rc != 0 or not seconds:
            return {"failed": f"exit {rc}: {last_line(open(log, errors='replace').read())}"}
        step_s = statistics.median(s["step"] for s in seconds)
        host = [s["step"] - s["data"] - s["idle"] for s in seconds if "idle" in s]
        return {"step_s": step_s, "samples_per_s": batch / step_s, "steps": len(seconds), "last_loss": steps[-1]["loss"],
                "memory_mib": memory.mib, "host_us": statistics.median(host) * 1e6 if host else None,
                "waits_for_data": sum(s["data"] for s in seconds) / max(sum(s["step"] for s in seconds), 1e-9)}

    def start(self, name, config, extra, batch, precision):
        """Seconds from the command to the first step that is known; of two runs the second, which finds plans cached."""
        for attempt in ("first", "cached"):
            cmd, log, metrics = self.command_of(f"{name}-{attempt}", config, extra, batch, precision, 3)
            begin, first = time.monotonic(), None
            with open(log, "w") as f:
                p = subprocess.Popen(cmd, cwd=ROOT, stdout=f, stderr=f)
                while p.poll() is None and time.monotonic() - begin < self.o.limit:
                    if first is None and os.path.exists(metrics) and step_lines(metrics):
                        first = time.monotonic() - begin
                    time.sleep(0.005)
                if p.poll() is None:
                    p.kill()
                rc = p.wait()
            if rc != 0 or not (first or step_lines(metrics)):
                return {"failed": f"exit {rc}: {last_line(open(log, errors='replace').read())}"}
        return {"start_s": first or time.monotonic() - begin}


# ---- PyTorch: this file again, in a process of its own --------------------------------------------
def peer_network(name):
    if name == "fusion":
        sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
        from bench_nets import network
        return network("fusion")[0]
    import torchvision.models as models
    if name == "vit_tiny":
        return models.VisionTransformer(image_size=224, patch_size=16, num_layers=2, num_heads=3, hidden_dim=96, mlp_dim=384)
    return getattr(models, name)(num_classes=1000)


def peer_inputs(torch, name, batch, device, side):
    shapes = [(1, 103, 96), (3, 240, 320)] if name == "fusion" else [(3, side, side)]
    x = [torch.rand(batch, *s, device=device).to(memory_format=torch.channels_last) for s in shapes]
    return x, torch.randint(0, 45 if name == "fusion" else 1000, (batch,), device=device)


class Shards:
    """JPEGs and labels of tar shards, as a map-style data set: the place of each member is looked up once."""

    def __init__(self, pattern, side):
        import torchvision.transforms as T
        head, _, tail = pattern.partition("{")
        first, last = tail[:tail.index("}")].split("..")
        names = [f"{head}{i:0{len(first)}d}{tail[tail.index('}') + 1:]}" for i in range(int(first), int(last) + 1)]
        self.members, labels = [], {}
        for name in filter(os.path.exists, names):
            with tarfile.open(name) as tar:
                for m in tar:
                    key, _, kind = m.name.rpartition(".")
                    if kind in ("jpg", "jpeg"):
                        self.members.append((name, m.offset_data, m.size, key))
                    elif kind == "cls":
                        labels[key] = int(tar.extractfile(m).read())
        self.members = [(f, at, size, labels.get(key, 0)) for f, at, size, key in self.members]
        self.files = {}
        self.change = T.Compose([T.RandomResizedCrop(side), T.RandomHorizontalFlip(), T.PILToTensor()])

    def __len__(self):
        return len(self.members)

    def __getitem__(self, i):
        import io
        from PIL import Image
        name, at, size, label = self.members[i]
        if name not in self.files:
            self.files[name] = os.open(name, os.O_RDONLY)  # one a worker
        return self.change(Image.open(io.BytesIO(os.pread(self.files[name], size, at))).convert("RGB")), label


def peer_batches(torch, o, device, side):
    """Batches for ever: the same tensors, or JPEGs through a DataLoader on all cores."""
    if not o.shards:
        batch = peer_inputs(torch, o.peer, o.batch, device, side)
        while True:
            yield batch
    mean = torch.tensor([0.485, 0.456, 0.406], device=device).view(1, 3, 1, 1) * 255
    deviation = torch.tensor([0.229, 0.224, 0.225], device=device).view(1, 3, 1, 1) * 255
    cuda = device.type == "cuda"
    data = Shards(o.shards, side)
    loader = torch.utils.data.DataLoader(data, o.batch, shuffle=True, drop_last=True, num_workers=os.cpu_count() if cuda else 1,
                                         pin_memory=cuda, persistent_workers=True)
    while True:
        for x, y in loader:
            x = x.to(device, non_blocking=True).to(memory_format=torch.channels_last)
            yield [(x.float() - mean) / deviation], y.to(device, non_blocking=True)


def timed_steps(torch, step, n, cuda):
    """Seconds of each of n steps, and the last loss. On a GPU between events of its stream, so that the host runs ahead as it would in
    training, up to ten steps (dtrain: one), and no step ends with a wait."""
    times, marks = [], []
    for i in range(n):
        begin = time.perf_counter()
        if cuda:
            marks.append(torch.cuda.Event(enable_timing=True))
            marks[-1].record()
            if i >= 10:
                marks[i - 10].synchronize()
        loss = step()
        times.append(time.perf_counter() - begin)
    if not cuda:
        return times, loss
    marks.append(torch.cuda.Event(enable_timing=True))
    marks[-1].record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) / 1e3 for a, b in zip(marks, marks[1:])], loss


def measure_rate(torch, name, device):
    """TB/s of a copy of 2 GiB of bf16 (read and written), or TFLOP/s of matmuls of 8192³, on random bits."""
    cuda = device.type == "cuda"
    n = (8192 if name == "matmul" else 32768) if cuda else 256
    a, b = (torch.randn(n, n, device=device, dtype=torch.bfloat16) for _ in range(2))
    times = []
    for _ in range(30):
        begin = time.perf_counter()
        for _ in range(10):
            a @ b if name == "matmul" else b.copy_(a)
        if cuda:
            torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / 10)
    return (2 * n**3 if name == "matmul" else 4 * n**2) / statistics.median(times) / 1e12


def same_weights(torch, o, device):
    """Losses of torchvision's ResNet-50 from dtrain's weights, on one batch of all pictures of a tar, in fp32 with SGD."""
    import io
    import torchvision.transforms as T
    import torchvision.models as models
    from PIL import Image
    from safetensors.torch import load_file
    members = collections.defaultdict(dict)
    with tarfile.open(o.shards) as tar:
        for m in filter(tarfile.TarInfo.isfile, tar):
            key, _, kind = m.name.rpartition(".")
            members[key][kind] = tar.extractfile(m).read()
    change = T.Compose([T.CenterCrop(224), T.ToTensor(), T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])])
    whole = [m for m in members.values() if "png" in m and "cls" in m]
    x = torch.stack([change(Image.open(io.BytesIO(m["png"])).convert("RGB")) for m in whole]).to(device)
    y = torch.tensor([int(m["cls"]) for m in whole], device=device)
    state = load_file(o.weights)
    net = models.resnet50(num_classes=state["fc.weight"].shape[0]).to(device)
    net.load_state_dict(state, strict=False)
    opt, losses = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9), []
    for _ in range(o.steps):
        opt.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses


def peer_main(o):
    import torch
    import torch.nn.functional as F
    name, precision = o.peer, o.precision
    device = torch.device(o.device)
    cuda = device.type == "cuda"
    if name in RATES:
        return print(json.dumps({"rate": measure_rate(torch, name, device)}))
    if name == "same_weights":
        return print(json.dumps({"losses": same_weights(torch, o, device)}))
    side = 32 if o.tiny and name.startswith("resnet") else 224
    low = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[precision]
    torch.backends.cudnn.benchmark = True
    net = peer_network(name).to(device).to(memory_format=torch.channels_last)
    batches = peer_batches(torch, o, device, side)
    if name.startswith("resnet"):
        opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=5e-5, fused=cuda)
    else:
        opt = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.01, fused=cuda)
    scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")
    # mode "reduce-overhead" has CUDA graphs: the peer's best where launches are the limit
    run = torch.compile(net, mode=o.mode if cuda else "default") if o.compile else net

    def step():
        x, y = next(batches)
        opt.zero_grad(set_to_none=True)
        with torch.autocast(device.type, low, enabled=precision != "fp32"):
            loss = F.cross_entropy(run(*x), y)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        return loss

    if o.first_step:
        print(json.dumps({"first_loss": step().item()}), flush=True)
        return
    times, loss = timed_steps(torch, step, o.steps + o.warm, cuda)
    median = statistics.median(times[o.warm:])
    print(json.dumps({"step_s": median, "samples_per_s": o.batch / median, "steps": o.steps, "last_loss": loss.item(),
                      "memory_mib": torch.cuda.max_memory_reserved() / 1048576 if cuda else None,
                      "peer": f"PyTorch {torch.__version__}", "compiled": bool(o.compile)}), flush=True)
    os._exit(0)  # the DataLoader's workers end with us


def peer(o, network, batch=1, precision="bf16", compiled=False, shards="", first_step=False, steps=None):
    cmd = [o.python, os.path.abspath(__file__), "--peer", network, "--batch", str(batch), "--precision", precision, "--device", o.device,
           "--steps", str(steps or o.steps), "--warm", str(0 if steps else o.warm), "--shards", shards, "--mode", o.mode] + ["--compile"] * compiled + ["--tiny"] * o.tiny + ["--first-step"] * first_step
    cache = os.path.join(ROOT, ".cache", "bench-gpu-inductor", f"{network}-{precision}-{o.mode}")  # no other's locks
    begin = time.monotonic()
    limit, late = patience(o, 2 if compiled else 1)
    try:
        out = subprocess.run(cmd, capture_output=True, text=True, timeout=limit, env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache})
    except subprocess.TimeoutExpired:
        return late
    try:
        return {**json.loads(out.stdout.splitlines()[-1]), "wall_s": time.monotonic() - begin}
    except (ValueError, IndexError):
        return {"failed": f"exit {out.returncode}: {last_line(out.stderr)}"}


# ---- goals -------------------------------------------------------------------------------------------
def ratio(a, b, key):
    a, b = (a or {}).get(key), (b or {}).get(key)
    return a / b if a and b else None


def moved_gb(name):
    """Of a micro-batch of the row, as counted without a device."""
    _, _, batch, precision, network, _ = WORK[name]
    with open(os.path.join(ROOT, "tests", "cuda", "moved_bytes.txt")) as f:
        sizes = dict(line.split()[:2] for line in f)
    return float(sizes[f"{network}-{batch}-{precision.replace('fp16', 'f16')}"])


def judge(o, r):
    ours, eager, compiled = (r.get(s) or {} for s in ("dtrain", "eager", "compiled"))
    sides = [s for s in (eager, compiled) if s.get("samples_per_s")]
    best = max(sides, key=lambda s: s["samples_per_s"]) if sides else {}
    rate = ours.get("samples_per_s")
    got = {"best": ratio(ours, best, "samples_per_s"), "eager": ratio(ours, eager, "samples_per_s"),
           "host_us": ours.get("host_us"), "memory": ratio(ours, best, "memory_mib"), "start_s": ours.get("start_s"),
           "matmul": rate * VIT_GFLOP / 1e3 / o.matmul if rate and o.matmul else None,
           "copy": moved_gb(r["name"]) * rate / r["batch"] / 1e3 / o.copy if rate and o.copy and "copy" in WORK[r["name"]][5] else None}
    words = {"best": "x the better of PyTorch eager and compiled", "eager": "x PyTorch eager", "host_us": "us of the host a step", "memory": "of PyTorch's memory", "start_s": "s to the first step", **RATES}
    r["goals"] = []
    for name, goal in WORK[r["name"]][5].items():
        at_least = name in ("best", "eager", *RATES)
        value = got[name]
        state = "not judged: " + ("a dry run" if o.tiny or o.device != "cuda" else "not measured")
        if value is not None and not o.tiny and o.device == "cuda":
            state = "pass" if (value >= goal if at_least else value <= goal) else "FAIL"
        if name == "best" and state == "pass" and not compiled.get("samples_per_s"):
            state = "not judged: the compiled side did not run"
        r["goals"].append({"goal": f"{'>=' if at_least else '<='} {goal:g} {words[name]}", "got": value, "state": state})


# ---- all of it -----------------------------------------------------------------------------------------
class Row:
    def __init__(self, o, name):
        self.o, self.name = o, name
        self.config, self.extra, self.batch, self.precision, self.network, _ = WORK[name]
        if o.tiny:
            self.batch, self.precision = 8, "fp32"
            self.extra = self.extra + (["model.blocks=2", "model.dim=96", "model.heads=3"] if self.network == "vit_b_16" else [])
            self.extra = self.extra + (["model.depth=10"] if self.network.startswith("resnet") else [])
            self.network = {"fusion": "fusion", "vit_b_16": "vit_tiny"}.get(self.network, "resnet18")
        self.r = {"name": name, "batch": self.batch, "precision": self.precision, "data": "jpeg" if "jpeg" in name else "on the device"}

    def ours(self, mode="resume"):
        d = Dtrain(self.o, mode)
        try:
            return (d.start if self.name.startswith("start") else d.run)(self.name, self.config, self.extra, self.batch, self.precision)
        except (RuntimeError, OSError, subprocess.SubprocessError) as e:
            return {"failed": str(e)[:300]}

    def theirs(self, compiled):
        start = self.name.startswith("start")
        shards = Dtrain(self.o).data(self.config)[0] if "jpeg" in self.name else ""
        try:
            s = peer(self.o, self.network, self.batch, self.precision, compiled, shards, start)
        except OSError as e:
            return {"failed": str(e)[:300]}
        return {"start_s": s["wall_s"]} if start and "wall_s" in s else s


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--dtrain", default=os.path.join(ROOT, "build", "dtrain"))
    p.add_argument("--python", default=sys.executable, help="a Python with torch and torchvision")
    p.add_argument("--only", default="", help="rows, with commas: " + ", ".join(WORK))
    p.add_argument("--skip", default="", help="not these rows")
    p.add_argument("--side", choices=("both", "dtrain", "peer", "compiled"), default="both")
    p.add_argument("--mode", default="default", help="of torch.compile: default, or reduce-overhead")
    p.add_argument("--copy", type=float, help="the measured copy rate, TB/s (--peer copy)")
    p.add_argument("--matmul", type=float, help="the measured matmul rate, TFLOP/s (--peer matmul)")
    p.add_argument("--prepare", action="store_true", help="only compile PyTorch's networks of the rows, so that later runs find them")
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    p.add_argument("--steps", type=int, default=50)
    p.add_argument("--warm", type=int, default=10, help="steps before those")
    p.add_argument("--seconds", type=float, default=1e9, help="begin nothing further after this long, and end what runs")
    p.add_argument("--limit", type=float, default=100, help="seconds of one side of a row; twice that where PyTorch compiles")
    p.add_argument("--tiny", action="store_true", help="small sizes: tries this script, measures nothing")
    p.add_argument("--dry-run", action="store_true", help="--device cpu --tiny --steps 2 --warm 1")
    p.add_argument("--out", help="JSON lines go here too")
    for a in ("--peer", "--batch", "--precision", "--shards", "--weights"):
        p.add_argument(a, help=argparse.SUPPRESS, **({"type": int} if a == "--batch" else {}))
    for a in ("--compile", "--first-step"):
        p.add_argument(a, action="store_true", help=argparse.SUPPRESS)
    o = p.parse_args()
    if o.peer:
        return peer_main(o)
    if SHORT:
        o.dry_run, o.only = True, o.only or "fusion_bf16"
        o.side = o.side if runs_peers("torch", "torchvision") else "dtrain"
    if o.dry_run:
        o.device, o.tiny, o.steps, o.warm = "cpu", True, 2, 1
    unknown = [n for n in filter(None, (o.only + "," + o.skip).split(",")) if n not in WORK]
    if unknown:
        p.error(f"no row {unknown[0]}; there are: {', '.join(WORK)}")
    o.end = time.monotonic() + o.seconds
    names = [n for n in WORK if (not o.only or n in o.only.split(",")) and n not in o.skip.split(",")]
    rows = [Row(o, n) for n in names]

    def emit(row):
        judge(o, row.r)
        print(json.dumps(row.r), flush=True)
        if o.out:
            with open(o.out, "a") as f:
                f.write(json.dumps(row.r) + "\n")

    def spent(row, what):
        if time.monotonic() <= o.end:
            return False
        row.r[what] = {"not_run": f"the {o.seconds:.0f} s were spent"}
        return True

    if o.prepare:
        for row in rows:
            peer(o, row.network, row.batch, row.precision, True, steps=1)
        return 0
    for name in RATES:  # run.py hands them in
        if o.side == "both" and not getattr(o, name) and any(name in WORK[n][5] for n in names):
            setattr(o, name, peer(o, name).get("rate"))
    for row in rows if o.side != "compiled" else []:
        say(row.name)
        if o.side != "peer" and not spent(row, "dtrain"):
            row.r["dtrain"] = row.ours()
            if not row.name.startswith("start"):
                row.r["dtrain_off"] = row.ours("off")  # run.reproducible: the default first
        if o.side != "dtrain" and not spent(row, "eager"):
            row.r["eager"] = row.theirs(False)
        emit(row)
    for row in rows:  # the slowest side last: what is measured by then stays measured
        if o.side != "dtrain" and not row.name.startswith("start"):
            if not spent(row, "compiled"):
                say(row.name, "compiled")
                row.r["compiled"] = row.theirs(True)
            emit(row)
    sides = ("dtrain", "dtrain_off", "eager", "compiled")
    failed = [f"{n.name} {s}" for n in rows for s in sides if "failed" in (n.r.get(s) or {})]
    unrun = [f"{n.name} {s}" for n in rows for s in sides if "not_run" in (n.r.get(s) or {})]
    missed = [f"{n.name}: {g['goal']}" for n in rows for g in n.r["goals"] if g["state"] == "FAIL"]
    for what, names in (("no time for", unrun), ("goals missed:", missed), ("failed:", failed)):
        if names:
            say(what, "; ".join(names))
    return 1 if failed else 3 if missed else 0


sys.exit(main())
