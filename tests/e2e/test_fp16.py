"""Functions of test_fp16.sh: what it trains on, and checks of what it wrote."""
import random, struct
from small_set import records, write_tar


def make(path):
    random.seed(7)
    write_tar(path, [{"x": " ".join(f"{16 * random.gauss(i % 2, 1):.4f}" for _ in range(4)), "cls": str(i % 2)}
                     for i in range(32)])


def check_scales(metrics):
    steps = [r for r in records(metrics) if "loss_scale" in r]
    skipped = [r for r in steps if r.get("skipped")]
    assert len(steps) == 60 and skipped and steps[0].get("skipped"), skipped
    # as PyTorch's 65536 of a mean over the 8 samples of a micro-batch
    assert steps[-1]["loss_scale"] == 65536 / 8 / 2 ** len(skipped), (steps[-1], len(skipped))


def check_bits(path):
    data = open(path, "rb").read()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    bits = struct.unpack(f"<{(len(data) - begin) // 4}I", data[begin:])
    assert any(bits) and not any(b & 0x1fff for b in bits)


def check_growth(metrics):
    steps = [r for r in records(metrics) if "loss_scale" in r]
    scales = [r["loss_scale"] for r in steps]
    first = 1 + max(i for i, r in enumerate(steps[:90]) if r.get("skipped"))
    assert scales[first + 1998] == scales[first], scales[first]
    assert max(scales[first + 1999:]) == 2 * scales[first], (scales[first], max(scales[first + 1999:]))
