"""Functions of test_fp16_cuda.sh: what it trains on, and a check of what it wrote."""
import random
from small_set import bmp, records, write_tar


def make(path):
    random.seed(7)
    write_tar(path, [{"bmp": bmp(32, 32, random.randbytes(3 * 32 * 32)), "cls": str(i % 4),
                      "x": " ".join(f"{random.gauss(i % 4 / 4, 0.5):.4f}" for _ in range(16))} for i in range(256)])


def near(runs):
    losses = {run: [r["loss"] for r in records(f"{runs}/{run}/metrics.jsonl", "step")] for run in ("cpu", "fp32", "bf16", "fp16")}
    print(losses)
    for run, most in ("fp32", 1e-4), ("bf16", 0.01), ("fp16", 0.02):
        assert all(abs(a - b) < most for a, b in zip(losses["cpu"], losses[run], strict=True)), losses
