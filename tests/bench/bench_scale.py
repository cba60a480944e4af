#!/usr/bin/env python3
"""What one step costs as ranks grow on one machine, oversubscribed, for the same global batch: messages and bytes that
a rank sends, CPU seconds of all ranks; besides, CPU of a rank's start, its memory (of shared pages its part) and its
descriptors. The job is the fusion network on 64 pairs a step. From the repository:
  tests/bench/bench_scale.py
  RANKS="2 8 64" STEPS=10 WORDS="comm.bucket=512" tests/bench/bench_scale.py"""
import json, os, pathlib, subprocess, sys, tempfile

short = bool(os.environ.get("SHORT"))
ranks = [int(n) for n in os.environ.get("RANKS", "2" if short else "1 2 8 32 64").split()]
steps = 2 if short else int(os.environ.get("STEPS", "10"))
source, dtrain = pathlib.Path.cwd(), os.path.abspath(os.environ.get("DTRAIN", "build/dtrain"))
settings = {line.partition("=")[0]: line.partition("=")[2] for line in subprocess.run(
    ["bash", "-c", ". launch/mpi_env.sh && env"], capture_output=True, text=True, check=True).stdout.splitlines()}
CONFIG = """
run: {name: scale, dir: WORK/runs}
device: {kind: cpu, threads: 1}
data:
  path: WORK/set.lmdb
  view: {pairs: {fields: [fingerprint, iris], within: subject}}
  fields:
    fingerprint: {kind: image, channels: 1, size: [26, 24], normalize: {mean: [0.5], std: [0.25]}}
    iris: {kind: image, channels: 3, size: [24, 32], normalize: imagenet}
    subject: {kind: class, classes: 6}
  split: {unit: record, stratify: subject, val: 0}
model: {name: fusion}
train: {epochs: 10000, global_batch: 64, micro_batch: 1, precision: fp32, optimizer: {name: sgd, lr: 0.01}}
checkpoint: {every: 100000 steps}
metrics: {sinks: []}
"""


def run(work, n, count):
    for old in (work / "count").iterdir():
        old.unlink()
    words = ["mpirun", "--oversubscribe", "--bind-to", "none", "--allow-run-as-root", "-np", str(n), "-x",
             f"LD_PRELOAD={work}/count.so", "-x", f"COUNT_DIR={work}/count", dtrain, f"{work}/scale.yaml",
             f"train.max_steps={count}", f"run.name=r{n}-{count}", *os.environ.get("WORDS", "").split()]
    done = subprocess.run(words, env=settings | dict(os.environ, OMP_WAIT_POLICY="passive"), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(words)}\n{done.stderr[-2000:]}")
    return [json.loads(f.read_text()) for f in sorted((work / "count").iterdir())]


with tempfile.TemporaryDirectory() as folder:
    work = pathlib.Path(folder)
    (work / "count").mkdir()
    (work / "scale.yaml").write_text(CONFIG.replace("WORK", folder))
    subprocess.run(["mpicc", "-O1", "-shared", "-fPIC", "-o", work / "count.so", "tests/bench/count_messages.c"], check=True)
    for words in (["synth", "biometric", work / "raw", "--subjects", "6", "--impressions", "5"], ["pack", work / "raw", work / "set.lmdb"]):
        subprocess.run([dtrain, *words], check=True, capture_output=True)
    print(f"{'ranks':>5} {'messages':>9} {'KiB':>9} {'CPU s a step':>12} {'CPU s of a start':>16} {'MiB':>6} {'descriptors':>11}")
    for n in ranks:
        few, many = run(work, n, 2), run(work, n, 2 + steps)
        total = lambda rows, key: sum(r[key] for r in rows)
        each = lambda key: (total(many, key) - total(few, key)) / steps
        print(f"{n:5} {each('messages') / n:9.1f} {each('bytes') / n / 1024:9.0f} {each('cpu_s'):12.3f}"
              f" {total(few, 'cpu_s') / n - 2 * each('cpu_s') / n:16.2f} {max(r['pss_kib'] for r in many) / 1024:6.0f}"
              f" {max(r['fds'] for r in many):11}", flush=True)
