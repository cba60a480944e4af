"""Functions of test_clipping.sh: what it trains on, and checks of what it wrote."""
from small_set import read_safetensors


def check(runs):
    def read(run, step):
        weights, shapes, _ = read_safetensors(f"{runs}/{run}/checkpoints/step-{step:08d}/model.safetensors")
        return {k: (shapes[k], w) for k, w in weights.items() if "running" not in k and "num_batches" not in k}
    def size(x):
        return sum(v * v for v in x) ** 0.5
    def rows(run):  # (weights, gradient) of each unit
        was, now = read(run, 1), read(run, 2)
        for k, (shape, w) in was.items():
            n = len(w) // shape[0] if len(shape) > 1 else len(w)
            for i in range(0, len(w), n):
                yield w[i:i + n], [(a - b) / 0.5 for a, b in zip(w[i:i + n], now[k][1][i:i + n])]
    norm = {run: size([size(g) for _, g in rows(run)]) for run in ("none", "norm")}
    most = {run: max(max(map(abs, g)) for _, g in rows(run)) for run in ("none", "value")}
    share = {run: max(size(g) / max(size(w), 1e-3) for w, g in rows(run)) for run in ("none", "agc")}
    print(norm, most, share)
    for got, plain, want in ((norm["norm"], norm["none"], 0.125), (most["value"], most["none"], 0.002),
                             (share["agc"], share["none"], 0.01)):
        assert plain > 1.5 * want and abs(got - want) < 0.01 * want
