"""Functions of test_fp16_cuda.sh: what it trains on, and a check of what it wrote."""
import random
from small_set import bmp, records, write_tar


def make(path):
    random.seed(7)
    write_tar(path, [{"bmp": bmp(32, 32, random.randbytes(3 * 32 * 32)), "cls": str(i % 4),
                      "x": " ".join(f"{random.gauss(i % 4, 1):.4f}" for _ in range(16))} for i in range(256)])


def check(metrics, scale):
    steps = records(metrics, "step")
    assert len(steps) == 2 and not any(r.get("skipped") for r in steps), steps
    assert steps[-1]["loss_scale"] == float(scale), steps[-1]
