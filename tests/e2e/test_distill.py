"""Functions of test_distill.sh: what it trains on, and checks of what it wrote."""
import json, math, random
from small_set import read_safetensors, write_tar


def make(work):
    random.seed(7)
    for which, names in ("set", ["apple", "berry", "cherry"]), ("other", ["apple", "berry", "date"]):
        write_tar(f"{work}/{which}.tar", [{"x": " ".join(f"{random.gauss(k, 1):.4f}" for _ in range(4)), "cls": names[k]}
                                          for k in [0] * 20 + [1] * 18 + [2] * 10])


def check_gradients(work):
    check_gradient(work, "taught", [1, 1, 1])
    check_gradient(work, "weighed", [1, 2.5, 4])


def check_gradient(work, run, weights):
    """weights: of classes, in the loss of the class and not in the teacher's."""
    T, alpha, lr = 3.0, 0.7, 0.1
    def read(step):
        tensors, shapes, _ = read_safetensors(f"{work}/runs/{run}/checkpoints/step-{step:08d}/model.safetensors")
        return next(v for k, v in tensors.items() if k.endswith("bias") and shapes[k] == [3])
    def softmax(x):
        e = [math.exp(v - max(x)) for v in x]
        return [v / sum(e) for v in e]
    def logits(run):
        rows = (json.loads(line) for line in open(f"{work}/{run}.jsonl"))
        return [r["logits"] if "logits" in r else r["cls"]["logits"] for r in rows]
    truth, step = [0] * 20 + [1] * 18 + [2] * 10, [0.0] * 3
    for y, s, t in zip(truth, logits(run), logits("big")):
        p, ps, pt = softmax(s), softmax([v / T for v in s]), softmax([v / T for v in t])
        for k in range(3):
            step[k] += ((1 - alpha) * weights[y] * (p[k] - (k == y)) + alpha * T * (ps[k] - pt[k])) / 48
    for was, now, g in zip(read(1), read(2), step):
        assert abs(was - lr * g - now) < 2e-6, (run, was, now, g)
    assert max(map(abs, step)) > 1e-3
