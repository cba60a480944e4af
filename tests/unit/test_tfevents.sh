#!/usr/bin/env bash
# TensorBoard's own reader reads our event files: versions, tags, values, and a resumed run counts
# each step once. PYTHON names an interpreter that has tensorboard; without one this is skipped.
set -euo pipefail
python=${PYTHON:-python3}
if ! "$python" -c 'import tensorboard' 2>/dev/null; then
    echo "skipped: $python has no tensorboard (set PYTHON to one that has)"
    exit 77
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$BUILD/test_metrics" write "$dir"
"$python" - "$dir" <<'END'
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

acc = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
acc.Reload()
tags = set(acc.Tags()["scalars"])
want = {"train/loss", "train/lr", "train/grad_norm", "train/epoch", "train/samples_per_s",
        "time/step", "time/data", "time/compute", "time/comm", "time/other", "memory/rss_bytes",
        "eval/val/accuracy", "eval/val/loss"}
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
END
