"""Functions of test_batch_norm_statistics.sh: what it trains on, and checks of what it wrote."""
import hashlib, random
from small_set import bmp, read_safetensors, write_tar


def make(path):
    random.seed(7)
    write_tar(path, [{"bmp": bmp(16, 16, [random.randrange(50 * k, 50 * k + 100) for _ in range(16 * 16 * 3)]), "cls": str(k)}
                     for k in [0, 1, 2, 3] * 16])


def compare(runs, a, b, step, tolerance, what):
    x, y = (read_safetensors(f"{runs}/{run}/checkpoints/step-{int(step):08d}/model.safetensors")[0] for run in (a, b))
    worst = 0
    for k in x:
        if what in k:
            size = max(map(abs, x[k])) + 1e-3
            worst = max(worst, max(abs(p - q) for p, q in zip(x[k], y[k])) / size)
    print(f"{a} {b} {what or 'all'}: {worst:.2g}")
    assert worst <= float(tolerance)


def check_training(runs):
    of = lambda run: hashlib.sha256(open(f"{runs}/{run}/checkpoints/step-00000004/raw.safetensors", "rb").read()).digest()
    assert of("plain") == of("fresh")


def check_means(runs):
    fresh, probe = (read_safetensors(f"{runs}/{run}/checkpoints/step-0000000{step}/model.safetensors")[0]
                    for run, step in (("fresh", 4), ("probe", 1)))
    n = 0
    for k in fresh:
        if "running" not in k: continue
        for was, now in zip(fresh[k], probe[k]): # 0.9 was + 0.1 batch, and the batch is what was set
            assert abs(now - was) <= 2e-5 * (1 + abs(was)), (k, was, now)
            n += 1
    assert n > 100
