"""Weights and images of golden networks by a formula of their position; golden_network.h has the same in C."""
import numpy as np


def mixed(n, salt):
    """n floats in [0, 1): an integer hash of the position."""
    h = (np.arange(n, dtype=np.uint64) + np.uint64(salt) * np.uint64(1 << 24)).astype(np.uint32)
    with np.errstate(over="ignore"):
        for _ in range(2):
            h = (h ^ (h >> np.uint32(16))) * np.uint32(0x45D9F3B)
        h = h ^ (h >> np.uint32(16))
    return h.astype(np.float64) / 2.0**32


def weights(net):
    """The last batch norm of a bottleneck is small, or float32 alone would differ by a tenth: deep networks of
    random weights on four pictures are chaotic."""
    import torch
    for salt, (name, p) in enumerate(sorted(net.named_parameters())):
        u = 2 * mixed(p.numel(), 100 + salt) - 1
        if p.dim() > 1:
            u = u * (3.0 / (p.numel() // p.shape[0])) ** 0.5
        elif name.endswith("weight"):
            u = (1 + 0.1 * u) * (0.25 if name.endswith("bn3.weight") else 1)
        else:
            u = 0.1 * u
        with torch.no_grad():
            p.copy_(torch.from_numpy(u.astype(np.float32)).reshape(p.shape))
