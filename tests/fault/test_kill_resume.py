"""Functions of test_kill_resume.sh: what it trains on, and checks of what it wrote."""
import glob, os
from small_set import records


def compare(calm, killed):
    def newest(run, name):
        return open(os.path.join(sorted(glob.glob(run + "/checkpoints/step-*"))[-1], name), "rb").read()

    def steps(run):
        keep = ("step", "epoch", "samples", "loss", "lr", "grad_norm")
        return [tuple(r[k] for k in keep) for r in records(run + "/metrics.jsonl", "step")]

    for name in ("model.safetensors", "optimizer.safetensors"):
        assert newest(calm, name) == newest(killed, name), f"{name} differs"
    a, b = steps(calm), steps(killed)
    assert len(a) == len(b), f"{len(a)} steps in metrics.jsonl of the calm run, {len(b)} of the killed one"
    for x, y in zip(a, b):
        assert x == y, f"step metrics differ: {x} {y}"
    assert not glob.glob(killed + "/checkpoints/.tmp*"), "a temporary was left"
    print(f"{len(a)} steps: weights, moments and metrics are equal")
