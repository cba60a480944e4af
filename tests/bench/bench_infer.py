#!/usr/bin/env python3
"""Inference on the CPU: dtrain in fp32, bf16 and int8 beside onnxruntime and PyTorch, in one run, as a table.

    tests/bench/bench_infer.py [--build build] [--python PYTHON] [--only resnet50_batch1,vit_b16] [--rounds 3] [--threads 2]

Each is a process of its own that evaluates the network on pixels in memory: dtrain its evaluation graph (bench_forward),
PyTorch eager, compiled (channels-last) and compiled in bf16, onnxruntime the network that PyTorch exports, in fp32 and
quantised by its own quantize_static (QDQ, per channel). The sides alternate, --rounds times; a rate is that of the fastest
forward pass of all rounds, so that what else the machine does counts little. Weights are random: speed does not depend on
them. Goals: fp32 1.2 times the better of both, int8 twice dtrain's fp32 where the CPU has VNNI.

PYTHON has torch, torchvision, onnx, onnxscript and onnxruntime; without one in the running Python peers are left out.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

from bench_short import ROOT, SHORT, machine, most, runs_peers

# name: config, keys, batch, PyTorch's
NETS = {
    "resnet50_batch1": ("resnet50", [], 1, "resnet50"),
    "resnet50_batch32": ("resnet50", [], 32, "resnet50"),
    "vit_b16": ("vit", [], 1, "vit_b_16"),
    "resnet18_small": ("resnet50", ["model.depth=18", "data.fields.image={size: [64, 64], short_side: 72}"], 1, "resnet18"),
}
SECONDS = 4


def fastest(run):
    run()
    least, begin, n = float("inf"), time.perf_counter(), 0
    while n < most(5, 1) or (time.perf_counter() - begin < most(SECONDS, 0) and n < 400):
        t = time.perf_counter()
        run()
        least, n = min(least, time.perf_counter() - t), n + 1
    return least


# ---- peers: this file again, in a process of its own ------------------------------------------------
def net_of(o):
    import torch
    import torchvision.models as models
    torch.manual_seed(1)
    size = 64 if o.peer.endswith("small") else 224
    return getattr(models, NETS[o.peer][3])(num_classes=1000).eval(), torch.rand(NETS[o.peer][2], 3, size, size)


def torch_main(o):
    import torch
    torch.set_num_threads(o.threads)
    net, x = net_of(o)
    if o.variant != "eager":
        net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
        net = torch.compile(net)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=o.variant.endswith("bf16")):
        return fastest(lambda: net(x))


def onnx_main(o):
    import numpy as np
    import onnxruntime
    import torch
    from onnxruntime import quantization
    torch.set_num_threads(o.threads)
    net, x = net_of(o)
    with tempfile.TemporaryDirectory() as dir:
        path = os.path.join(dir, "net.onnx")
        torch.onnx.export(net, (x,), path, dynamo=False, input_names=["x"], opset_version=17)
        if o.variant == "int8":
            class Reader(quantization.CalibrationDataReader):
                left = [{"x": x.numpy()}]

                def get_next(self):
                    return self.left.pop() if self.left else None
            quantization.quant_pre_process(path, path + ".pre")
            quantization.quantize_static(path + ".pre", path + ".int8", Reader(), per_channel=True)
            path += ".int8"
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = o.threads, 3
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return fastest(lambda: session.run(None, {"x": np.asarray(x)}))


def peer(o, name, kind, variant):
    cmd = [o.python, os.path.abspath(__file__), "--peer", name, "--kind", kind, "--variant", variant, "--threads", str(o.threads)]
    try:
        return json.loads(subprocess.run(cmd, cwd=ROOT, capture_output=True, text=True, timeout=o.limit, check=True).stdout.splitlines()[-1])["rate"]
    except (subprocess.SubprocessError, ValueError, IndexError) as e:
        print("bench_infer: left out:", name, kind, variant, (getattr(e, "stderr", "") or str(e))[-300:], file=sys.stderr)
        return 0


# ---- dtrain and the table ---------------------------------------------------------------------------
def dtrain(o, name, precision):
    config, keys, batch, _ = NETS[name]
    cmd = [os.path.join(ROOT, o.build, "bench_forward"), precision, f"configs/{config}.yaml", f"eval.batch={batch}",
           f"device.threads={o.threads}", "data.fields.class.classes=1000", "data.mix={p: 0}", *keys]
    return json.loads(subprocess.run(cmd, cwd=ROOT, check=True, capture_output=True, text=True).stdout)["most"]


def bench(o, name):
    ours = ["fp32"] + ["bf16"] * o.bf16 + ["int8"]
    theirs = [("torch", "eager"), ("torch", "compiled"), *[("torch", "compiled-bf16")] * o.bf16, ("onnx", "fp32"), ("onnx", "int8")] if o.python else []
    rates = {}
    for _ in range(o.rounds):
        for p in ours:
            rates[p] = max(rates.get(p, 0), dtrain(o, name, p))
        for k in theirs:
            rates[k] = max(rates.get(k, 0), peer(o, name, *k))
    fp32 = max((rates[k] for k in theirs if k[1] in ("eager", "compiled", "fp32")), default=0)
    low = max((rates[k] for k in theirs if k[1] in ("compiled-bf16", "int8")), default=0)
    peers = ", ".join(f"{k[0]} {k[1]} {rates[k]:.1f}" for k in theirs) or "left out"
    over = lambda x: f"{x:.2f}" if x else "–"
    print(f"| {name} | {' / '.join(f'{rates[p]:.1f}' for p in ours)} | {peers} | {over(fp32 and rates['fp32'] / fp32)} | "
          f"{rates['int8'] / rates['fp32']:.2f} | {over(low and rates['int8'] / low)} |", flush=True)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--build", default="build")
    a.add_argument("--python", help="a Python with the peers")
    a.add_argument("--only", default="resnet18_small" if SHORT else ",".join(n for n in NETS if n != "resnet18_small"))
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    a.add_argument("--limit", type=float, default=900, help="seconds of a peer's process")
    for word in ("--peer", "--kind", "--variant"):
        a.add_argument(word, help=argparse.SUPPRESS)
    o = a.parse_args()
    if o.peer:
        seconds = torch_main(o) if o.kind == "torch" else onnx_main(o)
        return print(json.dumps({"rate": NETS[o.peer][2] / seconds}))
    unknown = [n for n in o.only.split(",") if n not in NETS]
    if unknown:
        a.error(f"no network {unknown[0]}; there are: {', '.join(NETS)}")
    cpu, bf16 = machine(o.build)
    o.bf16, o.rounds = bf16 and not SHORT, most(o.rounds, 1)
    if not o.python and runs_peers("torch", "torchvision", "onnx", "onnxscript", "onnxruntime"):
        o.python = sys.executable
    print(f"{cpu}, {o.threads} threads; load {os.getloadavg()[0]:.1f}; fastest of {o.rounds} rounds, samples/s\n")
    print(f"| network | dtrain {'fp32 / bf16 / int8' if o.bf16 else 'fp32 / int8'} | peers | fp32: × the best fp32 peer | int8: × fp32 | int8: × the best low-precision peer |")
    print("|---|---|---|---|---|---|")
    for name in o.only.split(","):
        bench(o, name)


if __name__ == "__main__":
    main()
