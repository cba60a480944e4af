#!/usr/bin/env python3
"""Augmentations beside Pillow's and torchvision's on tensors: CPU microseconds an image of 224x224x3, one thread.

  bench_augment.py [BUILD]      BUILD/bench_augment is run between two rounds of the peers; theirs is the lesser.

The peers get parameters that are drawn as dtrain draws them, so that a crop is as large on average. Prints one JSON
line an operation: dtrain, pillow (torchvision's functional on a PIL image), tensor (its v2 on a uint8 tensor),
and how many times as fast dtrain is as the faster peer.
"""
import json
import math
import random
import subprocess
import sys
import time

from bench_short import runs_peers

BUILD = sys.argv[1] if len(sys.argv) > 1 else "build"
if not runs_peers("torch", "torchvision", "PIL"):
    sys.exit(subprocess.run([f"{BUILD}/bench_augment"]).returncode)

import numpy as np
import torch
import torchvision.transforms.v2 as v2
import torchvision.transforms.v2.functional as F
from PIL import Image
from torchvision.transforms import InterpolationMode as I

torch.set_num_threads(1)
S, IMAGES = 224, 20
y, x = np.mgrid[0:S, 0:S]
rng = np.random.default_rng(1)
photo = np.stack([20 + (x * (1 + c) + y) * 200 / (4 * S) for c in range(3)], -1) + rng.integers(0, 16, (S, S, 3))
photo = photo.astype(np.uint8)
pil, tensor = Image.fromarray(photo), torch.from_numpy(photo).permute(2, 0, 1).contiguous()
u = random.uniform
B, N = I.BILINEAR, I.NEAREST


def perspective(i):
    def corner(cx, cy):
        return [abs(cx - int(u(0, S / 4))), abs(cy - int(u(0, S / 4)))]
    e = S - 1
    square = [[0, 0], [e, 0], [e, e], [0, e]]
    return F.perspective(i, square, [corner(*p) for p in square], B)


def erase(i):
    area, ratio = S * S * u(.02, .33), math.exp(u(math.log(.3), math.log(3.3)))
    h, w = min(S - 1, int(math.sqrt(area * ratio))), min(S - 1, int(math.sqrt(area / ratio)))
    i = F.pil_to_tensor(i) if isinstance(i, Image.Image) else i
    return F.erase(i, random.randint(0, S - h), random.randint(0, S - w), h, w, torch.zeros(3, 1, 1, dtype=torch.uint8))


def noise(i):
    i = F.pil_to_tensor(i) if isinstance(i, Image.Image) else i
    return F.gaussian_noise(i.float() / 255, 0, .05).mul(255).to(torch.uint8)


jitter = v2.ColorJitter(.4, .4, .4, .1)
OPS = [  # in the order of bench_augment.c
    ("flip", F.horizontal_flip), ("flip vertical", F.vertical_flip),
    ("crop", lambda i: F.crop(F.pad(i, [4]), random.randint(0, 8), random.randint(0, 8), S, S)),
    ("shift", lambda i: F.affine(i, 0, [u(-22, 22), u(-22, 22)], 1, [0, 0], B)),
    ("rotate", lambda i: F.rotate(i, u(-30, 30), B)),
    ("rotate nearest", lambda i: F.rotate(i, u(-30, 30), N)),
    ("affine", lambda i: F.affine(i, u(-10, 10), [u(-22, 22), u(-22, 22)], u(.9, 1.1), [u(-5, 5), 0], B)),
    ("perspective", perspective),
    ("brightness", lambda i: F.adjust_brightness(i, u(.6, 1.4))),
    ("contrast", lambda i: F.adjust_contrast(i, u(.6, 1.4))),
    ("saturation", lambda i: F.adjust_saturation(i, u(.6, 1.4))),
    ("hue", lambda i: F.adjust_hue(i, u(-.1, .1))),
    ("color_jitter", jitter), ("grayscale", lambda i: F.rgb_to_grayscale(i, 3)),
    ("sharpness", lambda i: F.adjust_sharpness(i, 2)),
    ("blur", lambda i: F.gaussian_blur(i, [23, 23], [1., 1.])),
    ("noise", noise), ("invert", F.invert), ("solarize", lambda i: F.solarize(i, 128)),
    ("posterize", lambda i: F.posterize(i, 4)), ("equalize", F.equalize), ("autocontrast", F.autocontrast),
    ("erase", erase), ("auto_augment", v2.AutoAugment(interpolation=B)),
    ("rand_augment", v2.RandAugment(interpolation=B)), ("trivial_augment", v2.TrivialAugmentWide(interpolation=B)),
]


def measure(fn, image):
    best = 1e30
    for _ in range(3):
        begin = time.thread_time()
        for _ in range(IMAGES):
            fn(image)
        best = min(best, (time.thread_time() - begin) / IMAGES * 1e6)
    return best


def peers():
    random.seed(1)
    torch.manual_seed(1)
    return [(measure(fn, pil), measure(fn, tensor)) for _, fn in OPS]


def main():
    first = peers()
    lines = subprocess.run([f"{BUILD}/bench_augment"], stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines()
    for (name, _), a, b, line in zip(OPS, first, peers(), lines):
        own, p, t = json.loads(line)["us_per_image"], min(a[0], b[0]), min(a[1], b[1])
        print(json.dumps({"op": name, "dtrain_us": own, "pillow_us": round(p, 1), "tensor_us": round(t, 1),
                          "times": round(min(p, t) / own, 1)}))


main()
