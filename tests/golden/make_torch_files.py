#!/usr/bin/env python3
"""Files as PyTorch and timm write them, small, and what is in them: torch_files/*.pth and torch_files/expected.safetensors.

    kinds.pth, protocol4.pth    all element types, views that are not contiguous, a tied and an empty tensor, a parameter, within
                      {"state_dict": …, "optimizer": …, "epoch": …}
    vit_timm.pth      timm's Vision Transformer of 32x32 images in float16, under "module."; expected has its logits for
                      64x32 images, after timm resized the positions
    resized.*         positions by torch's own interpolate, larger, smaller and oblong
    legacy.pth, module.pth, namespace.pth, namespace4.pth, script.pt    what is refused

test_golden_torch.c compares.  make_torch_files.py (torch, timm, numpy, safetensors)
"""
import argparse
import os

import numpy as np
import timm
import torch
import torch.nn.functional as F
from formula import mixed
from safetensors.torch import save_file
from timm.layers import resample_abs_pos_embed

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_files")


def formula(shape, salt):
    n = int(np.prod(shape))
    return torch.from_numpy((2 * mixed(n, salt) - 1).astype(np.float32)).reshape(shape)


def kinds():
    base = formula((4, 6), 1)
    state = {"f32": base[:2], "f64": base.double(), "f16": base.half(), "bf16": base.bfloat16(),
             "transposed": base.t(), "strided": base[1:, ::2], "column": base[:, 3], "scalar": torch.tensor(1.5),
             "empty": torch.zeros(0, 5), "tied": base, "parameter": torch.nn.Parameter(formula((3,), 2)),
             "channels_last": formula((2, 3, 2, 2), 3).to(memory_format=torch.channels_last),
             "expanded": formula((1, 3), 4).expand(2, 3),
             "i64": torch.tensor([-3, 1 << 20]), "i32": torch.tensor([-7, 9], dtype=torch.int32),
             "i16": torch.tensor([-300, 9], dtype=torch.int16), "i8": torch.tensor([-3, 9], dtype=torch.int8),
             "u8": torch.tensor([3, 200], dtype=torch.uint8), "bool": torch.tensor([True, False])}
    optimizer = {"state": {0: {"step": torch.tensor(3.0), "exp_avg": formula((3,), 5)}},
                 "param_groups": [{"lr": 1e-3, "betas": (0.9, 0.999), "params": [0, 1]}]}
    whole = {"epoch": 3, "big": 1 << 40, "negative": -5, "none": None, "state_dict": state, "optimizer": optimizer}
    torch.save(whole, os.path.join(HERE, "kinds.pth"))
    torch.save(whole, os.path.join(HERE, "protocol4.pth"), pickle_protocol=4)
    return {"kinds/" + k: v.detach().float().contiguous().clone() for k, v in state.items()}


def vit():
    make = lambda size: timm.models.VisionTransformer(img_size=size, patch_size=8, embed_dim=16, depth=2, num_heads=2,
                                                      num_classes=5)
    net, large = make((32, 32)), make((64, 32))
    state = {k: formula(v.shape, 100 + i).mul(0.3 if v.dim() > 1 else 0.1).add(1.0 if "norm" in k and "weight" in k else 0)
             .half().float() for i, (k, v) in enumerate(sorted(net.state_dict().items()))}
    net.load_state_dict(state)
    torch.save({"module." + k: v.half() for k, v in state.items()}, os.path.join(HERE, "vit_timm.pth"))
    large.load_state_dict({**state, "pos_embed": resample_abs_pos_embed(state["pos_embed"], (8, 4))})
    image = torch.from_numpy(np.floor(mixed(3 * 64 * 32 * 3, 1) * 256).astype(np.float32).reshape(3, 64, 32, 3))
    x = ((image / 255 - 0.5) / 0.25).permute(0, 3, 1, 2)
    with torch.no_grad():
        return {"vit/logits": large.eval()(x)}


def resized():
    grid = formula((1, 5, 5, 3), 9).permute(0, 3, 1, 2)
    out = {"resized/from": grid.permute(0, 2, 3, 1).contiguous()}
    for h, w in ((8, 8), (3, 3), (2, 9), (1, 1)):
        y = F.interpolate(grid, size=(h, w), mode="bicubic", antialias=True)
        out[f"resized/{h}x{w}"] = y.permute(0, 2, 3, 1).contiguous()
    return out


def refused():
    save = lambda name, x, **o: torch.save(x, os.path.join(HERE, name), **o)
    save("legacy.pth", {"a": torch.ones(2)}, _use_new_zipfile_serialization=False)
    save("module.pth", torch.nn.Linear(1, 1))
    save("namespace4.pth", {"args": argparse.Namespace(lr=1), "model": {"a": torch.ones(2)}}, pickle_protocol=4)
    save("namespace.pth", {"args": argparse.Namespace(lr=1), "model": {"a": torch.ones(2)}})
    torch.jit.save(torch.jit.script(torch.nn.Linear(1, 1)), os.path.join(HERE, "script.pt"))


def main():
    os.makedirs(HERE, exist_ok=True)
    refused()
    out = {**kinds(), **vit(), **resized()}
    save_file(out, os.path.join(HERE, "expected.safetensors"), metadata={"torch": torch.__version__, "timm": timm.__version__})
    os.chmod(os.path.join(HERE, "expected.safetensors"), 0o644)
    for name in sorted(os.listdir(HERE)):
        print(name, os.path.getsize(os.path.join(HERE, name)))


main()
