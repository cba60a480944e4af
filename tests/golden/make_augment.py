#!/usr/bin/env python3
"""Reference pictures for augmentation: writes augment.safetensors beside this script.

Run by hand when a case is added (needs torch, torchvision, Pillow, numpy, safetensors); test_augment.c
reads the file. Tensors are bytes (H,W,C). "src3", "src1" and "small" are the pictures; every other one is a
result, and its name is the call: "<operation> <channels> <parameter> ...". Results come from
torchvision's functional on PIL images, which is Pillow, except hue and blur, where its way through PIL is
lossy or absent: those are from tensors. Policies: "rand|auto|wide <operation or pair> ...", from
torchvision's own _apply_op, nearest, fill 0, on the small picture.
"""
import os

import numpy as np
import torch
import torchvision.transforms.autoaugment as aa
import torchvision.transforms.functional as F
from PIL import Image
from safetensors.numpy import save_file
from torchvision.transforms import InterpolationMode as I

out = {}
W, H = 30, 22


def picture(w, h, seed):
    """Slopes, a dark and a coloured block, some grain; no channel uses all values."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:h, 0:w]
    rgb = np.stack([40 + 150 * x / w, 30 + 190 * y / h, 60 + 60 * (x + y) / (w + h)], -1)
    rgb[h // 4:h // 2, w // 8:w // 2] = [200, 40, 60]
    rgb[h // 2:, 2 * w // 3:] *= 0.4
    rgb[: h // 5, w // 2:] = [90, 90, 90]
    return np.clip(rgb + rng.normal(0, 6, rgb.shape), 12, 240).astype(np.uint8)


big = Image.fromarray(picture(W, H, 1))
pictures = {3: big, 1: big.convert("L")}
small = Image.fromarray(picture(16, 12, 2))
out["src3"] = np.array(big)
out["src1"] = np.array(pictures[1])[..., None]
out["small"] = np.array(small)


def keep(name, image):
    a = np.array(image)
    out[name] = np.ascontiguousarray(a if a.ndim == 3 else a[..., None])


def case(op, fn, *parameters, channels=(3, 1)):
    for c in channels:
        keep(" ".join(map(str, [op, c, *parameters])), fn(pictures[c], *parameters))


def tensor_case(op, fn, *parameters, channels=(3, 1)):
    for c in channels:
        t = torch.from_numpy(np.array(pictures[c])).reshape(H, W, c).permute(2, 0, 1)
        keep(" ".join(map(str, [op, c, *parameters])), fn(t, *parameters).permute(1, 2, 0).numpy())


for factor in (0.25, 1.5):
    case("brightness", F.adjust_brightness, factor)
    case("contrast", F.adjust_contrast, factor)
    case("saturation", F.adjust_saturation, factor, channels=(3,))
    case("sharpness", F.adjust_sharpness, factor)
case("sharpness", F.adjust_sharpness, 0)
case("saturation", F.adjust_saturation, 1.9, channels=(3,))
for turn in (-0.5, -0.13, 0.02, 0.31):
    tensor_case("hue", F.adjust_hue, turn, channels=(3,))
case("grayscale", lambda i: F.to_grayscale(i, 3), channels=(3,))
case("invert", F.invert)
for threshold in (0, 100.4, 128):
    case("solarize", F.solarize, threshold, channels=(3,))
for bits in (1, 4):
    case("posterize", F.posterize, bits, channels=(3,))
case("equalize", F.equalize)
case("autocontrast", F.autocontrast)
for kernel, sigma in ((3, 0.5), (9, 2.0), (23, 1.3), (5, 40.0)):
    tensor_case("blur", lambda i, k, s: F.gaussian_blur(i, [k, k], [s, s]), kernel, sigma,
                channels=(3, 1) if kernel == 9 else (3,))
for mode, name in ((I.NEAREST, "nearest"), (I.BILINEAR, "bilinear")):
    for angle in (17, -100):
        case("rotate_" + name, lambda i, a: F.rotate(i, a, mode, fill=0), angle)
    for p in ((25, 3, -2, 1.3, 0, 0), (-40, 0, 5, 0.7, 15, 0), (5, -6, 1, 1, -30, 20)):
        case("affine_" + name, lambda i, a, x, y, s, hx, hy: F.affine(i, a, [x, y], s, [hx, hy], mode, 0), *p,
             channels=(3,))
    for to in ((3, 2, 26, 0, 29, 18, 1, 21), (0, 5, 20, 0, 29, 21, 8, 17)):
        case("perspective_" + name,
             lambda i, *t: F.perspective(i, [[0, 0], [29, 0], [29, 21], [0, 21]],
                                         [list(t[k:k + 2]) for k in (0, 2, 4, 6)], mode, 0), *to, channels=(3,))
for short, h, w in ((20, 16, 18), (22, 22, 22), (9, 7, 5), (40, 25, 33)):  # evaluation: Resize, CenterCrop
    case("fit", lambda i, s, *hw: F.center_crop(F.resize(i, s, I.BILINEAR), hw), short, h, w)
case("flip_x", F.hflip)
case("flip_y", F.vflip)


# ---- policies ------------------------------------------------------------------------------------------
def apply(image, op, magnitude):
    return aa._apply_op(image, op, magnitude, interpolation=I.NEAREST, fill=0)


def at(space, op, step, sign):
    magnitudes, signed = space[op]
    magnitude = float(magnitudes[step].item()) if magnitudes.ndim > 0 else 0.0
    return magnitude * (sign if signed else 1)


space = aa.RandAugment()._augmentation_space(31, (12, 16))
for i, op in enumerate(space):
    for sign in (-1, 1):
        keep(f"rand {i} {sign} 9", apply(small, op, at(space, op, 9, sign)))
space = aa.TrivialAugmentWide()._augmentation_space(31)
for i, op in enumerate(space):
    for sign, step in ((-1, 30), (1, 12)):
        keep(f"wide {i} {sign} {step}", apply(small, op, at(space, op, step, sign)))
for k, policy in enumerate(("imagenet", "cifar10", "svhn")):
    auto = aa.AutoAugment(aa.AutoAugmentPolicy(policy))
    space = auto._augmentation_space(10, (12, 16))
    chance = np.zeros((25, 2), np.float32)
    for i, pair in enumerate(auto.policies):  # both happen, with a positive sign
        image = small
        for j, (op, p, step) in enumerate(pair):
            chance[i, j] = p
            if p > 0:
                image = apply(image, op, at(space, op, step, 1))
        keep(f"auto {k} {i}", image)
    out[f"chance {k}"] = chance

path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "augment.safetensors")
save_file(out, path)
print(f"{path}: {len(out)} tensors, {os.path.getsize(path)} bytes")
