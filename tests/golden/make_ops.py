#!/usr/bin/env python3
"""Reference values of every op, from PyTorch in float64: writes ops.safetensors beside this script.

Run by hand when a case is added (needs torch, numpy, safetensors); test_golden_ops.c reads the file.
Each case is one small graph. Its tensors are named "<case>/<tensor>": the inputs (random, float32), the
target "t", the result "y", and "<input>.grad", the gradient of

    loss = sum over samples n of mean((y[n] - t[n])**2)

which is dtrain's mse loss with unit weights, so the C test needs no special way to feed a gradient.
Loss ops are cases of their own: "y" is then the summed loss.
"""
import os

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file

torch.manual_seed(7)
torch.set_default_dtype(torch.float64)
out = {}


def rand(*shape, scale=1.0):
    # float32 values exactly, computed with in float64
    return (torch.randn(*shape) * scale).float().double()


def store(case, name, t):
    out[f"{case}/{name}"] = t.detach().float().contiguous().numpy()


def case(name, fn, inputs, loss=None, frozen=()):
    leaves = {k: v.clone().requires_grad_(k not in frozen and v.is_floating_point()) for k, v in inputs.items()}
    y = fn(**leaves)
    if loss is None:
        t = rand(*y.shape)
        n = y.shape[0]
        total = ((y.reshape(n, -1) - t.reshape(n, -1)) ** 2).mean(1).sum()
        store(name, "t", t)
    else:
        total = y
    total.backward()
    for k, v in leaves.items():
        if v.is_floating_point():
            store(name, k, v)
            if v.requires_grad:
                store(name, k + ".grad", v.grad)
        else:
            out[f"{name}/{k}"] = v.to(torch.int32).numpy()
    store(name, "y", y)


# convolution: channels below, at and off the block; stride, groups, dilation, asymmetric padding
case("conv_c1", lambda x, w: F.conv2d(x, w, padding=1), dict(x=rand(2, 1, 9, 7), w=rand(16, 1, 3, 3)))
case("conv_c3", lambda x, w: F.conv2d(x, w, padding=1), dict(x=rand(2, 3, 8, 10), w=rand(32, 3, 3, 3)))
case("conv_block", lambda x, w: F.conv2d(x, w, padding=1), dict(x=rand(2, 16, 6, 5), w=rand(32, 16, 3, 3, scale=.2)))
case("conv_odd", lambda x, w, b: F.conv2d(x, w, b, padding=1),
     dict(x=rand(2, 20, 5, 6), w=rand(24, 20, 3, 3, scale=.2), b=rand(24)))
case("conv_stride", lambda x, w: F.conv2d(x, w, stride=2, padding=3), dict(x=rand(2, 3, 13, 12), w=rand(16, 3, 7, 7, scale=.2)))
case("conv_1x1", lambda x, w: F.conv2d(x, w, stride=2), dict(x=rand(2, 16, 6, 6), w=rand(32, 16, 1, 1, scale=.3)))
case("conv_groups", lambda x, w: F.conv2d(x, w, padding=1, groups=2), dict(x=rand(2, 32, 5, 5), w=rand(32, 16, 3, 3, scale=.2)))
case("conv_dilated", lambda x, w: F.conv2d(x, w, padding=2, dilation=2), dict(x=rand(2, 16, 7, 7), w=rand(16, 16, 3, 3, scale=.2)))
case("conv_asymmetric", lambda x, w: F.conv2d(F.pad(x, (0, 1, 1, 2)), w), dict(x=rand(2, 16, 6, 6), w=rand(16, 16, 3, 3, scale=.2)))

case("linear", lambda x, w, b: F.linear(x, w, b), dict(x=rand(4, 24), w=rand(10, 24, scale=.3), b=rand(10)))
case("linear_3d", lambda x, w: F.linear(x, w), dict(x=rand(2, 5, 24), w=rand(10, 24, scale=.3)))
inputs = dict(x=rand(4, 24), w=rand(16, 24, scale=.3), b=rand(16))
while F.linear(inputs["x"], inputs["w"], inputs["b"]).abs().min() < 0.05:
    inputs["x"] = rand(4, 24)  # no pre-activation that bf16 could round to the other side of zero
case("linear_relu", lambda x, w, b: F.relu(F.linear(x, w, b)), inputs)
case("matmul", lambda a, b: a @ b, dict(a=rand(2, 3, 5, 7), b=rand(2, 3, 7, 4)))
case("matmul_nt", lambda a, b: 0.5 * (a @ b.transpose(-1, -2)), dict(a=rand(2, 5, 7), b=rand(2, 4, 7)))


def bn(x, s, b):
    return F.batch_norm(x, None, None, s, b, True, 0.1, 1e-5)


def bn_inputs(c, h=6, w=5, n=3):
    return dict(x=rand(n, c, h, w, scale=2) + 0.5, s=rand(c) + 1, b=rand(c))


case("batch_norm", bn, bn_inputs(16))
case("batch_norm_odd", bn, bn_inputs(5))
case("batch_norm_relu", lambda x, s, b: F.relu(bn(x, s, b)), bn_inputs(32))
case("batch_norm_add_relu", lambda x, s, b, r: F.relu(bn(x, s, b) + r), dict(bn_inputs(16), r=rand(3, 16, 6, 5)))
case("batch_norm_relu_pool", lambda x, s, b: F.max_pool2d(F.relu(bn(x, s, b)), 2), bn_inputs(16, 7, 6))
case("layer_norm", lambda x, s, b: F.layer_norm(x, (24,), s, b, 1e-5), dict(x=rand(3, 5, 24) * 2 + 1, s=rand(24) + 1, b=rand(24)))
case("relu", lambda x: F.relu(x), dict(x=rand(3, 16, 4, 5)))
case("gelu", lambda x: F.gelu(x), dict(x=rand(3, 40, scale=2)))
case("max_pool", lambda x: F.max_pool2d(x, 3, 2, 1), dict(x=rand(2, 16, 9, 8)))
case("max_pool_odd", lambda x: F.max_pool2d(x, 2), dict(x=rand(2, 5, 7, 6)))
case("avg_pool", lambda x: F.avg_pool2d(x, 2), dict(x=rand(2, 16, 6, 8)))
case("global_pool", lambda x: x.mean((2, 3)), dict(x=rand(2, 32, 5, 7)))
case("add", lambda a, b: a + b, dict(a=rand(3, 4, 8), b=rand(3, 4, 8)))
case("add_broadcast", lambda a, b: a + b, dict(a=rand(3, 4, 8), b=rand(4, 8)))
case("scale", lambda x: x * 0.25, dict(x=rand(3, 8)))
case("concat", lambda a, b: torch.cat((a, b), 1), dict(a=rand(3, 4), b=rand(3, 6)))
case("concat_tokens", lambda a, b: torch.cat((a, b), 1), dict(a=rand(2, 1, 8), b=rand(2, 5, 8)))
case("slice", lambda x: x[:, 1:4], dict(x=rand(3, 6, 5)))
case("transpose", lambda x: x.permute(0, 2, 1, 3).contiguous(), dict(x=rand(2, 3, 4, 5)))
case("reshape", lambda x: x.reshape(2, 60), dict(x=rand(2, 3, 4, 5)))
case("softmax", lambda x: F.softmax(x, -1), dict(x=rand(3, 4, 9, scale=2)))
case("sdpa", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.35),
     dict(q=rand(2, 3, 5, 8), k=rand(2, 3, 7, 8), v=rand(2, 3, 7, 8)))


# losses with a sample weight; y is the weighted sum
def ce(smoothing):
    def fn(x, target, weight):
        return (F.cross_entropy(x, target, reduction="none", label_smoothing=smoothing) * weight).sum()
    return fn


weights = torch.tensor([1.0, 0.0, 2.0, 0.5])
hard = torch.tensor([3, 0, 6, 6])
soft = F.softmax(rand(4, 7), -1).float().double()
case("cross_entropy", ce(0.0), dict(x=rand(4, 7, scale=3), target=hard, weight=weights), loss=True, frozen=("weight",))
case("cross_entropy_smooth", ce(0.1), dict(x=rand(4, 7, scale=3), target=hard, weight=weights), loss=True, frozen=("weight",))
case("cross_entropy_soft", ce(0.0), dict(x=rand(4, 7, scale=3), target=soft, weight=weights), loss=True, frozen=("weight", "target"))
case("bce", lambda x, target, weight: (F.binary_cross_entropy_with_logits(x, target, reduction="none").mean(1) * weight).sum(),
     dict(x=rand(4, 5, scale=2), target=torch.sigmoid(rand(4, 5)).float().double(), weight=weights), loss=True, frozen=("weight", "target"))
case("mse", lambda x, target, weight: (((x - target) ** 2).mean(1) * weight).sum(),
     dict(x=rand(4, 5), target=rand(4, 5), weight=weights), loss=True, frozen=("weight", "target"))
case("smooth_l1", lambda x, target, weight: (F.smooth_l1_loss(x, target, reduction="none", beta=0.5).mean(1) * weight).sum(),
     dict(x=rand(4, 5), target=rand(4, 5), weight=weights), loss=True, frozen=("weight", "target"))

case("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), dict(x=rand(3, 40, scale=2)))


# class weights: `of_class`, the weight of the sample holds that of its class
def ce_weighted(smoothing):
    def fn(x, target, weight, of_class):
        return (F.cross_entropy(x, target, weight=of_class, reduction="none", label_smoothing=smoothing) * weight).sum()
    return fn


def ce_class(x, target, weight, of_class):
    return ce_weighted(0.1)(x, target, weight / of_class[target], of_class)


of_class = torch.tensor([1.0, 0.25, 3.0, 2.5, 1.0, 0.5, 4.0])
case("cross_entropy_weights", ce_class, dict(x=rand(4, 7, scale=3), target=hard, weight=weights * of_class[hard], of_class=of_class),
     loss=True, frozen=("weight", "of_class"))
case("cross_entropy_weights_soft", ce_weighted(0.2), dict(x=rand(4, 7, scale=3), target=soft, weight=weights, of_class=of_class),
     loss=True, frozen=("weight", "target", "of_class"))

# new cases come last: the numbers of those before stay
case("conv_transpose", lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1), dict(x=rand(2, 16, 5, 6), w=rand(16, 24, 4, 4, scale=.2)))
case("conv_transpose_keys", lambda x, w, b: F.conv_transpose2d(x, w, b, (3, 2), (0, 1), (2, 1), 2, (1, 2)),
     dict(x=rand(2, 6, 4, 5), w=rand(6, 2, 2, 3, scale=.4), b=rand(4)))
case("group_norm", lambda x, s, b: F.group_norm(x, 4, s, b, 1e-5), dict(x=rand(3, 20, 4, 5) * 2 + 1, s=rand(20) + 1, b=rand(20)))
case("instance_norm", lambda x: F.instance_norm(x), dict(x=rand(3, 5, 4, 6) * 2 + 1))
case("prelu", lambda x, w: F.prelu(x, w), dict(x=rand(3, 5, 4, 6), w=rand(5)))
case("prelu_one", lambda x, w: F.prelu(x, w), dict(x=rand(3, 5, 7), w=rand(1)))
case("pad", lambda x: F.pad(x, (2, -1, 0, 3), value=-0.5), dict(x=rand(3, 5, 6, 7)))
case("pad_reflect", lambda x: F.pad(x, (2, 1, 0, 3), mode="reflect"), dict(x=rand(3, 5, 6, 7)))
case("adaptive_max_pool", lambda x: F.adaptive_max_pool2d(x, (3, 7)), dict(x=rand(2, 5, 8, 7)))
case("adaptive_avg_pool", lambda x: F.adaptive_avg_pool2d(x, (4, 3)), dict(x=rand(2, 5, 6, 7)))
case("resize", lambda x: F.interpolate(x, size=(9, 4), mode="bilinear"), dict(x=rand(2, 5, 6, 7)))
case("resize_corners", lambda x: F.interpolate(x, size=(9, 4), mode="bilinear", align_corners=True), dict(x=rand(2, 5, 6, 7)))
case("resize_nearest", lambda x: F.interpolate(x, scale_factor=(1.7, 2)), dict(x=rand(2, 5, 6, 7)))
case("sum_axes", lambda x: x.sum((1, 3)), dict(x=rand(3, 5, 6, 7)))
case("mean_axes", lambda x: x.mean(1, keepdim=True), dict(x=rand(3, 5, 6)))
case("max_axes", lambda x: x.amax((1, 3)), dict(x=rand(3, 5, 6, 7)))
case("expand", lambda x: x.expand(3, 5, 6), dict(x=rand(1, 5, 1)))
for name, fn in (("tanh", torch.tanh), ("softplus", F.softplus), ("erf", torch.erf), ("leaky_relu", lambda x: F.leaky_relu(x, 0.3)),
                 ("elu", lambda x: F.elu(x, 0.4))):
    case("act_" + name, lambda x, f=fn: f(x), dict(x=rand(3, 40, scale=2)))

# bce with a weight of each label's positives, and losses of numbers
positives = torch.tensor([1.0, 3.0, 0.5, 2.25, 8.0])
case("bce_positives", lambda x, target, weight, positives:
     (F.binary_cross_entropy_with_logits(x, target, reduction="none", pos_weight=positives).mean(1) * weight).sum(),
     dict(x=rand(4, 5, scale=2), target=torch.sigmoid(rand(4, 5)).float().double(), weight=weights, positives=positives),
     loss=True, frozen=("weight", "target", "positives"))
for name, fn in (("l1", F.l1_loss), ("huber", lambda x, t, reduction: F.huber_loss(x, t, reduction=reduction, delta=0.7)),
                 ("poisson", lambda x, t, reduction: F.poisson_nll_loss(x, t, reduction=reduction))):
    case(name, lambda x, target, weight: (fn(x, target, reduction="none").mean(1) * weight).sum(),
         dict(x=rand(4, 5), target=rand(4, 5).abs(), weight=weights), loss=True, frozen=("weight", "target"))

path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ops.safetensors")
save_file({k: np.ascontiguousarray(v) for k, v in sorted(out.items())}, path, metadata={"torch": torch.__version__})
print(f"{path}: {len(out)} tensors, {os.path.getsize(path) / 1024:.0f} KiB")
