#!/usr/bin/env python3
"""Training steps on one GPU: dtrain beside PyTorch, in one run, as JSON lines.

    tests/bench/bench_gpu.py [--dtrain build/dtrain] [--python PYTHON] [--only resnet50_bf16,fusion]
                             [--seconds 240] [--side both|dtrain|peer] [--out FILE]

For each row of WORK, in this order until the time is spent: dtrain trains on a small set made by
`dtrain synth`, kept decoded in memory (data.cache: ram), so that the step is measured and not a disk;
PyTorch gets tensors that lie on the device already, channels-last, autocast, fused optimizer, eager and
compiled, the better of the two. Medians of the steps after the first WARM; one GPU, the same batch. A row
that does not run says why; nothing is left out in silence. Peak memory: PyTorch's own count (reserved)
and, for dtrain, what the driver counts for the process (nvidia-smi).

Not run on a device yet: written and tried without one (--side dtrain --device cpu --tiny does that).
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WARM = 10

# name: config, what to change, batch, precision, the peer's network, target ratio
WORK = {
    "resnet50_bf16": ("resnet50", [], 256, "bf16", "resnet50", 1.3),
    "fusion_bf16": ("fusion", [], 128, "bf16", "fusion", 1.3),
    "vit_b_16_bf16": ("vit", [], 128, "bf16", "vit_b_16", 1.2),
    "fusion_small_bf16": ("fusion", [], 32, "bf16", "fusion", 4.0),
    "resnet18_bf16": ("resnet50", ["model.depth=18"], 512, "bf16", "resnet18", 1.3),
    "resnet50_fp16": ("resnet50", [], 256, "fp16", "resnet50", 1.3),
}


def say(*text):
    print("bench_gpu:", *text, file=sys.stderr, flush=True)


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
            for line in text.splitlines():
                pid, _, used = line.partition(",")
                if pid.strip() == str(self.pid) and used.strip().isdigit():
                    self.mib = max(self.mib or 0, int(used))
            time.sleep(0.5)


class Dtrain:
    def __init__(self, o):
        self.o, self.work = o, os.path.join(ROOT, ".cache", "bench-gpu")
        os.makedirs(self.work, exist_ok=True)

    def command(self, *args):
        return subprocess.run([self.o.dtrain, *args], cwd=ROOT, check=True, capture_output=True, text=True, timeout=120)

    def data(self, config):
        kind, n = ("biometric", 8) if config == "fusion" else ("photos", 64 if self.o.tiny else 1024)
        raw, out = os.path.join(self.work, kind), os.path.join(self.work, kind + "-{000000..000001}.tar")
        if not os.path.exists(os.path.join(self.work, kind + ".done")):
            self.command("synth", kind, raw, "--n", str(n))
            self.command("pack", raw, out)
            open(os.path.join(self.work, kind + ".done"), "w").close()
        return out, n

    def overrides(self, config, batch, precision):
        path, n = self.data(config)
        epochs = 1000000
        common = [f"data.path={path}", f"run.dir={self.work}/runs", f"train.global_batch={batch}", f"train.micro_batch={batch}",
                  f"train.precision={precision}", f"device.kind={self.o.device}", f"train.epochs={epochs}", f"train.max_steps={self.o.steps + WARM}",
                  "run.resume=never", "data.cache=ram", "data.cache_form=decoded", "eval.every=1000000 steps",
                  "checkpoint.every=1000000 steps", "metrics.sinks=[jsonl]", "run.reproducible=off"]
        if config == "fusion":
            return common + [f"data.fields.subject.classes={n}", "data.split={val: 0, test: 0}", "data.augment.fingerprint=[]"]
        side = 32 if self.o.tiny else 224
        return common + ["data.split.val=0", "data.shuffle=global", "data.augment.image=[{flip: horizontal}]", "data.mix={p: 0}",
                         f"data.fields.image={{size: [{side}, {side}], short_side: {side}}}"]

    def run(self, name, config, extra, batch, precision):
        run = f"{name}-{os.getpid()}"
        cmd = [self.o.dtrain, f"configs/{config}.yaml", f"run.name={run}", *self.overrides(config, batch, precision), *extra]
        log = os.path.join(self.work, run + ".log")
        with open(log, "w") as f:
            p = subprocess.Popen(cmd, cwd=ROOT, stdout=f, stderr=f)
            memory = Memory(p.pid)
            memory.start()
            try:
                rc = p.wait(timeout=self.o.limit)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
                rc = "time limit"
            memory.end = True
        text = open(log, errors="replace").read()
        steps = []
        try:
            for line in open(os.path.join(self.work, "runs", run, "metrics.jsonl")):
                r = json.loads(line)
                if r.get("kind") == "step":
                    steps.append(r)
        except OSError:
            pass
        timed = [r["seconds"]["step"] for r in steps[WARM:]]
        if rc != 0 or not timed:
            return {"failed": f"exit {rc}: {(re.findall(r'error: .*', text) or text.strip().splitlines() or ['no output'])[-1][:300]}"}
        return {"step_s": statistics.median(timed), "samples_per_s": batch / statistics.median(timed), "steps": len(timed),
                "last_loss": steps[-1]["loss"], "memory_mib": memory.mib,
                "waits_for_data": sum(r["seconds"]["data"] for r in steps[WARM:]) / max(sum(timed), 1e-9)}


# ---- PyTorch: this file again, in a process of its own --------------------------------------------
def peer_network(name):
    import torch.nn as nn
    if name == "fusion":
        sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
        from peer_fusion import Fusion
        return Fusion(45)
    import torchvision.models as models
    return getattr(models, name)(num_classes=1000) if isinstance(name, str) else nn.Identity()


def peer_inputs(torch, name, batch, device):
    shapes = [(1, 103, 96), (3, 240, 320)] if name == "fusion" else [(3, 224, 224)]
    x = [torch.rand(batch, *s, device=device).to(memory_format=torch.channels_last) for s in shapes]
    return x, torch.randint(0, 45 if name == "fusion" else 1000, (batch,), device=device)


def peer_main(o):
    import torch
    import torch.nn.functional as F
    name, batch, precision, compiled = o.peer, o.batch, o.precision, o.compile
    device = torch.device(o.device)
    cuda = device.type == "cuda"
    low = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[precision]
    torch.backends.cudnn.benchmark = True
    net = peer_network(name).to(device).to(memory_format=torch.channels_last)
    x, y = peer_inputs(torch, name, batch, device)
    if name.startswith("resnet"):
        opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=5e-5, fused=cuda)
    else:
        opt = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.01, fused=cuda)
    scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")
    # "reduce-overhead" is torch.compile with CUDA graphs: the peer's best where launches are the limit.
    run = torch.compile(net, mode="reduce-overhead" if cuda else "default") if compiled else net

    def step():
        opt.zero_grad(set_to_none=True)
        with torch.autocast(device.type, low, enabled=precision != "fp32"):
            loss = F.cross_entropy(run(*x), y)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        return loss

    times = []
    for i in range(o.steps + WARM):
        if cuda:
            a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            a.record()
            loss = step()
            b.record()
            b.synchronize()
            times.append(a.elapsed_time(b) / 1e3)
        else:
            t = time.perf_counter()
            loss = step()
            times.append(time.perf_counter() - t)
    median = statistics.median(times[WARM:])
    print(json.dumps({"step_s": median, "samples_per_s": batch / median, "steps": o.steps, "last_loss": loss.item(),
                      "memory_mib": torch.cuda.max_memory_reserved() / 1048576 if cuda else None,
                      "peer": f"PyTorch {torch.__version__}", "compiled": bool(compiled)}))


def peer(o, network, batch, precision, compiled):
    cmd = [o.python, os.path.abspath(__file__), "--peer", network, "--batch", str(batch), "--precision", precision,
           "--device", "cuda" if o.device == "cuda" else "cpu", "--steps", str(o.steps)] + ["--compile"] * compiled
    try:
        out = subprocess.run(cmd, capture_output=True, text=True, timeout=o.limit)
    except subprocess.TimeoutExpired:
        return {"failed": "time limit"}
    try:
        return json.loads(out.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        return {"failed": f"exit {out.returncode}: {(out.stderr.strip().splitlines() or ['no output'])[-1][:300]}"}


# ---- all of it -----------------------------------------------------------------------------------------
def row(o, name):
    config, extra, batch, precision, network, target = WORK[name]
    if o.tiny:
        batch = 8
        extra = extra + (["model.layers=2", "model.dim=96", "model.heads=3"] if config == "vit" else [])
        extra = extra + (["model.depth=10"] if config == "resnet50" else [])
        precision = "fp32"
    r = {"name": name, "batch": batch, "precision": precision, "target": target}
    if o.side in ("both", "dtrain"):
        r["dtrain"] = Dtrain(o).run(name, config, extra, batch, precision)
    if o.side in ("both", "peer"):
        sides = [peer(o, network, batch, precision, c) for c in (False, True)]
        good = [s for s in sides if "failed" not in s]
        r["eager"], r["compiled"] = sides
        r["peer"] = max(good, key=lambda s: s["samples_per_s"]) if good else {"failed": sides[0]["failed"]}
    if all("samples_per_s" in r.get(s, {}) for s in ("dtrain", "peer")):
        r["ratio"] = r["dtrain"]["samples_per_s"] / r["peer"]["samples_per_s"]
        if r["dtrain"]["memory_mib"] and r["peer"]["memory_mib"]:
            r["memory_ratio"] = r["dtrain"]["memory_mib"] / r["peer"]["memory_mib"]
    return r


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--dtrain", default=os.path.join(ROOT, "build", "dtrain"))
    p.add_argument("--python", default=sys.executable, help="a Python with torch and torchvision")
    p.add_argument("--only", default="", help="rows, with commas: " + ", ".join(WORK))
    p.add_argument("--side", choices=("both", "dtrain", "peer"), default="both")
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    p.add_argument("--steps", type=int, default=50)
    p.add_argument("--seconds", type=float, default=1e9, help="begin no further row after this long")
    p.add_argument("--limit", type=float, default=100, help="seconds of one side of a row")
    p.add_argument("--tiny", action="store_true", help="small sizes: tries this script, measures nothing")
    p.add_argument("--out", help="JSON lines go here too")
    for a in ("--peer", "--batch", "--precision"):
        p.add_argument(a, help=argparse.SUPPRESS, **({"type": int} if a == "--batch" else {}))
    p.add_argument("--compile", action="store_true", help=argparse.SUPPRESS)
    o = p.parse_args()
    if o.peer:
        return peer_main(o)
    begin, failed = time.time(), 0
    for name in [n for n in WORK if not o.only or n in o.only.split(",")]:
        if time.time() - begin > o.seconds:
            r = {"name": name, "not_run": f"the {o.seconds:.0f} s were spent"}
        else:
            say(name)
            r = row(o, name)
        failed += "not_run" in r or any("failed" in r.get(s, {}) for s in ("dtrain", "peer"))
        print(json.dumps(r), flush=True)
        if o.out:
            with open(o.out, "a") as f:
                f.write(json.dumps(r) + "\n")
    return 1 if failed else 0


sys.exit(main())
