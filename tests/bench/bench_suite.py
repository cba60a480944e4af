#!/usr/bin/env python3
"""What each config reaches: trains each on data that `dtrain synth` makes, as it stands; one table.

    tests/bench/bench_suite.py [--build build] [--configs lens_resnet18,…] [--out DIR]

The figure on the held-out test part, time, peak memory. A config with a goal fails the run where it falls short. Writes
DIR/suite.md and DIR/suite.json (default runs/bench-suite).
"""
import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

from bench_short import ROOT, SHORT, machine, most

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
    return {"name": name, "words": words, "metric": metric, "figure": best, "goal": goal, "reached": reached or SHORT,
            "seconds": time.time() - began, "cpu_seconds": after.children_user + after.children_system - before.children_user - before.children_system,
            "rss_mib": max(r["rss"] for r in steps if r["kind"] == "step") / 1048576}


def table(cpu, rows):
    lines = [f"{cpu}; {datetime.date.today()}.", "", "| config | figure | goal | time, memory |", "|---|---|---|---|"]
    for r in rows:
        lines.append(f"| {r['name']} | {r['metric']} {r['figure']:.4g} | {r['goal'] or ''} | {r['seconds']:.0f} s "
                     f"({r['cpu_seconds']:.0f} s CPU), {r['rss_mib']:.0f} MiB |")
    return "\n".join(lines) + "\n"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build")
    p.add_argument("--configs", default="lens_resnet18" if SHORT else ",".join(CONFIGS), help="of: " + ", ".join(CONFIGS))
    p.add_argument("--out", help="a folder")
    o = p.parse_args()
    names = o.configs.split(",")
    unknown = [name for name in names if name not in CONFIGS]
    if unknown:
        p.error(f"no {unknown[0]}; there are: {', '.join(CONFIGS)}")
    o.dtrain = os.path.join(ROOT, o.build, "dtrain")
    cpu, _ = machine(o.build)
    work, rows = tempfile.mkdtemp(), []
    out = o.out or (os.path.join(work, "out") if SHORT else os.path.join(ROOT, "runs", "bench-suite"))
    os.makedirs(out, exist_ok=True)

    def add(row):  # as far as it got is on disk
        rows.append(row)
        with open(os.path.join(out, "suite.md"), "w") as f:
            f.write(table(cpu, rows))
        with open(os.path.join(out, "suite.json"), "w") as f:
            json.dump({"machine": cpu, "date": str(datetime.date.today()), "rows": rows}, f, indent=1)

    try:
        for name in names:
            add(bench_config(o, work, name))
        print(open(os.path.join(out, "suite.md")).read())
        return int(not all(r["reached"] for r in rows))
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    sys.exit(main())
