#!/usr/bin/env python3
"""The fusion network's training step in PyTorch: the peer that bench_fusion.sh puts beside dtrain.

Same network, same sizes, AdamW, random data in memory (no loader: the peer's best case). Prints one
JSON object: median seconds a step, samples/s, peak RSS.
"""
import argparse
import json
import resource
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def encoder(channels):
    layers = []
    for i, o in zip((channels, 32, 64, 128), (32, 64, 128, 256)):
        layers += [nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 384), nn.ReLU(), nn.Linear(384, 256))


class Fusion(nn.Module):
    def __init__(self, classes=45):
        super().__init__()
        self.fingerprint = encoder(1)
        self.iris = encoder(3)
        self.head = nn.Sequential(nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, classes))

    def forward(self, fingerprint, iris):
        return self.head(torch.cat((self.fingerprint(fingerprint), self.iris(iris)), 1))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    p.add_argument("--channels-last", action="store_true")
    p.add_argument("--compile", action="store_true")
    p.add_argument("--steps", type=int, default=10)
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    net = Fusion()
    fingerprint, iris = torch.rand(a.batch, 1, 103, 96), torch.rand(a.batch, 3, 240, 320)
    label = torch.randint(0, 45, (a.batch,))
    if a.channels_last:
        net = net.to(memory_format=torch.channels_last)
        iris = iris.to(memory_format=torch.channels_last)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    run = torch.compile(net) if a.compile else net

    def step():
        opt.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=a.precision == "bf16"):
            loss = F.cross_entropy(run(fingerprint, iris), label)
        loss.backward()
        opt.step()
        return loss

    for _ in range(3):
        step()
    times = []
    for _ in range(a.steps):
        t = time.perf_counter()
        step()
        times.append(time.perf_counter() - t)
    median = statistics.median(times)
    print(json.dumps({
        "peer": f"PyTorch {torch.__version__}", "precision": a.precision, "compiled": a.compile,
        "channels_last": a.channels_last, "batch": a.batch, "threads": a.threads,
        "step_s": round(median, 4), "samples_per_s": round(a.batch / median, 2),
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}))


if __name__ == "__main__":
    main()
