#!/usr/bin/env python3
"""JPEG -> RandomResizedCrop(224) -> flip -> normalise, photographs in WebDataset shards: dtrain, webdataset and a
DataLoader over files, in one run.

    tests/bench/bench_jpeg.py [--build build] [--tar PHOTOS.tar] [--rounds 3] [--seconds 6] [--venv VENV]

Packs the photographs (default ../shared/data/trashnet.tar, or 1,000 of `dtrain synth photos`) into shards once
(.cache/bench-jpeg). In each round every side reads for some seconds, one after another, with 1 thread or worker and with as many as
there are cores; the file cache is warm. Peers decode with Pillow, whose JPEG library is libjpeg-turbo too, crop, resize and flip
with torchvision and normalise in the worker; dtrain hands over bytes, which its first graph node normalises, so that node
is timed as well (`dtrain data bench` runs up to the batch). Also libjpeg-turbo's bare full decode against our way from file to slot
(build/bench_decode), by CPU time of one thread. Prints a table of medians and ratios.
"""
import argparse
import glob
import io
import json
import os
import statistics
import subprocess
import sys
import time

from bench_short import most, runs_peers

os.environ.setdefault("OMP_NUM_THREADS", "1")  # workers are the threads
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def peer(a):
    import torch
    import torchvision.transforms as T
    from PIL import Image
    torch.set_num_threads(1)
    transform = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize(MEAN, STD)])

    def decode(b):
        return transform(Image.open(io.BytesIO(b)).convert("RGB"))
    if a.peer == "webdataset":
        import webdataset as wds
        data = (wds.WebDataset(sorted(glob.glob(a.shards)), shardshuffle=False, empty_check=False,
                               nodesplitter=wds.split_by_node).repeat().to_tuple("jpg", "cls" if a.labels else "__key__")
                .map_tuple(decode, lambda x: 0).batched(32))
        loader = wds.WebLoader(data, batch_size=None, num_workers=a.workers, prefetch_factor=4)
    else:
        paths = sorted(glob.glob(os.path.join(a.folder, "**", "*.jp*g"), recursive=True))

        class Files(torch.utils.data.Dataset):
            def __len__(self):
                return 10**7

            def __getitem__(self, i):
                with open(paths[i % len(paths)], "rb") as f:
                    return decode(f.read()), 0
        loader = torch.utils.data.DataLoader(Files(), batch_size=32, num_workers=a.workers, prefetch_factor=4)
    it = iter(loader)
    for _ in range(4):
        next(it)
    n, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < a.seconds:
        n += len(next(it)[0])
    print(json.dumps({"rate": n / (time.perf_counter() - begin)}), flush=True)
    os._exit(0)  # workers of an endless pipeline


def dtrain(a, shards, workers):
    config = os.path.join(a.work, "bench.yaml")
    with open(config, "w") as f:
        f.write(f"""
run: {{name: bench-jpeg}}
data:
  path: {shards}
  fields:
    image: {{kind: image, source: jpg, channels: 3, size: [224, 224], normalize: imagenet}}
    class: {{kind: class}}
  augment: {{image: [random_resized_crop, {{flip: horizontal}}]}}
model: {{name: resnet, depth: 10, width: 8}}
train: {{epochs: 100000, global_batch: 32, micro_batch: 32}}
""")
    out = subprocess.run([os.path.join(a.build, "dtrain"), "data", "bench", config, f"data.workers={workers}",
                          f"device.threads={max(2, workers)}", "--seconds", str(int(a.seconds)), "--json"], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return json.loads(out.stdout)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--build", default="build")
    p.add_argument("--tar", default=os.path.join(ROOT, "../shared/data/trashnet.tar"))
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seconds", type=float, default=6)
    p.add_argument("--venv", default=None, help="a virtual environment with torch, torchvision, webdataset and pillow")
    p.add_argument("--peer")
    p.add_argument("--shards")
    p.add_argument("--folder")
    p.add_argument("--workers", type=int)
    p.add_argument("--labels", type=int, default=0)
    a = p.parse_args()
    if a.peer:
        return peer(a)
    a.rounds, a.seconds, n_photos = most(a.rounds, 1), most(a.seconds, 1), most(1000, 60)
    a.build = os.path.abspath(a.build)
    a.work = os.path.join(ROOT, ".cache/bench-jpeg")
    os.makedirs(a.work, exist_ok=True)
    folder, spec = os.path.join(a.work, "files"), os.path.join(a.work, "photos-{000000..000003}.tar")
    if not os.path.exists(folder):
        os.makedirs(folder)
        if os.path.exists(a.tar):
            subprocess.run(["tar", "-C", folder, "-xf", a.tar], check=True)
        else:
            subprocess.run([os.path.join(a.build, "dtrain"), "synth", "photos", folder, "--n", str(n_photos)], check=True)
    if not glob.glob(os.path.join(a.work, "photos-*.tar")):
        subprocess.run([os.path.join(a.build, "dtrain"), "pack", folder, spec], check=True)
    python = os.path.join(a.venv, "bin/python") if a.venv else sys.executable
    cores = len(os.sched_getaffinity(0))
    counts = sorted({1, cores})
    sides = ("dtrain", "webdataset", "dataloader") if runs_peers("torch", "torchvision", "webdataset", "PIL") else ("dtrain",)
    rates = {}

    def add(side, workers, rate):
        rates.setdefault((side, workers), []).append(rate)
    for r in range(a.rounds):
        for w in counts:
            add("dtrain", w, dtrain(a, spec, w)["samples_per_s"])
            for side in sides[1:]:
                out = subprocess.run([python, os.path.abspath(__file__), "--peer", side, "--shards", os.path.join(a.work, "photos-0*.tar"),
                                      "--folder", folder, "--workers", str(w), "--seconds", str(a.seconds)], check=True, capture_output=True, text=True)
                add(side, w, json.loads(out.stdout)["rate"])
        print(f"round {r + 1} of {a.rounds}: " + ", ".join(f"{s} x{w} {v[-1]:.0f}/s" for (s, w), v in rates.items()), file=sys.stderr)
    median = {k: statistics.median(v) for k, v in rates.items()}
    print("\n| images/s | " + " | ".join(f"{w} thread{'s' if w > 1 else ''}" for w in counts) + " |\n|---|" + "---|" * len(counts))
    for side in sides:
        print(f"| {side} | " + " | ".join(f"{median[side, w]:.0f}" for w in counts) + " |")
    for side in sides[1:]:
        print(f"| dtrain / {side}, median of rounds | " + " | ".join(
            f"{statistics.median(x / y for x, y in zip(rates['dtrain', w], rates[side, w])):.2f}" for w in counts) + " |")
    print(f"\n{cores} threads / ({cores} x one): {statistics.median(x / y for x, y in zip(rates['dtrain', cores], rates['dtrain', 1])) / cores:.2f}")
    bench = os.path.join(a.build, "bench_decode")
    if os.path.exists(bench):
        tar = a.tar if os.path.exists(a.tar) else spec.replace("{000000..000003}", "000000")
        out = json.loads(subprocess.run([bench, tar, "8"], check=True, capture_output=True, text=True).stdout)
        print("one thread, CPU time:", json.dumps(out))


if __name__ == "__main__":
    main()
