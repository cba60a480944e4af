"""Functions of test_tfevents.sh: what it trains on, and checks of what it wrote."""
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def check(folder):
    acc = EventAccumulator(folder, size_guidance={"scalars": 0})
    acc.Reload()
    tags = set(acc.Tags()["scalars"])
    want = {"train/loss", "train/lr", "train/grad_norm", "train/epoch", "train/samples_per_s",
            "time/step", "time/data", "time/compute", "time/comm", "time/other", "memory/rss_bytes",
            "eval/val/accuracy", "eval/val/loss",
            "eval/val/recall.\\xff\\n", "eval/val/" + 95 * "é"}
    assert tags == want, tags ^ want
    assert acc.file_version == 2.0, acc.file_version
    loss = acc.Scalars("train/loss")
    steps = [e.step for e in loss]
    assert steps == [10, 20, 25, 30, 40, 50, 60], steps  # 25 and 50 also end an epoch
    for e in loss:
        assert abs(e.value - 1 / e.step) < 1e-7, e
    assert all(e.wall_time > 1.6e9 for e in loss)
    rate = acc.Scalars("train/samples_per_s")[-1].value
    assert abs(rate - 64) < 1e-3, rate
    print("tensorboard reads", len(tags), "tags,", len(steps), "steps")
