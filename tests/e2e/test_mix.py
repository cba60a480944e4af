"""Functions of test_mix.sh: what it trains on, and checks of what it wrote."""
from small_set import records


def check(folder, *precisions):
    def losses(run):
        return [r["loss"] for r in records(f"{folder}/{run}/metrics.jsonl", "step")]

    def far(a, b):
        return max(abs(x - y) / x for x, y in zip(a, b))

    runs = {}
    for p in precisions:
        mixed, replicas, plain = losses(p), losses(p + "-replicas"), losses(p + "-plain")
        assert abs(plain[0] - mixed[0]) > 1e-4 * plain[0], f"{p}: mixed batches have the loss of plain ones"
        tolerance = 1e-4 if p == "fp32" else 0.02
        assert far(mixed, replicas) < tolerance, f"{p}: one replica {mixed[:5]}, two {replicas}"
        end = sum(mixed[-10:]) / 10
        assert end < 0.9 * mixed[0], f"{p}: the loss did not fall: {mixed[0]} -> {end}"
        print(f"{p}: {mixed[0]:.4f} -> {end:.4f}")
        runs[p] = mixed
    if "bf16" in runs:
        assert far(runs["fp32"][:3], runs["bf16"]) < 0.02, "the first losses of fp32 and bf16 differ"
    else:
        print("bf16: not on this processor")
