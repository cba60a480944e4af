#!/usr/bin/env python3
"""The benchmark report: what each config reaches, speed and memory of training, learning beside PyTorch's; one table.

    tests/bench/bench_suite.py [--build build] [--only configs,speed,losses] [--configs lens_resnet18,…] [--out DIR]

configs  trains each config on data that `dtrain synth` makes, as it stands: the figure on the held-out test part, time,
         peak memory. Those with a goal fail the run where they fall short.
speed    training steps beside PyTorch's best setting: bench_nets.py.
losses   the first 200 steps of ResNet-18 beside PyTorch's over seeds: bench_losses.py.

Writes DIR/suite.md and DIR/suite.json (default runs/bench-suite). Without PyTorch in the running Python the peers'
columns stay empty.
"""
import argparse
import datetime
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import types

import bench_losses
import bench_nets
from bench_short import SHORT, most

ROOT = bench_nets.ROOT
LENS = "lens-{000000..000003}.tar"
# what is made: items, folder of it that is packed, set, words of pack ({raw}: the folder)
SETS = {
    "lens": (2000, "", LENS, ["--pattern", "{label}/{id}.fits", "--join", "{raw}/lens.csv"]),
    "acoustic": (4000, "", "acoustic.lmdb", ["--pattern", "leak{leak}_pipe{pipe}_{hz}_{n}.wav"]),
    "photos": (4000, "", "photos-{000000..000003}.tar", ["--resize", "128"]),
    "pose": (12000, "/images", "pose-{000000..000003}.tar", ["--join", "{raw}/pose.csv"]),
    "biometric": (45, "", "biometric.lmdb", []),
}
NO_DEPTH = ["model.depth=", "model.width="]
WAVEFORM = ["model.depth=", "model.width=64", "data.fields.sound.features=waveform", "data.fields.sound.normalize={mean: [0], std: [0.1]}",
            "data.augment.sound=[{noise: [10, 50]}, {gain: 6}, {time_shift: 0.05}]"]
# name: config, data, further keys, metric, goal (None: none was set)
CONFIGS = {
    "lens_resnet18": ("lens_resnet18", "lens", [], "roc_auc", 0.97),
    "lens_vit": ("lens_vit", "lens", [], "roc_auc", 0.97),
    "lens_multiscale": ("lens_multiscale", "lens", [], "roc_auc", 0.97),
    "lens_accelerated": ("lens_accelerated", "lens", [], "roc_auc", 0.97),
    "lens_inference": ("lens_inference", "lens", [], "roc_auc", 0.97),
    "acoustic": ("acoustic", "acoustic", [], "accuracy", 0.9),
    "cnn1d": ("acoustic", "acoustic", ["model.name=cnn1d", *WAVEFORM], "accuracy", None),
    "ast_tiny": ("acoustic", "acoustic", ["model.name=ast_tiny", *NO_DEPTH, "train.epochs=8", "train.optimizer.lr=3e-4"], "accuracy", None),
    "audio_cnn": ("acoustic", "acoustic", ["model.name=audio_cnn", *NO_DEPTH, "train.epochs=2", "train.optimizer.lr=5e-4"], "accuracy", None),
    "photos": ("photos", "photos", [], "accuracy", None),
    "pose": ("pose", "pose", [], "mae", 2.0),
    "fusion": ("fusion", "biometric", [], "accuracy", None),
    "fusion_cross_attention": ("fusion", "biometric", ["model.fusion=cross_attention"], "accuracy", None),
}


def run(*words, **options):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    if done.returncode:
        raise SystemExit(f"bench_suite: {' '.join(words)}: exit {done.returncode}: {done.stderr[-500:]}")
    return done.stdout


def make_set(dtrain, work, kind):
    n, folder, name, words = SETS[kind]
    raw, path = os.path.join(work, kind), os.path.join(work, name)
    if not os.path.exists(raw):
        run(dtrain, "synth", kind, raw, "--n", str(most(n, 6 if kind == "biometric" else 100)))
        run(dtrain, "pack", raw + folder, path, *[w.format(raw=raw) if "{raw}" in w else w for w in words])
    return path


def bench_config(o, work, name):
    config, kind, words, metric, goal = CONFIGS[name]
    path = make_set(o.dtrain, work, kind)
    if SHORT:
        words = [*words, "train.max_steps=2", *["data.fields.subject.classes=6"] * (kind == "biometric")]
    cmd = [o.dtrain, os.path.join(ROOT, "configs", config + ".yaml"), f"data.path={path}", f"run.dir={work}/runs", f"run.name={name}", *words]
    began, before = time.time(), os.times()
    rows = [json.loads(line) for line in run(*cmd).splitlines()]
    after = os.times()
    test = [r for r in rows if r["split"] == "test"]
    best = test[-1][metric]
    steps = [json.loads(line) for line in open(f"{work}/runs/{name}/metrics.jsonl")]
    reached = goal is None or (best <= goal if metric == "mae" else best >= goal)
    return {"part": "configs", "name": name, "words": words, "metric": metric, "figure": best, "goal": goal, "reached": reached or SHORT,
            "seconds": time.time() - began, "cpu_seconds": after.children_user + after.children_system - before.children_user - before.children_system,
            "rss_mib": max(r["rss"] for r in steps if r["kind"] == "step") / 1048576}


def bench_speed(o):
    nets = types.SimpleNamespace(build=o.build, python=sys.executable if o.torch else None, steps=most(12, 1), rounds=most(1, 1),
                                 variants="eager" if SHORT else "eager,channels-last,compiled", limit=900)
    bench_nets.look_at_machine(nets)
    os.makedirs(os.path.join(ROOT, ".cache", "bench-nets"), exist_ok=True)
    d = bench_nets.Dtrain(nets)
    for name in o.nets.split(","):
        yield {"part": "speed", "name": name, **bench_nets.bench(nets, d, name)}


def bench_learning(o, work):
    a = types.SimpleNamespace(build=os.path.join(ROOT, o.build), signs=o.signs, seeds=most(o.seeds, 1), first=1, steps=most(200, 2))
    folder, data = bench_losses.make_data(a, work)
    classes = len(os.listdir(folder))
    ends = []
    for side in (bench_losses.losses_of_dtrain, bench_losses.losses_of_torch):
        args = (work, data) if side is bench_losses.losses_of_dtrain else (folder,)
        last = [[loss for loss, _ in side(a, *args, classes, seed)][-bench_losses.WINDOW:] for seed in range(1, a.seeds + 1)]
        ends.append(sum(map(sum, last)) / sum(map(len, last)))
    return {"part": "losses", "name": "resnet18", "seeds": a.seeds, "loss": ends[0], "peer_loss": ends[1]}


def number(x, digits):
    return "–" if x is None else f"{x:.{digits}f}"


def table(machine, rows):
    lines = [f"{machine}; {datetime.date.today()}.", "", "| what | dtrain | PyTorch | goal | time, memory |", "|---|---|---|---|---|"]
    for r in rows:
        if r["part"] == "configs":
            lines.append(f"| {r['name']}: {r['metric']} | {r['figure']:.4g} | | {r['goal'] or ''} | {r['seconds']:.0f} s ({r['cpu_seconds']:.0f} s CPU), {r['rss_mib']:.0f} MiB |")
        elif r["part"] == "speed":
            lines.append(f"| {r['name']}: samples/s of training | {number(r['rate'], 1)} | {number(r['peer_rate'], 1)} | {bench_nets.NETS[r['name']][5]} × | "
                         f"{number(r['rss'], 0)} MiB, PyTorch {number(r['peer_rss'], 0)} MiB |")
        else:
            lines.append(f"| {r['name']}: loss of steps 151 to 200, {r['seeds']} seeds | {r['loss']:.3f} | {r['peer_loss']:.3f} | | |")
    return "\n".join(lines) + "\n"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build")
    p.add_argument("--only", default="configs,speed,losses")
    p.add_argument("--configs", default="lens_resnet18" if SHORT else ",".join(CONFIGS), help="of: " + ", ".join(CONFIGS))
    p.add_argument("--nets", default="photos" if SHORT else "resnet18,vit_b16,fusion", help="of: " + ", ".join(bench_nets.NETS))
    p.add_argument("--signs", default=os.path.join(ROOT, "..", "shared", "data", "sign_digits.tar"))
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--out", help="a folder")
    o = p.parse_args()
    for given, known in ((o.only, ("configs", "speed", "losses")), (o.configs, CONFIGS), (o.nets, bench_nets.NETS)):
        unknown = [word for word in given.split(",") if word not in known]
        if unknown:
            p.error(f"no {unknown[0]}; there are: {', '.join(known)}")
    o.dtrain = os.path.join(ROOT, o.build, "dtrain")
    o.torch = all(importlib.util.find_spec(m) for m in ("torch", "torchvision", "PIL"))
    machine = bench_nets.look_at_machine(types.SimpleNamespace(build=o.build))
    work, rows = tempfile.mkdtemp(), []
    out = o.out or (os.path.join(work, "out") if SHORT else os.path.join(ROOT, "runs", "bench-suite"))
    os.makedirs(out, exist_ok=True)

    def add(row):  # as far as it got is on disk
        rows.append(row)
        with open(os.path.join(out, "suite.md"), "w") as f:
            f.write(table(machine, rows))
        with open(os.path.join(out, "suite.json"), "w") as f:
            json.dump({"machine": machine, "date": str(datetime.date.today()), "rows": rows}, f, indent=1)

    try:
        for name in o.configs.split(",") if "configs" in o.only else ():
            add(bench_config(o, work, name))
        for row in bench_speed(o) if "speed" in o.only else ():
            add(row)
        if "losses" in o.only and o.torch:
            add(bench_learning(o, work))
        print(open(os.path.join(out, "suite.md")).read())
        return int(not all(r.get("reached", True) for r in rows))
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    sys.exit(main())
