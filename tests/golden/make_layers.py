#!/usr/bin/env python3
"""Each layer of model.layers beside PyTorch's: at its defaults, and with each key.

Writes layers.safetensors beside this script. For a case: <case>/layers, the YAML of model.layers as bytes; <case>/out, what
PyTorch's evaluation gives for x, flattened; <case>/param/<tensor>, its weights and statistics by the names that
dtrain gives them; and <case>/attribute/<name> where evaluation does not show a value. And x (N,H,W,C).
test_golden_layers.c compares. It wants every layer and key of models/layer_types.def in some case.

Run by hand (needs torch, torchvision, numpy, safetensors): python3 tests/golden/make_layers.py
"""
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.numpy import save_file
from torchvision.ops import SqueezeExcitation

N, C, H, W = 2, 6, 8, 7
out = {}


def case(name, layers, *modules, attributes=(), names=None):
    """layers: YAML without the brackets; modules: the same in PyTorch, at the same places of nn.Sequential."""
    net = nn.Sequential(*modules).eval()
    generator = torch.Generator().manual_seed(len(out))
    with torch.no_grad():
        for key, t in net.state_dict().items():
            if t.dtype.is_floating_point:
                t.copy_(torch.rand(t.shape, generator=generator) * (1e-5 if "running_var" in key else 1) + (
                    0 if "running_var" in key else -0.4))
                mine = key
                for old, new in (names or {}).items():
                    mine = mine.replace(old, new)
                out[f"{name}/param/{mine}"] = t.numpy().copy()
        y = net(x).flatten(1)
    out[f"{name}/layers"] = np.frombuffer(f"[{layers}, flatten]".encode(), np.uint8).copy()
    out[f"{name}/out"] = y.numpy()
    for m, attribute in attributes:
        out[f"{name}/attribute/{attribute}"] = np.array([getattr(m, attribute)], np.float32)


class Fn(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, x):
        return self.f(x)


class Positions(nn.Module):
    def __init__(self, t, d):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(t, d))

    def forward(self, x):
        return x + self.weight


class Attention(nn.Module):
    """As in timm: one projection gives queries, keys and values."""

    def __init__(self, d, heads):
        super().__init__()
        self.qkv, self.proj, self.heads = nn.Linear(d, 3 * d), nn.Linear(d, d), heads

    def forward(self, x):
        n, t, d = x.shape
        q, k, v = self.qkv(x).reshape(n, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, d))


x = torch.randn(N, C, H, W, generator=torch.Generator().manual_seed(1)) * 3
tokens, flat, pooled = Fn(lambda v: v.flatten(2).transpose(1, 2)), nn.Flatten(), Fn(lambda v: v.mean((2, 3)))

case("conv", "{conv: 4}", nn.Conv2d(C, 4, 3))
case("conv_kernel", "{conv: {out: 4, kernel: [2, 5]}}", nn.Conv2d(C, 4, (2, 5)))
case("conv_stride", "{conv: {out: 4, stride: [3, 2]}}", nn.Conv2d(C, 4, 3, stride=(3, 2)))
case("conv_pad", "{conv: {out: 4, pad: [2, 1]}}", nn.Conv2d(C, 4, 3, padding=(2, 1)))
case("conv_dilation", "{conv: {out: 4, dilation: [2, 3]}}", nn.Conv2d(C, 4, 3, dilation=(2, 3)))
case("conv_groups", "{conv: {out: 4, groups: 2}}", nn.Conv2d(C, 4, 3, groups=2))
case("conv_depthwise", "{conv: {out: 6, groups: 6, pad: same}}", nn.Conv2d(C, 6, 3, groups=6, padding="same"))
case("conv_no_bias", "{conv: {out: 4, bias: false}}", nn.Conv2d(C, 4, 3, bias=False))
case("conv_same", "{conv: {out: 4, pad: same}}", nn.Conv2d(C, 4, 3, padding="same"))
case("conv_same_dilated", "{conv: {out: 4, kernel: [5, 3], dilation: 2, pad: same}}",
     nn.Conv2d(C, 4, (5, 3), dilation=2, padding="same"))
case("conv_same_even", "{conv: {out: 4, kernel: [4, 2], pad: same}}", nn.Conv2d(C, 4, (4, 2), padding="same"))
case("conv_same_stride", "{conv: {out: 4, stride: 2, pad: same}}", nn.Conv2d(C, 4, 3, stride=2, padding=1))
case("linear", "flatten, {linear: 5}", flat, nn.Linear(C * H * W, 5))
case("linear_no_bias", "tokens, {linear: {out: 5, bias: false}}", tokens, nn.Linear(C, 5, bias=False))
bn = nn.BatchNorm2d(C)
case("batch_norm", "batch_norm", bn, attributes=[(bn, "eps"), (bn, "momentum")])
case("batch_norm_rows", "global_pool, batch_norm", pooled, nn.BatchNorm1d(C))
bn = nn.BatchNorm2d(C, eps=1e-3, momentum=0.25)
case("batch_norm_keys", "{batch_norm: {eps: 1e-3, momentum: 0.25}}", bn, attributes=[(bn, "eps"), (bn, "momentum")])
small = Fn(lambda v: v * 1e-3)
case("layer_norm", "tokens, {scale: 0.001}, layer_norm", tokens, small, nn.LayerNorm(C))
case("layer_norm_eps", "tokens, {scale: 0.001}, {layer_norm: {eps: 1e-3}}", tokens, small, nn.LayerNorm(C, eps=1e-3))


class ChannelNorm(nn.LayerNorm):
    def forward(self, v):
        return super().forward(v.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


case("layer_norm_channels", "layer_norm", ChannelNorm(C))
for name, m in (("relu", nn.ReLU()), ("relu6", nn.ReLU6()), ("gelu", nn.GELU()), ("silu", nn.SiLU()),
                ("gelu_tanh", nn.GELU("tanh")), ("hardswish", nn.Hardswish()), ("sigmoid", nn.Sigmoid()), ("hardsigmoid", nn.Hardsigmoid())):
    case(name, name, m)
case("softmax", "tokens, softmax", tokens, nn.Softmax(-1))
case("max_pool", "max_pool", nn.MaxPool2d(2))
case("max_pool_keys", "{max_pool: {kernel: 3, stride: [2, 1], pad: 1}}", nn.MaxPool2d(3, (2, 1), 1))
case("avg_pool", "avg_pool", nn.AvgPool2d(2))
case("avg_pool_pad", "{avg_pool: {kernel: [3, 4], pad: 1}}", nn.AvgPool2d((3, 4), padding=1))
case("avg_pool_keys", "{avg_pool: {kernel: 3, stride: [2, 1], pad: 1, count_include_pad: false}}",
     nn.AvgPool2d(3, (2, 1), 1, count_include_pad=False))
case("global_pool", "global_pool", nn.AdaptiveAvgPool2d(1))
dropout = nn.Dropout()
case("dropout", "dropout", dropout, attributes=[(dropout, "p")])
dropout = nn.Dropout(0.3)
case("dropout_p", "{dropout: 0.3}", dropout, attributes=[(dropout, "p")])
case("add", "{relu: , name: a}, {scale: -2}, {add: a}", nn.ReLU(), Fn(lambda v: -v))
case("mul", "{relu: , name: a}, {scale: -2}, {mul: a}", nn.ReLU(), Fn(lambda v: -2 * v * v))
case("concat", "{relu: , name: a}, {scale: -2}, {concat: a}", nn.ReLU(), Fn(lambda v: torch.cat((-2 * v, v), 1)))
case("concat_axis", "{relu: , name: a}, {scale: -2}, {concat: {with: a, axis: 3}}", nn.ReLU(),
     Fn(lambda v: torch.cat((-2 * v, v), 3)))
case("slice", "{slice: 2}", Fn(lambda v: v))
case("slice_keys", "{slice: {axis: 3, begin: 2, end: 7}}", Fn(lambda v: v[..., 2:7]))
case("reshape", "{reshape: [-1, 4, 7]}, {conv: 2}", Fn(lambda v: v.reshape(N, -1, 4, 7)), nn.Conv2d(12, 2, 3))
case("transpose", "{transpose: [0, 3, 1, 2]}", Fn(lambda v: v.permute(0, 3, 1, 2)))
case("positions", "tokens, {positions: }", tokens, Positions(H * W, C), names={".weight": ""})
case("attention", "tokens, {attention: 2}", tokens, Attention(C, 2))
case("squeeze_excite", "{squeeze_excite: 3}", SqueezeExcitation(C, 3))
for name, m in (("tanh", nn.Tanh()), ("softplus", nn.Softplus()), ("erf", Fn(torch.erf)), ("leaky_relu", nn.LeakyReLU()), ("elu", nn.ELU()),
                ("instance_norm", nn.InstanceNorm2d(C))):
    case(name, name, m)
case("leaky_relu_slope", "{leaky_relu: 0.3}", nn.LeakyReLU(0.3))
case("elu_alpha", "{elu: {alpha: 0.4}}", nn.ELU(0.4))
case("prelu", "prelu", nn.PReLU())
case("prelu_each", "{prelu: {num_parameters: 6, init: 0.1}}", nn.PReLU(C, 0.1))
case("prelu_rows", "global_pool, {prelu: 6}", pooled, nn.PReLU(C))
case("group_norm", "{group_norm: 3}", nn.GroupNorm(3, C))
case("group_norm_keys", "{group_norm: {groups: 2, eps: 0.5, affine: false}}", nn.GroupNorm(2, C, 0.5, affine=False))
case("group_norm_one", "global_pool, {group_norm: 1}", pooled, nn.GroupNorm(1, C))
case("instance_norm_keys", "{instance_norm: {eps: 0.5, affine: true}}", nn.InstanceNorm2d(C, 0.5, affine=True))
case("conv_transpose", "{conv_transpose: 4}", nn.ConvTranspose2d(C, 4, 3))
case("conv_transpose_keys", "{conv_transpose: {out: 4, kernel: [2, 3], stride: [3, 2], pad: [0, 1], output_pad: [2, 1], dilation: [1, 2], groups: 2, bias: false}}",
     nn.ConvTranspose2d(C, 4, (2, 3), (3, 2), (0, 1), (2, 1), 2, False, (1, 2)))
case("upsample", "{upsample: 2}", nn.Upsample(scale_factor=2))
case("upsample_size", "{upsample: {size: [5, 16]}}", nn.Upsample(size=(5, 16)))
case("upsample_exact", "{upsample: {size: [5, 16], mode: nearest-exact}}", nn.Upsample(size=(5, 16), mode="nearest-exact"))
case("upsample_bilinear", "{upsample: {scale: [1.7, 2], mode: bilinear}}", nn.Upsample(scale_factor=(1.7, 2), mode="bilinear"))
case("upsample_corners", "{upsample: {size: [3, 13], mode: bilinear, align_corners: true}}",
     nn.Upsample(size=(3, 13), mode="bilinear", align_corners=True))
case("pad", "{pad: 1}", nn.ZeroPad2d(1))
case("pad_sides", "{pad: {pad: [2, -1, 0, 3], value: -1.5}}", Fn(lambda v: F.pad(v, (2, -1, 0, 3), value=-1.5)))
case("pad_reflect", "{pad: {pad: [2, 1, 0, 3], mode: reflect}}", Fn(lambda v: F.pad(v, (2, 1, 0, 3), mode="reflect")))
case("pad_replicate", "{pad: {pad: [2, 1, 0, 3], mode: replicate}}", Fn(lambda v: F.pad(v, (2, 1, 0, 3), mode="replicate")))
case("adaptive_max_pool", "{adaptive_max_pool: [3, 7]}", nn.AdaptiveMaxPool2d((3, 7)))
case("adaptive_max_pool_one", "{adaptive_max_pool: 1}", nn.AdaptiveMaxPool2d(1))
case("adaptive_avg_pool", "{adaptive_avg_pool: [4, 3]}", nn.AdaptiveAvgPool2d((4, 3)))
case("heaviside", "heaviside", Fn(lambda v: torch.heaviside(v, torch.zeros(()))))

out["x"] = np.ascontiguousarray(x.permute(0, 2, 3, 1).numpy())
path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "layers.safetensors")
save_file(out, path, metadata={"torch": torch.__version__})
os.chmod(path, 0o644)
print(len(out), "tensors,", os.path.getsize(path), "bytes")
