"""Functions of test_adafactor.sh: what it trains on, and checks of what it wrote."""
from small_set import records


def check_loss(metrics):
    loss = [r["loss"] for r in records(metrics, "step")]
    assert loss[-1] < 0.8 * loss[0]
