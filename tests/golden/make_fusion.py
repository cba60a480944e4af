#!/usr/bin/env python3
"""The whole fusion network, and the MLP, in PyTorch (float64): logits, gradients and five AdamW steps.

Writes fusion.safetensors beside this script; test_golden_fusion.c compares. Weights and images are a
formula of their position (mixed() of formula.py), the same in C, so the file holds results only: logits, the
loss of each step, and per parameter the norm and eight elements of its gradient and of its value after
five steps. Run by hand (needs torch, numpy, safetensors); --float32 shows what float32 alone differs by.
"""
import argparse
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from formula import mixed, weights
from safetensors.numpy import save_file

N, CLASSES, PROBES = 4, 45, 8


def encoder(channels):
    layers = []
    for i, o in zip((channels, 32, 64, 128), (32, 64, 128, 256)):
        layers += [nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 384), nn.ReLU(), nn.Linear(384, 256))


class Fusion(nn.Module):
    def __init__(self):
        super().__init__()
        self.fingerprint, self.iris = encoder(1), encoder(3)
        self.head = nn.Sequential(nn.Linear(512, 256), nn.ReLU(), nn.Dropout(0.0), nn.Linear(256, CLASSES))

    def forward(self, fingerprint, iris):
        return self.head(torch.cat((self.fingerprint(fingerprint), self.iris(iris)), 1))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(7, 16), nn.Linear(16, 16), nn.ModuleDict({"subject": nn.Linear(16, CLASSES)})

    def forward(self, x, y):
        h = torch.cat((x, y[:, None]), 1)
        return self.fc3["subject"](F.relu(self.fc2(F.relu(self.fc1(h)))))


def numbers(shape, salt):
    return torch.from_numpy((2 * mixed(int(np.prod(shape)), salt) - 1).astype(np.float32)).reshape(shape)


def image(h, w, c, salt):
    x = np.floor(mixed(N * h * w * c, salt) * 256).reshape(N, h, w, c)
    return (torch.from_numpy(x) / 255 - 0.5).permute(0, 3, 1, 2).contiguous() / 0.25


def probes(t):
    flat = t.detach().double().reshape(-1).numpy()
    at = (np.arange(PROBES) * (flat.size // PROBES)).clip(0, flat.size - 1)
    return np.concatenate(([np.sqrt((flat**2).sum())], flat[at])).astype(np.float32)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--float32", action="store_true")
    dtype = torch.float32 if a.parse_args().float32 else torch.float64
    out = {}
    train(out, "fusion", Fusion().to(dtype), (image(26, 24, 1, 1).to(dtype), image(24, 32, 3, 2).to(dtype)))
    train(out, "mlp", Mlp().to(dtype), (numbers((N, 6), 4).to(dtype), numbers((N,), 5).to(dtype)))
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fusion.safetensors")
    if dtype == torch.float64:
        save_file(out, path, metadata={"torch": torch.__version__})
        os.chmod(path, 0o644)
        print(f"{path}: {len(out)} tensors, {os.path.getsize(path) / 1024:.0f} KiB")
        return
    from safetensors.numpy import load_file
    want = load_file(path)
    for group in ("fusion/logits", "mlp/logits", "grad/", "after/"):
        worst = max(np.abs(out[k] - want[k]).max() / np.abs(want[k]).max() for k in want if k.startswith(group))
        print(f"float32 against float64, {group}: {worst:.2e} of the largest")


def train(out, network, net, inputs):
    weights(net)
    label = torch.from_numpy(np.floor(mixed(N, 3) * CLASSES).astype(np.int64))
    opt = torch.optim.AdamW([
        {"params": [p for p in net.parameters() if p.dim() > 1], "weight_decay": 0.01},
        {"params": [p for p in net.parameters() if p.dim() == 1], "weight_decay": 0.0}], lr=1e-3)
    losses = []
    for step in range(5):
        opt.zero_grad()
        logits = net(*inputs)
        loss = F.cross_entropy(logits, label)
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            out[network + "/logits"] = logits.detach().float().numpy()
            for name, p in net.named_parameters():
                out["grad/" + name] = probes(p.grad)
        opt.step()
    for name, p in net.named_parameters():
        out["after/" + name] = probes(p)
    out[network + "/losses"] = np.array(losses, dtype=np.float32)


main()
