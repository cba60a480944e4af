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
