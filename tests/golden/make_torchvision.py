#!/usr/bin/env python3
"""torchvision's own ResNets and Vision Transformers (float64): logits, gradients, five optimizer steps.

Writes torchvision.safetensors and resnet_small.safetensors beside this script; test_golden_torchvision.c
compares. Weights and images are a formula of their position (mixed() of formula.py), the same in C, so the first
file holds results only: logits, the loss of each step, and per tensor ten numbers (norm, a dot product
with a formula, eight elements) of its gradient and of its value after five steps, running statistics
included. The second is a state dict as torchvision saves it, of a narrow ResNet, for model.init.

Run by hand (needs torch, torchvision, timm, numpy, safetensors):
    make_torchvision.py                       the committed files
    make_torchvision.py --float32             what float32 alone differs by: the measure of tolerances
    make_torchvision.py --full FILE           all models at 224 x 224 and 1000 classes, into FILE; then
    GOLDEN_TORCHVISION=FILE build/test_golden_torchvision
"""
import argparse
import os

import numpy as np
import timm
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision
import torchvision.models as models
from formula import mixed, weights
from safetensors.numpy import load_file, save_file
from torchvision.models.resnet import BasicBlock, ResNet

HERE = os.path.dirname(os.path.abspath(__file__))
PROBES = 8
# The bias of keys has no gradient but rounding: Adam's eps must be well above that.
LR = {"sgd": 0.002, "adamw": 1e-3}


def image(n, side):
    x = np.floor(mixed(n * side * side * 3, 1) * 256).reshape(n, side, side, 3)
    return ((torch.from_numpy(x) / 255 - 0.5) / 0.25).permute(0, 3, 1, 2).contiguous()


def label(n, classes):
    return torch.from_numpy(np.floor(mixed(n, 3) * classes).astype(np.int64))


def probes(t):
    flat = t.detach().double().reshape(-1).numpy()
    at = (np.arange(PROBES) * (flat.size // PROBES)).clip(0, flat.size - 1)
    dot = flat @ (2 * mixed(flat.size, 7) - 1)
    return np.concatenate(([np.sqrt((flat**2).sum()), dot], flat[at])).astype(np.float32)


def optimizer(net, kind):
    # No decay of norms, biases, class token and positions: dtrain's rule (torchvision's training script
    # decays the last two).
    plain = [n for n, p in net.named_parameters() if p.dim() == 1 or n in ("class_token", "encoder.pos_embedding")]
    groups = [{"params": [p for n, p in net.named_parameters() if n not in plain], "weight_decay": 0.01},
              {"params": [p for n, p in net.named_parameters() if n in plain], "weight_decay": 0.0}]
    return (torch.optim.SGD(groups, lr=LR["sgd"], momentum=0.9) if kind == "sgd" else
            torch.optim.AdamW(groups, lr=LR["adamw"], eps=1e-6))


def run(case, net, kind, n, side, classes, dtype, out, steps=5):
    net = net.to(dtype).train()
    weights(net)
    x, y, opt, losses = image(n, side).to(dtype), label(n, classes), optimizer(net, kind), []
    for step in range(steps):
        opt.zero_grad()
        logits = net(x)
        loss = F.cross_entropy(logits, y)
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            out[f"{case}/logits"] = logits.detach().float().numpy()
            for name, p in net.named_parameters():
                out[f"{case}/grad/{name}"] = probes(p.grad)
        opt.step()
    for name, p in net.state_dict().items():
        if steps > 1 and not name.endswith("num_batches_tracked"):
            out[f"{case}/after/{name}"] = probes(p)
    out[f"{case}/losses"] = np.array(losses, dtype=np.float32)
    print(case, losses, flush=True)


def tiny_vit():
    return models.VisionTransformer(image_size=32, patch_size=8, num_layers=3, num_heads=4, hidden_dim=64,
                                    mlp_dim=256, num_classes=10)


def resnet_d_se():
    """timm's ResNet-D with squeeze-and-excitation, of basic blocks."""
    return timm.models.resnet.ResNet(timm.models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=10, stem_type="deep",
                                     stem_width=32, avg_down=True, block_args={"attn_layer": "se"})


def plain(build):
    """Without dropout and stochastic depth, which draw random numbers."""
    net = build(num_classes=10)
    for m in net.modules():
        if isinstance(m, nn.Dropout):
            m.p = 0.0
        elif isinstance(m, torchvision.ops.StochasticDepth):
            m.p = 0.0
    return net


# The same names, sizes and optimizers as in test_golden_torchvision.c.
SMALL = {"resnet18": (lambda: models.resnet18(num_classes=10), "sgd", 4, 64, 10),
         "resnet50": (lambda: models.resnet50(num_classes=10), "sgd", 4, 64, 10),
         "vit": (tiny_vit, "adamw", 4, 32, 10)}
# One step: logits and gradients.
ONCE = {"resnet_d_se": (resnet_d_se, "sgd", 4, 64, 10),
        "convnext": (lambda: plain(models.convnext_tiny), "sgd", 2, 64, 10),
        "mobilenet_v3_l": (lambda: plain(models.mobilenet_v3_large), "sgd", 4, 96, 10),
        "mobilenet_v3_s": (lambda: plain(models.mobilenet_v3_small), "sgd", 4, 96, 10),
        "efficientnet_b0": (lambda: plain(models.efficientnet_b0), "sgd", 4, 64, 10)}
FULL = {"resnet18_224": (lambda: models.resnet18(), "sgd", 4, 224, 1000),
        "resnet34_224": (lambda: models.resnet34(), "sgd", 4, 224, 1000),
        "resnet50_224": (lambda: models.resnet50(), "sgd", 4, 224, 1000),
        "vit_b_16": (lambda: models.vit_b_16(), "adamw", 2, 224, 1000)}


class Narrow(ResNet):
    """torchvision's ResNet with one block a stage and 4, 8, 16, 32 channels."""

    def _make_layer(self, block, planes, blocks, stride=1, dilate=False):
        if planes == 64:
            self.inplanes = 4
            self.conv1, self.bn1 = nn.Conv2d(3, 4, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(4)
        return super()._make_layer(block, planes // 16, blocks, stride, dilate)

    def __init__(self):
        super().__init__(BasicBlock, [1, 1, 1, 1])
        self.fc = nn.Linear(32, 7)


def small_state(out):
    """A state dict with moved running statistics, and what its network answers in evaluation."""
    torch.manual_seed(1)
    net, x = Narrow(), image(3, 32).float()
    net.train()
    with torch.no_grad():
        for _ in range(3):
            net(x)
        net.eval()
        out["narrow/logits"] = net(x).numpy()
    state = {k: v.numpy() for k, v in net.state_dict().items()}
    save_file(state, os.path.join(HERE, "resnet_small.safetensors"), metadata={"format": "pt"})
    os.chmod(os.path.join(HERE, "resnet_small.safetensors"), 0o644)


def compare(out, want):
    for case in sorted({k.split("/")[0] for k in out}):
        worst = {}
        for k, v in out.items():
            part = k.split("/")[1]
            if k.startswith(case + "/"):
                scale = lambda a: max(np.abs(a).max(), 1e-30)
                d = np.abs(v - want[k])
                e = d.max() / scale(want[k]) if part in ("logits", "losses") else max(
                    d[0] / scale(want[k][0]), d[2:].max() / scale(want[k][2:]))
                if e > worst.get(part, (0, ""))[0]:
                    worst[part] = (e, k)
        for part, (e, k) in worst.items():
            print(f"float32 against float64, {case} {part}: {e:.2e} of the largest ({k})")


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--float32", action="store_true")
    a.add_argument("--only", default="", help="cases whose names begin so")
    a.add_argument("--full", metavar="FILE")
    o = a.parse_args()
    out, path = {}, o.full or os.path.join(HERE, "torchvision.safetensors")
    for case, (build, *rest) in (FULL if o.full else SMALL).items():
        if case.startswith(o.only):
            run(case, build(), *rest, torch.float32 if o.float32 else torch.float64, out)
    for case, (build, *rest) in ({} if o.full else ONCE).items():
        if case.startswith(o.only):
            run(case, build(), *rest, torch.float32 if o.float32 else torch.float64, out, steps=1)
    if o.float32:
        compare(out, load_file(path))
        return
    if not o.full:
        small_state(out)
    save_file(out, path, metadata={"torch": torch.__version__, "torchvision": torchvision.__version__})
    os.chmod(path, 0o644)
    print(f"{path}: {len(out)} tensors, {os.path.getsize(path) / 1024:.0f} KiB")


main()
