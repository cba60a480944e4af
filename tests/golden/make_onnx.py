#!/usr/bin/env python3
"""Networks exported by PyTorch, and what onnxruntime and PyTorch answer: for model.onnx.

Writes onnx/<name>.onnx (small networks) and onnx_import.safetensors beside this script: <side>/x (N,H,W,C),
<name>/logits by onnxruntime and, of a loss of cross-entropy with labels n % K, <name>/grad/<tensor>: norm and eight
elements of PyTorch's gradient, for tensors whose name the export kept, and <name>/count: parameters.
test_golden_onnx_import.c compares.

Run by hand (needs torch, torchvision, onnx, onnxscript, onnxruntime, numpy, safetensors):
    make_onnx.py                  the committed files
    make_onnx.py NAME …           those of them, the others stay
    make_onnx.py --full DIR       resnet18, mobilenet_v3, vit_b_16 and convnext_tiny in full size into DIR; then
    GOLDEN_ONNX=DIR build/test_golden_onnx_import
"""
import argparse
import os
from functools import partial

import numpy as np
import onnx
import onnxruntime
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision.models as models
from safetensors.numpy import load_file, save_file
from torchvision.models.convnext import CNBlockConfig
from torchvision.models.mobilenetv3 import InvertedResidualConfig

HERE = os.path.dirname(os.path.abspath(__file__))
PROBES = 8


def convnext():
    return models.ConvNeXt([CNBlockConfig(8, 16, 1), CNBlockConfig(16, None, 2)], stochastic_depth_prob=0, num_classes=5)


def mobilenet():
    row = partial(InvertedResidualConfig, width_mult=1.0)
    return models.MobileNetV3([row(16, 3, 24, 16, True, "RE", 2, 1), row(16, 5, 32, 16, True, "HS", 1, 1)], 32,
                              num_classes=5)


def resnet():
    net = models.ResNet(models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=5)
    net.conv1, net.bn1 = nn.Conv2d(3, 8, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(8)
    net.inplanes = 8
    net.layer1, net.layer2 = (net._make_layer(models.resnet.BasicBlock, c, 1, s) for c, s in ((8, 1), (16, 2)))
    net.layer3 = net.layer4 = nn.Identity()
    net.fc = nn.Linear(16, 5)
    return net


def vit():
    return models.VisionTransformer(image_size=32, patch_size=8, num_layers=1, num_heads=2, hidden_dim=16, mlp_dim=32,
                                    num_classes=5)


class Shared(nn.Module):
    """A fresh network, whose norms and zero biases exporters merge, and a layer that really is applied twice."""

    def __init__(self, d=16):
        super().__init__()
        self.conv = nn.Conv2d(3, d, 8, 8)
        self.norm1, self.tied = nn.LayerNorm(d), nn.Linear(d, d)  # in the order of forward (names_in)
        self.norm2, self.fc1, self.fc2 = nn.LayerNorm(d), nn.Linear(d, d), nn.Linear(d, d)
        self.norm3, self.head = nn.LayerNorm(d), nn.Linear(d, 5)

    def forward(self, x):
        x = self.norm1(self.conv(x).flatten(2).transpose(1, 2))
        x = self.norm2(x + self.tied(F.relu(self.tied(x))))
        return self.head(self.norm3(x + self.fc2(F.relu(self.fc1(x)))).mean(1))


def pool():
    return nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.ReLU(), nn.AvgPool2d(2, ceil_mode=True), nn.AvgPool2d(3, 2, 1),
                         nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False), nn.Flatten(), nn.Linear(36, 5))


def wide_pool():
    """Windows of 16 x 16, which adaptive pooling becomes."""
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.AdaptiveMaxPool2d(2), nn.Flatten(), nn.Linear(16, 5))


class Odd(nn.Module):
    """Sizes that are no whole numbers, windows that begin behind the image, a norm without bias, other choices than Softplus's."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 4, 5, 3), nn.LayerNorm(10, bias=False), nn.Linear(24, 5)

    def forward(self, x):
        x = self.conv(x)  # 10 x 10
        ends = [F.max_pool2d(x[:, :, :9, :9], 2, *window, ceil_mode=True) for window in ((3, 0), (2, 1))]
        z = 30 * x
        parts = [F.interpolate(x, scale_factor=0.7, mode="bilinear"), torch.where(x > 0, x, F.softplus(x)),
                 torch.where(z > 20, -z, F.softplus(z)) / 30, self.norm(x), *ends]
        return self.head(torch.cat([p.mean((2, 3)) for p in parts], 1))


def shared():
    net = Shared()
    for m in (net.fc1, net.fc2, net.tied):
        nn.init.zeros_(m.bias)
    return net


def names_in(path, net):
    """By name of PyTorch: the parameter that model.onnx makes of it. Equal ones are in the order of the nodes."""
    made, n = {}, {}
    weights = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
    for name, p in net.named_parameters():
        x = p.detach().numpy()
        root = next(k for k, v in weights.items() if v.shape in (x.shape, x.shape[::-1]) and
                    (np.array_equal(v, x) or (x.ndim == 2 and np.array_equal(v.T, x))))
        n[root] = n.get(root, 0) + 1
        made[name] = f"{root}@{n[root]}" if n[root] > 1 else root
    return made


# name: network, side, samples, how it was exported: (new exporter, operator set)
SMALL = {"resnet_13": (resnet, 32, 3, (False, 13)), "resnet_21": (resnet, 32, 3, (True, 21)),
         "mobilenet_13": (mobilenet, 32, 3, (False, 13)), "mobilenet_18": (mobilenet, 32, 3, (True, 18)),
         "convnext_13": (convnext, 32, 3, (False, 13)), "convnext_18": (convnext, 32, 3, (True, 18)),
         "vit_14": (vit, 32, 3, (False, 14)), "vit_20": (vit, 32, 3, (True, 20)),
         "shared_17": (shared, 32, 3, (False, 17)),
         "shared_18": (shared, 32, 3, (True, 18)), "pool_19": (pool, 32, 3, (False, 19)),
         "odd_17": (Odd, 32, 3, (False, 17)), "odd_20": (Odd, 32, 3, (True, 20)),
         "wide_pool_20": (wide_pool, 32, 3, (True, 20))}
FULL = {f"{n}_{how[1]}{'d' if how[0] else ''}": (f, 224, 2, how)
        for n, f in (("resnet18", models.resnet18), ("mobilenet_v3", models.mobilenet_v3_large),
                     ("vit_b_16", models.vit_b_16), ("convnext_tiny", models.convnext_tiny))
        for how in ((False, 17), (True, 18))}


def randomise(net):
    for name, b in net.named_buffers():
        if b.dtype.is_floating_point:
            b.copy_(torch.rand_like(b) * 0.5 + (0.5 if name.endswith("var") else -0.25))
    for name, p in net.named_parameters():
        if p.dim() == 1:  # the exporter makes one of tensors that are equal
            nn.init.normal_(p, 1.0 if name.endswith("weight") else 0.0, 0.2)
        elif p.abs().max() == 0 or "layer_scale" in name:
            nn.init.normal_(p, 0, 0.2)


def export(net, x, path, new, opset):
    if new:
        torch.onnx.export(net, (x,), path, dynamo=True, opset_version=opset, external_data=False,
                          dynamic_shapes=({0: torch.export.Dim("n")},), input_names=["image"], output_names=["logits"])
    else:
        torch.onnx.export(net, (x,), path, dynamo=False, opset_version=opset, dynamic_axes={"image": {0: "n"}},
                          input_names=["image"], output_names=["logits"])


def strip(path):
    """Without what tells where in Python each node came from."""
    m = onnx.load(path)
    for n in m.graph.node:
        del n.metadata_props[:]
        n.doc_string = ""
    for v in [*m.graph.input, *m.graph.output, *m.graph.initializer]:
        v.doc_string = ""
        del v.metadata_props[:]
    del m.graph.value_info[:], m.graph.metadata_props[:], m.metadata_props[:], m.functions[:]
    onnx.save(m, path)
    os.chmod(path, 0o644)


def probes(t):
    flat = t.detach().double().reshape(-1).numpy()
    at = (np.arange(PROBES) * (flat.size // PROBES)).clip(0, flat.size - 1)
    return np.concatenate(([np.sqrt((flat**2).sum())], flat[at])).astype(np.float32)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--full", metavar="DIR")
    a.add_argument("names", nargs="*")
    o = a.parse_args()
    folder, out = o.full or os.path.join(HERE, "onnx"), {}
    if o.names:
        out = load_file(os.path.join(HERE, "onnx_import.safetensors"))
    os.makedirs(folder, exist_ok=True)
    for name, (build, side, n, how) in (FULL if o.full else SMALL).items():
        if o.names and name not in o.names:
            continue
        torch.manual_seed(3)
        net = build().eval()
        if build != shared:
            with torch.no_grad():
                randomise(net)
        x = torch.randn(n, 3, side, side, generator=torch.Generator().manual_seed(7))
        path = os.path.join(folder, name + ".onnx")
        export(net, x, path, *how)
        strip(path)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        logits, = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        assert np.allclose(logits, net(x).detach().numpy(), atol=1e-4), name
        out[f"{side}/x"] = np.ascontiguousarray(x.permute(0, 2, 3, 1).numpy())
        out[f"{name}/logits"] = logits
        loss = F.cross_entropy(net(x), torch.arange(n) % logits.shape[1])
        loss.backward()
        # The new exporter keeps more names; batch norms go into convolutions, whose weights are then others.
        if how[0] and not any(isinstance(m, nn.BatchNorm2d) for m in net.modules()):
            out.update({f"{name}/grad/{k}": probes(p.grad) for k, p in net.named_parameters() if p.grad is not None})
        if build == shared:
            known = names_in(path, net) if how[0] else {k: k for k, _ in net.named_parameters()}
            out.update({f"{name}/grad/{known[k]}": probes(p.grad) for k, p in net.named_parameters()})
            out[f"{name}/count"] = np.array([sum(p.numel() for p in net.parameters())], np.float32)
        print(name, os.path.getsize(path), np.abs(logits).max(), flush=True)
    path = os.path.join(folder if o.full else HERE, "onnx_import.safetensors")
    save_file(out, path, metadata={"torch": torch.__version__, "onnxruntime": onnxruntime.__version__})
    os.chmod(path, 0o644)


if __name__ == "__main__":
    main()
