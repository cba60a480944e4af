"""Functions of test_ema.sh: what it trains on, and checks of what it wrote."""
from small_set import read_safetensors


def check(runs):
    def at(run, step, file):
        return read_safetensors(f"{runs}/{run}/checkpoints/step-{step:08d}/{file}.safetensors")[0]

    average, moved = at("ema", 1, "model"), 0.0
    for step in range(2, 9):
        raw = at("ema", step, "raw")
        assert raw == at("plain", step, "model"), "the average changed the training"
        average = {k: [m + 0.25 * (w - m) for m, w in zip(average[k], raw[k])] for k in raw}
        saved = at("ema", step, "model")
        for k in saved:
            for got, want in zip(saved[k], average[k]):
                assert abs(got - want) <= 1e-5 * (1 + abs(want)), (step, k, got, want)
        moved = max(abs(a - b) for k in raw for a, b in zip(raw[k], saved[k]))
    assert moved > 1e-3, "the average is the weights"
    assert any("running_mean" in k for k in saved)
