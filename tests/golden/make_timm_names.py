#!/usr/bin/env python3
"""Which of timm's networks are which `model` of dtrain: timm_names.txt, a line for each
    NAME TENSORS CRC32 SIDE {model}
with the CRC-32 of its sorted names and shapes, "name 64x3x7x7" and a newline, without num_batches_tracked, for images of SIDE.

Below is one of timm's for each `model`. Every registered network that has the same tensors and, of the same weights and
image, the same logits is found and written too. test_golden_torchvision.c compares names.

make_timm_names.py (timm, torch); make_timm_names.py NAME prints what the CRC is of.
"""
import os
import re
import sys
import zlib

import timm
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
RESNETS = {"resnet18": "depth: 18", "resnet34": "depth: 34", "resnet50": "depth: 50", "resnet101": "depth: 101",
           "resnet152": "depth: 152", "wide_resnet50_2": "depth: 50, width_per_group: 128",
           "wide_resnet101_2": "depth: 101, width_per_group: 128",
           "resnext50_32x4d": "depth: 50, groups: 32, width_per_group: 4",
           "resnext101_32x4d": "depth: 101, groups: 32, width_per_group: 4",
           "resnext101_32x8d": "depth: 101, groups: 32, width_per_group: 8",
           "resnext101_64x4d": "depth: 101, groups: 64, width_per_group: 4",
           "resnet18d": "depth: 18, stem: deep, avg_down: true", "resnet34d": "depth: 34, stem: deep, avg_down: true",
           "resnet50d": "depth: 50, stem: deep, avg_down: true", "resnet101d": "depth: 101, stem: deep, avg_down: true",
           "resnet152d": "depth: 152, stem: deep, avg_down: true", "resnet50c": "depth: 50, stem: deep",
           "resnext50d_32x4d": "depth: 50, groups: 32, width_per_group: 4, stem: deep, avg_down: true",
           "seresnet18": "depth: 18, se: true", "seresnet34": "depth: 34, se: true", "seresnet50": "depth: 50, se: true",
           "seresnet101": "depth: 101, se: true", "seresnet152": "depth: 152, se: true",
           "seresnet152d": "depth: 152, se: true, stem: deep, avg_down: true",
           "seresnext50_32x4d": "depth: 50, se: true, groups: 32, width_per_group: 4",
           "seresnext101_32x4d": "depth: 101, se: true, groups: 32, width_per_group: 4",
           "seresnext101_32x8d": "depth: 101, se: true, groups: 32, width_per_group: 8",
           "seresnext101_64x4d": "depth: 101, se: true, groups: 64, width_per_group: 4",
           "seresnext101d_32x8d": "depth: 101, se: true, groups: 32, width_per_group: 8, stem: deep, avg_down: true"}
MOBILE = {"mobilenetv3_large_100": "", "mobilenetv3_small_100": ", size: s"}
EFFICIENT = {"efficientnet_b0": "", "efficientnet_b1": ", size: b1", "efficientnet_b2": ", size: b2"}
VITS = [(size, patch, side) for size in ("tiny", "small", "base", "large") for patch in (8, 14, 16, 32)
        for side in (224, 256, 384)]
SIZES = {"tiny": "ti", "small": "s", "base": "b", "large": "l"}


def models():
    """(timm's name, side, model)"""
    for name, keys in RESNETS.items():
        yield name, 224, "{name: resnet, %s}" % keys
    for size, patch, side in VITS:
        name = f"vit_{size}_patch{patch}_{side}"
        if timm.is_model(name):
            yield name, side, "{name: vit, size: %s, patch: %d}" % (SIZES[size], patch)
    for size, key in (("tiny", ""), ("small", ", size: s"), ("base", ", size: b")):
        yield f"convnext_{size}", 224, "{name: convnext%s}" % key
    for name, key in MOBILE.items():
        yield name, 224, "{name: mobilenet_v3%s, bn_eps: 1e-5}" % key
        yield "tf_" + name, 224, "{name: mobilenet_v3%s, pad_type: same}" % key
    for name, key in EFFICIENT.items():
        yield name, 224, "{name: efficientnet%s}" % key
        yield "tf_" + name, 224, "{name: efficientnet%s, bn_eps: 1e-3, pad_type: same}" % key


def create(name, device="cpu"):
    with torch.device(device):
        return timm.create_model(name, num_classes=1000, in_chans=3).eval()


def text(net):
    rows = [f"{k} {'x'.join(map(str, v.shape))}\n" for k, v in net.state_dict().items()
            if not k.endswith("num_batches_tracked")]
    return sorted(rows)


FAMILIES = re.compile(r"(wide_)?resne[xt]t?\d+|seresne[xt]t?\d+|vit_(tiny|small|base|large)_patch\d+_\d+|deit_|"
                      r"convnext_(tiny|small|base)|(tf_)?mobilenetv3_(large|small)_100|(tf_)?efficientnet_b[012]")


def of_same_names():
    """{(number, CRC-32): [names]} of what is registered in our families."""
    known = {}
    for name in timm.list_models():
        if FAMILIES.match(name):
            rows = text(create(name, "meta"))
            known.setdefault((len(rows), zlib.crc32("".join(rows).encode())), []).append(name)
    return known


def weights(net):
    g = torch.Generator().manual_seed(0)
    return {k: v if v.dim() == 0 else torch.rand(v.shape, generator=g) * (0.5 if v.dim() == 1 else 0.1) +
            (0.75 if v.dim() == 1 else -0.05) for k, v in net.state_dict().items()}


@torch.no_grad()
def same_logits(a, b, side):
    state = weights(a)
    a.load_state_dict(state)
    b.load_state_dict(state)
    x = torch.randn(1, 3, side, side, generator=torch.Generator().manual_seed(1))
    y, z = a(x), b(x)
    return bool((y - z).abs().max() <= 1e-4 * y.abs().max())


def main():
    if len(sys.argv) > 1:
        return sys.stdout.write("".join(text(create(sys.argv[1], "meta"))))
    known = of_same_names()
    with open(os.path.join(HERE, "timm_names.txt"), "w") as f:
        print(f"# make_timm_names.py, timm {timm.__version__}: name, tensors, CRC-32 of names and shapes, side, model", file=f)
        for first, side, model in models():
            rows = text(create(first, "meta"))
            key = (len(rows), zlib.crc32("".join(rows).encode()))
            for name in known[key]:
                if name == first or same_logits(create(first), create(name), side):
                    print(f"{name} {key[0]} {key[1]:08x} {side} {model}", file=f, flush=True)
                else:
                    print(f"{name} has the tensors of {first}, and computes otherwise", file=sys.stderr)


main()
