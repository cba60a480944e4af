#!/usr/bin/env python3
"""The fusion network's training step: dtrain, PyTorch and the library's bare kernels in one run.

    tests/bench/bench_fusion.py [--build build] [--rounds 3] [--steps 14] [--venv .cache/bench-venv]

Makes a virtual environment with PyTorch from PyPI if the running Python has none, the biometric data set
if it is not there, and runs everything in turn, --rounds times, so that a machine whose speed drifts
slows all alike. dtrain reads, decodes and augments real records; PyTorch gets tensors in memory. Prints
the medians and the ratios as a table, and start-up, memory and rank scaling. Threads = cores.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time

from bench_short import SHORT, most, runs_peers

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ENV = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


def run(cmd, **kw):
    return subprocess.run(cmd, cwd=ROOT, env=ENV, check=True, text=True, **kw)


def python_with_torch(venv):
    for candidate in (sys.executable, os.path.join(venv, "bin", "python")):
        if os.path.exists(candidate) and subprocess.run([candidate, "-c", "import torch"], capture_output=True).returncode == 0:
            return candidate
    print("bench: installing PyTorch into", venv, file=sys.stderr)
    run([sys.executable, "-m", "venv", venv])
    run([os.path.join(venv, "bin", "pip"), "-q", "install", "torch", "numpy"])
    return os.path.join(venv, "bin", "python")


def peer(python, precision, cores, batch, compiled, channels_last, steps):
    cmd = [python, "tests/bench/peer_fusion.py", "--precision", precision, "--threads", str(cores),
           "--batch", str(batch), "--steps", str(steps)]
    cmd += ["--compile"] * compiled + ["--channels-last"] * channels_last
    try:
        return json.loads(run(cmd, capture_output=True, timeout=400).stdout.splitlines()[-1])
    except (subprocess.SubprocessError, ValueError, IndexError) as e:
        print("bench: peer failed:", " ".join(cmd), getattr(e, "stderr", "")[-300:], file=sys.stderr)
        return None


class Dtrain:
    def __init__(self, build, steps):
        self.bin, self.steps, self.n = os.path.join(ROOT, build, "dtrain"), steps, 0
        self.dir = os.path.join(ROOT, ".cache", "bench-runs", str(os.getpid()))

    def run(self, precision, ranks=1, extra=()):
        self.n += 1
        cmd = [self.bin, "configs/fusion.yaml", f"run.dir={self.dir}", f"run.name=r{self.n}", f"train.precision={precision}",
               f"train.max_steps={self.steps}", "eval.every=100000 steps", "checkpoint.every=100000 steps", *["train.global_batch=8"] * SHORT, *extra]
        if ranks > 1:
            cmd = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)] + cmd
        begin = time.time()
        process = subprocess.Popen(cmd, cwd=ROOT, env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        start_s = None
        for line in process.stderr:
            if start_s is None and "training" in line:
                start_s = time.time() - begin
            last = line
        if process.wait() != 0:
            raise SystemExit(f"bench: dtrain failed: {last}")
        rows = [json.loads(r) for r in open(os.path.join(self.dir, f"r{self.n}", "metrics.jsonl"))]
        rows = [r for r in rows if r["kind"] == "step"][2:]
        step = statistics.median(r["seconds"]["step"] for r in rows)
        shares = {k: sum(r["seconds"][k] for r in rows) / sum(r["seconds"]["step"] for r in rows) for k in ("data", "compute", "comm")}
        return {"step_s": step, "samples_per_s": 32 / step, "start_s": start_s, "shares": shares,
                "peak_rss_mib": max(r["rss"] for r in rows) / 1048576}


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--build", default="build")
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--steps", type=int, default=14)
    a.add_argument("--venv", default=os.path.join(ROOT, ".cache", "bench-venv"))
    a.add_argument("--batch", type=int, default=32)
    a = a.parse_args()
    cores = len(os.sched_getaffinity(0))
    flags = re.search(r"^flags.*$", open("/proc/cpuinfo").read(), re.M).group(0)
    model = re.search(r"^model name\s*: (.*)$", open("/proc/cpuinfo").read(), re.M).group(1)
    a.rounds, a.steps = most(a.rounds, 1), most(a.steps, 4)
    python = python_with_torch(a.venv) if runs_peers("torch") else None
    if not os.path.exists(os.path.join(ROOT, "datasets/biometric.lmdb")):
        run([os.path.join(ROOT, a.build, "dtrain"), "synth", "biometric", "datasets/biometric-raw"])
        run([os.path.join(ROOT, a.build, "dtrain"), "pack", "datasets/biometric-raw", "datasets/biometric.lmdb"])
    dtrain = Dtrain(a.build, a.steps)
    precisions = ["fp32"] + ["bf16"] * ("avx512_bf16" in flags and not SHORT)
    isa = "AVX-512 with BF16" if "avx512_bf16" in flags else "AVX-512" if "avx512f" in flags else "AVX2"
    print(f"{model}, {cores} cores, {isa}; load {os.getloadavg()[0]:.1f}; median of {a.rounds} rounds in turn\n")
    print("| precision | dtrain samples/s | PyTorch best samples/s (variant) | ratio | library alone samples/s | share of it |")
    print("|---|---|---|---|---|---|")
    notes = []
    for precision in precisions:
        ours, library, two, peers = [], [], [], {}
        for _ in range(a.rounds):
            ours.append(dtrain.run(precision))
            bench = run([os.path.join(ROOT, a.build, "bench_library"), "configs/fusion.yaml", f"train.precision={precision}"], capture_output=True)
            library.append(json.loads(bench.stdout)["samples_per_s"])
            two.append(dtrain.run(precision, ranks=2, extra=("device.threads=1",)))
            for compiled in (False, True) if python else ():
                for channels_last in (False, True):
                    r = peer(python, precision, cores, a.batch, compiled, channels_last, 10)
                    if r:
                        peers.setdefault((compiled, channels_last), []).append(r)
        if not peers:
            print(f"| {precision} | {statistics.median(r['samples_per_s'] for r in ours):.1f} | skipped | | {statistics.median(library):.1f} | |")
            continue
        speed = {k: statistics.median(r["samples_per_s"] for r in v) for k, v in peers.items()}
        best = max(speed, key=speed.get)
        variant = ("compiled" if best[0] else "eager") + (", channels-last" if best[1] else "")
        mine = statistics.median(r["samples_per_s"] for r in ours)
        lib = statistics.median(library)
        print(f"| {precision} | {mine:.1f} | {speed[best]:.1f} ({variant}) | {mine / speed[best]:.2f} | {lib:.1f} | {mine / lib:.2f} |", flush=True)
        pair = statistics.median(r["samples_per_s"] for r in two)
        rss, peer_rss = max(r["peak_rss_mib"] for r in ours), min(r["peak_rss_mib"] for v in peers.values() for r in v)
        notes += [f"{precision}: PyTorch " + ", ".join(f"{'compiled' if k[0] else 'eager'}{' channels-last' if k[1] else ''} {v:.1f}" for k, v in sorted(speed.items())),
                  f"{precision}: two ranks of one thread {pair:.1f} samples/s, {pair / mine:.2f} of one rank with {cores}",
                  f"{precision}: peak memory {rss:.0f} MiB (one rank), {max(r['peak_rss_mib'] for r in two):.0f} MiB (each of two), PyTorch at batch {a.batch} {peer_rss} MiB: {rss / peer_rss:.2f}",
                  f"{precision}: from mpirun -np 2 to step 0 {statistics.median(r['start_s'] for r in two):.2f} s; alone {statistics.median(r['start_s'] for r in ours):.2f} s",
                  f"{precision}: shares of a step: " + ", ".join(f"{k} {100 * v:.1f} %" for k, v in ours[-1]["shares"].items())]
    print()
    for n in notes:
        print("- " + n)


main()
