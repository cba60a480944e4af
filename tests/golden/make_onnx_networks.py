#!/usr/bin/env python3
"""Eleven networks of different kinds, as both exporters of PyTorch write them, and one training step of each: for model.onnx.

Writes onnx_networks/<network>_<exporter>.onnx, with the calls of docs/reference/models.md, and onnx_networks.safetensors
beside this script: <network>/x (fields as dtrain has them), <network>/logits before the step, <network>/loss, and
<network>/after/<tensor>: norm and eight elements of each weight after a step of SGD on
cross-entropy with labels n % 5, at rate 0.1, with a weight decay of 0.01 of what is no vector. test_golden_onnx_networks.c compares.

Run by hand (needs torch, torchvision, timm, onnx, onnxscript, numpy, safetensors):
    make_onnx_networks.py [NAME …]       the committed files, or those of these networks
    make_onnx_networks.py --step         the steps alone
    make_onnx_networks.py --docs DIR     runs the calls of the docs alone, into DIR (test_onnx_calls.sh)
"""
import os
import re
import sys

import numpy as np
import timm
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision.models as models
from safetensors.numpy import load_file, save_file
from torchvision.models.regnet import BlockParams, RegNet

from make_onnx import probes, randomise, strip

HERE = os.path.dirname(os.path.abspath(__file__))
N, RATE = 4, 0.1


def unit(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(0.1))


class UNet(nn.Module):
    """With concatenations, both ways up, and a pooled head."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = unit(3, 6), unit(6, 8), unit(8, 12)
        self.up1, self.up2 = nn.ConvTranspose2d(12, 8, 2, 2), nn.Upsample(scale_factor=2, mode="bilinear")
        self.d, self.e = unit(16, 8), unit(14, 6)
        self.norm, self.act, self.head = nn.GroupNorm(3, 6), nn.PReLU(6), nn.Linear(6, 5)

    def forward(self, x):
        a = self.a(x)
        b = self.b(F.max_pool2d(a, 2))
        d = self.d(torch.cat((self.up1(self.c(F.max_pool2d(b, 2))), b), 1))
        e = self.e(torch.cat((self.up2(d), a), 1))
        return self.head(self.act(self.norm(e)).mean((2, 3)))


class TCN(nn.Module):
    """Causal convolutions along time with growing dilation."""

    def __init__(self, c=8):
        super().__init__()
        self.first = nn.Conv1d(2, c, 1)
        self.convs = nn.ModuleList(nn.Conv1d(c, c, 3, dilation=2**i) for i in range(3))
        self.norms = nn.ModuleList(nn.BatchNorm1d(c) for i in range(3))
        self.head = nn.Linear(c, 5)

    def forward(self, x):
        x = self.first(x.reshape(x.shape[0], 2, -1))
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms)):
            x = x + F.elu(norm(conv(F.pad(x, (2 * 2**i, 0)))))
        return self.head(x[:, :, -1])


class PointNet(nn.Module):
    """On 24 points, as a vector of numbers: a small transform of the points, shared layers, the largest of all."""

    def __init__(self):
        super().__init__()
        self.t = nn.Linear(3, 9)
        self.conv1, self.conv2, self.conv3 = nn.Conv1d(3, 8, 1), nn.Conv1d(8, 16, 1), nn.Conv1d(16, 32, 1)
        self.bn1, self.bn2, self.bn3, self.bn4 = (nn.BatchNorm1d(c) for c in (8, 16, 32, 16))
        self.fc1, self.fc2, self.drop = nn.Linear(32, 16), nn.Linear(16, 5), nn.Dropout(0.0)

    def forward(self, x):
        x = x.view(-1, 24, 3).transpose(1, 2)
        t = self.t(x.mean(2)).view(-1, 3, 3)
        x = torch.einsum("ncp,ndc->ndp", x, torch.tanh(t))
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.softplus(self.bn2(self.conv2(x)))
        x = torch.max(self.bn3(self.conv3(x)), 2)[0]
        return self.fc2(self.drop(F.relu(self.bn4(self.fc1(x)))))


class Gates(nn.Module):
    """Where, clamp, max, min and softmax in each of their forms: known masks, conditions on what is computed, bounds of any size."""

    def __init__(self, c=6):
        super().__init__()
        self.a, self.b, self.head = nn.Conv2d(3, c, 4, 4), nn.Conv2d(3, c, 4, 4), nn.Linear(c, 5)
        self.register_buffer("channels", torch.tensor([1, 0, 1, 0, 0, 1]).bool().view(c, 1, 1))
        self.register_buffer("places", torch.ones(64, 64).triu(1).bool())
        self.least = nn.Parameter(torch.randn(c, 1, 1))

    def forward(self, x):
        a, b = self.a(x), self.b(x)
        y = torch.maximum(torch.maximum(a, b), self.least) + torch.minimum(a * b, b)
        y = y + a.clamp(-0.3, 0.4) + b.clamp(min=-65504.0).clamp(max=1e6) + torch.clamp(a, min=b, max=y)
        y = y + torch.where(self.channels, a, b) + a.masked_fill(self.channels, 0.5)
        score = (a.flatten(2).transpose(1, 2) @ b.flatten(2)).masked_fill(self.places, float("-inf"))
        y = y + (b.flatten(2) @ score.softmax(-1).transpose(1, 2)).view_as(y)
        y = y + torch.where((a.relu() >= 0) & ~(b.relu() < 0.2) | self.channels, a * b, b) + torch.where(a.relu() == 0, 0.1 * b, a)
        y = y + torch.where((a.relu() <= 0) | (b > a), 2.0, b) * a + (b.relu() > 0).float() * b + b.abs() + F.hardshrink(a)
        return self.head((y + (a * b).softmax(1)).mean((2, 3)))


IMAGE = (3, 32, 32)
NETWORKS = {
    "unet": (UNet, IMAGE),
    "densenet": (lambda: models.DenseNet(4, (2, 2), 8, bn_size=2, num_classes=5), IMAGE),
    "shufflenet": (lambda: models.ShuffleNetV2([1, 1, 1], [8, 16, 24, 32, 32], num_classes=5), IMAGE),
    "regnet": (lambda: RegNet(BlockParams.from_init_params(3, 8, 8, 2, 4, se_ratio=0.25), num_classes=5, stem_width=8), IMAGE),
    "swin": (lambda: timm.models.swin_transformer.SwinTransformer(img_size=32, patch_size=4, num_classes=5, embed_dim=8, depths=(2, 2),
                                                                  num_heads=(2, 2), window_size=4, drop_path_rate=0), IMAGE),
    "tcn": (TCN, (48,)),
    "pointnet": (PointNet, (72,)),
    "mixer": (lambda: timm.models.mlp_mixer.MlpMixer(5, 32, 3, 8, 2, 16), IMAGE),
    "convmixer": (lambda: timm.models.convmixer.ConvMixer(12, 2, kernel_size=5, patch_size=4, num_classes=5), IMAGE),
    "vit": (lambda: timm.models.vision_transformer.VisionTransformer(32, 8, num_classes=5, embed_dim=16, depth=2, num_heads=2, init_values=0.1),
            IMAGE),
    "gates": (Gates, IMAGE),
}


def calls():
    """The calls of docs/reference/models.md, by exporter: what is behind `# torchscript` and `# dynamo` there."""
    text = open(os.path.join(HERE, "../../docs/reference/models.md")).read()
    return {k: v for k, v in re.findall(r"^# (torchscript|dynamo)\b.*\n((?:(?!```).+\n)+)", text, re.M)}


def export(net, x, path, exporter):
    os.chdir(os.path.dirname(path))
    exec(calls()[exporter], {"torch": torch, "net": net, "x": x})
    os.rename("net.onnx", path)


def build(name):
    torch.manual_seed(3)
    net = NETWORKS[name][0]().train()
    with torch.no_grad():
        randomise(net)
    return net, torch.randn(N, *NETWORKS[name][1], generator=torch.Generator().manual_seed(7))


def step(net, x, name, out):
    logits = net(x)
    loss = F.cross_entropy(logits, torch.arange(N) % 5)
    loss.backward()
    groups = [{"params": [p for p in net.parameters() if (p.dim() > 1) == decays], "weight_decay": 0.01 * decays} for decays in (0, 1)]
    torch.optim.SGD(groups, RATE).step()
    out[f"{name}/x"] = np.ascontiguousarray((x.permute(0, 2, 3, 1) if x.dim() == 4 else x).numpy())
    out[f"{name}/logits"], out[f"{name}/loss"] = logits.detach().numpy(), np.array([loss.item()], np.float32)
    out.update({f"{name}/after/{k}": probes(p) for k, p in net.named_parameters() if p.numel() > 1})


def main():
    names = [a for a in sys.argv[1:] if a in NETWORKS] or list(NETWORKS)
    folder, out = os.path.join(HERE, "onnx_networks"), {}
    if "--docs" in sys.argv:
        folder, names = os.path.abspath(sys.argv[sys.argv.index("--docs") + 1]), ["unet"]
    elif len(names) < len(NETWORKS) or "--step" in sys.argv:
        out = load_file(os.path.join(HERE, "onnx_networks.safetensors")) if "--step" not in sys.argv else {}
    os.makedirs(folder, exist_ok=True)
    for name in names:
        for exporter in ("torchscript", "dynamo") if "--step" not in sys.argv else ():
            net, x = build(name)
            path = os.path.join(folder, f"{name}_{exporter}.onnx")
            export(net, x, path, exporter)
            strip(path)
            print(name, exporter, os.path.getsize(path), flush=True)
        step(*build(name), name, out)
    if "--docs" not in sys.argv:
        path = os.path.join(HERE, "onnx_networks.safetensors")
        save_file(out, path, metadata={"torch": torch.__version__, "timm": timm.__version__})
        os.chmod(path, 0o644)


main()
