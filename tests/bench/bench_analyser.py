#!/usr/bin/env python3
"""Is the verdict of `dtrain data bench` right? Limits are put in on purpose, and the tuner is let loose.

    tests/bench/bench_analyser.py [--build build] [--seconds 2] [--only verdict|tuner] [--start 0..3] [-v]

verdict: 66 pipelines, each with one limit that is known because it was put there: a slow disk (reads
    delayed by a preloaded library), too few threads, heavy augmentation, heavy decoding, thousands of tiny
    files, a slow consumer; over pictures, recordings, heads and pairs. Where decoded pixels are to be
    kept, that is tried, too. Prints what was wrong and the share of right answers (goal 95 %).
    FIRST and LAST in the environment: only these, from FIRST to before LAST.
tuner: pipelines started with bad settings; the rate after tuning against the best of a grid search in
    the same run (goal 0.95).
"""
import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys

from bench_short import SHORT, most

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WORK = os.path.join(ROOT, ".cache", "bench-analyser")

CONFIG = """
run: {{name: x, dir: {work}}}
data:
  path: "{path}"
  fields:
{fields}
  split: {{unit: record, val: 0, test: 0}}
{data}
model: {{name: resnet, depth: 10}}
train: {{global_batch: 32, micro_batch: 8}}
"""
LIGHT = {
    "photos": "    image: {kind: image, source: jpg, channels: 3, size: [224, 224]}\n    class: {kind: class}",
    "pose": "    image: {kind: image, source: jpg, channels: 3, size: [64, 64]}\n    pose: {kind: vector, source: [yaw, pitch, roll]}",
    "acoustic": "    sound: {kind: audio, source: wav, rate: 16000, seconds: 1, features: logmel}\n    leak: {kind: class}",
    "tiny": "    numbers: {kind: vector, source: txt, size: [4]}\n    class: {kind: class}",
    "raw": "    image: {kind: image, source: bmp, channels: 3, size: [240, 320]}\n    class: {kind: class}",
}


def sh(*cmd, env=None, **kw):
    return subprocess.run(cmd, cwd=ROOT, check=True, text=True, env=dict(os.environ, **(env or {})), **kw)


def make_sets(dtrain):
    os.makedirs(WORK, exist_ok=True)
    sh("cc", "-shared", "-fPIC", "-O2", "-o", f"{WORK}/slow_read.so", "tests/slow_read.c", "-ldl")
    done = os.path.join(WORK, "complete")
    if os.path.exists(done):
        return
    quiet = dict(stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    for kind, n in (("photos", 200), ("pose", 600), ("acoustic", 300)):
        sh(dtrain, "synth", kind, f"{WORK}/{kind}-raw", "--n", str(most(n, 60)), **quiet)
    pack = lambda src, out, *more: sh(dtrain, "pack", f"{WORK}/{src}", f"{WORK}/{out}", "--overwrite", *more, **quiet)
    pack("photos-raw", "photos-{00..01}.tar")
    pack("pose-raw/images", "pose-{00..01}.tar", "--join", f"{WORK}/pose-raw/pose.csv")
    pack("acoustic-raw", "acoustic-{00..01}.tar", "--pattern", "leak{leak}_pipe{pipe}_{hz}_{n}.wav")
    for label, i in itertools.product("ab", range(most(3000, 100))):
        os.makedirs(f"{WORK}/tiny/{label}", exist_ok=True)
        with open(f"{WORK}/tiny/{label}/{i}.txt", "w") as f:
            f.write(f"{i} {i % 7} {i % 11} 1.5\n")
    open(done, "w").close()


PATHS = {"photos": "photos-{00..01}.tar", "pose": "pose-{00..01}.tar", "acoustic": "acoustic-{00..01}.tar", "tiny": "tiny"}
IMAGE = {"photos": "image", "pose": "image"}


def config(kind, data=""):
    path = os.path.join(WORK, "case.yaml")
    with open(path, "w") as f:
        f.write(CONFIG.format(work=WORK, path=f"{WORK}/{PATHS[kind]}", fields=LIGHT[kind], data=data))
    return path


def bench(dtrain, path, words=(), slow_us=0, seconds=2, options=()):
    env = {"SLOW_READ_MATCH": ".tar", "SLOW_READ_US": str(slow_us), "LD_PRELOAD": f"{WORK}/slow_read.so"} if slow_us else {}
    out = sh(dtrain, "data", "bench", path, *words, "--json", "--seconds", str(seconds), *options, env=env,
             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    return json.loads(out)


def cases(cores):
    """(name, expected, kind, extra lines under data:, words, delay in us, options)"""
    blur, warp = "{blur: {kernel: 101, sigma: [15, 20], p: 1}}", "{rotate: 20}, {noise: 0.1}"
    heavy = {
        "blur": f"[{', '.join([blur] * 6)}]",
        "rand": f"[{', '.join([blur, warp] * 5)}]",
        "jitter": f"[{{color_jitter: {{brightness: 0.4, contrast: 0.4, saturation: 0.4, hue: 0.1}}}}, {', '.join([blur] * 6)}]",
    }
    # 18 slow disks
    for kind, us, readers in itertools.product(("photos", "pose", "acoustic"), (10000, 20000, 40000), (1, 2)):
        yield (f"slow disk {kind} {us} us, {readers} readers", "read", kind, "", (f"data.readers={readers}", f"data.workers={cores}"), us, ())
    # 12 with one thread of several
    for kind, shuffle, batch in itertools.product(("photos", "pose", "acoustic"), ("global", "block"), (16, 64)):
        yield (f"one thread {kind} {shuffle} {batch}", "workers", kind, "", ("data.workers=1", f"data.shuffle={shuffle}", f"train.global_batch={batch}"), 0, ())
    # 9 heavy augmentations
    for kind, (name, ops), verify in itertools.product(("photos", "pose"), heavy.items(), ("true", "false")):
        if kind == "photos" and verify == "false" and name != "blur":
            continue
        if name == "rand" and kind == "pose" and verify == "false":
            continue
        yield (f"heavy augmentation {kind} {name} {verify}", "augment", kind, f"  augment: {{image: {ops}}}", (f"data.workers={cores}", f"data.verify={verify}"), 0, ())
    # 9 heavy decodings
    for kind, shuffle, batch in itertools.product(("photos", "acoustic", "pose"), ("global", "block", "none"), (32,)):
        yield (f"decoding {kind} {shuffle}", "decode", kind, "", (f"data.workers={cores}", f"data.shuffle={shuffle}", f"train.global_batch={batch}"), 0, ())
    # 6 folders of tiny files
    for shuffle, batch in itertools.product(("global", "block", "none"), (32, 256)):
        yield (f"tiny files {shuffle} {batch}", "files", "tiny", "", (f"data.workers={cores}", f"data.shuffle={shuffle}", f"train.global_batch={batch}"), 0, ())
    # 12 slow consumers
    for kind, rate, workers in itertools.product(("photos", "pose", "acoustic"), (20, 60), (1, cores)):
        yield (f"slow consumer {kind} {rate}/s, {workers} threads", "training", kind, "", (f"data.workers={workers}",), 0, ("--consume", str(rate)))


def verdicts(dtrain, cores, seconds, verbose):
    right, n, wrong, gains = 0, 0, [], []
    chosen = list(cases(cores))[int(os.environ.get("FIRST", 0)):int(os.environ.get("LAST", 99))]
    for name, expected, kind, data, words, us, options in chosen[::22] if SHORT else chosen:
        r = bench(dtrain, config(kind, data), words, us, seconds, options)
        n += 1
        right += r["limit"] == expected
        if r["limit"] != expected:
            wrong.append(f"{name}: {r['limit']} instead of {expected}: {r['what']}")
        if "cache_form=decoded" in r["change"]:  # is the gain as predicted?
            kept = bench(dtrain, config(kind, data), (*words, *r["change"].split()), us, seconds, options)
            gains.append((name, r["predicted"] / r["capacity"], kept["samples_per_s"] / r["samples_per_s"]))
        if verbose:
            print(f"{'ok ' if r['limit'] == expected else 'NO '} {name}: {r['samples_per_s']:.0f}/s, {r['limit']}, {r['change']}", flush=True)
    print(f"verdicts: {right} of {n} right ({100 * right / n:.1f} %)")
    for name, predicted, measured in gains:
        print(f"  decoded pixels kept, {name}: {predicted:.1f} times predicted, {measured:.1f} times measured")
    for w in wrong:
        print("  wrong:", w)


def tuner(dtrain, cores, seconds, only):
    starts = [("photos", 0), ("photos", 5000), ("pose", 3000), ("acoustic", 2000)]
    if only is not None or SHORT:
        starts = [starts[only or 0]]
    for kind, us in starts:
        path, best, best_at = config(kind), 0, None
        for workers, readers, slots in itertools.product(range(1, most(cores, 1) + 1), (1, 4, 16, 64) if us else (1,), (4, 16)):
            words = (f"data.workers={workers}", f"data.readers={readers if us else 'auto'}", f"data.prefetch={slots}")
            rate = bench(dtrain, path, words, us, most(3, 1))["samples_per_s"]
            if rate > best:
                best, best_at = rate, words
        tuned = bench(dtrain, path, (), us, seconds, ("--tune",))
        chosen = tuple(f"data.{key}={tuned[name]}" for key, name in
                       (("workers", "workers"), ("readers", "readers"), ("prefetch", "slots")) if tuned[name])
        # The grid's best is the luckiest of many short runs: both again, in turn.
        rates = [[bench(dtrain, path, words, us, most(4, 1))["samples_per_s"] for words in (chosen, best_at)] for _ in range(most(5, 1))]
        print(f"tuner {kind}, reads {us / 1000:g} ms late: after {seconds} s {' '.join(chosen)}; best of the grid {' '.join(best_at)}; "
              f"{statistics.median(t for t, _ in rates):.0f} and {statistics.median(g for _, g in rates):.0f} samples/s, "
              f"median of the ratios in turn {statistics.median(t / g for t, g in rates):.2f}", flush=True)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--build", default="build")
    a.add_argument("--seconds", type=int, default=2)
    a.add_argument("--only", choices=("verdict", "tuner"))
    a.add_argument("--start", type=int, choices=range(4), help="one of the tuner's four pipelines (2 to 3 minutes each)")
    a.add_argument("-v", action="store_true")
    a = a.parse_args()
    a.seconds = most(a.seconds, 1)
    dtrain = os.path.join(ROOT, a.build, "dtrain")
    cores = len(os.sched_getaffinity(0))
    make_sets(dtrain)
    print(f"{cores} cores, load {os.getloadavg()[0]:.1f}")
    if a.only != "tuner":
        verdicts(dtrain, cores, a.seconds, a.v)
    if a.only != "verdict":
        tuner(dtrain, cores, most(20, 1), a.start)


sys.exit(main())
