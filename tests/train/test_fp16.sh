#!/usr/bin/env bash
# train.precision: fp16, imitated on the CPU: a step whose gradient is beyond fp16 is skipped and halves the loss scale;
# 2,000 finite steps double it; stopped anywhere, and on two ranks, the run has the same bits.
. "${SOURCE:?}/tests/small_run.sh" || exit
python3 - "$work/set.tar" <<'PY'
import random, sys
from small_set import write_tar
random.seed(7)
write_tar(sys.argv[1], [{"x": " ".join(f"{random.gauss(i % 2, 1):.4f}" for _ in range(4)), "cls": str(i % 2)}
                        for i in range(32)])
PY
new_config "small, reproducible: elastic" <<YAML
    x: {kind: vector, size: [4]}
    cls: {kind: class}
model: {name: mlp, hidden: 8}
train:
  epochs: 100000
  max_steps: 60
  global_batch: 16
  micro_batch: 8
  precision: fp16
  targets: {cls: {loss: cross_entropy}}
  optimizer: {name: adamw, lr: 1.0e-3}
  schedule: {name: constant}
YAML
train
python3 - "$work/runs/small/metrics.jsonl" <<'PY' || fail "scales"
import json, sys
steps = [r for r in map(json.loads, open(sys.argv[1])) if "loss_scale" in r]
skipped = [r for r in steps if r.get("skipped")]
assert len(steps) == 60 and skipped and steps[1].get("skipped"), skipped
assert steps[-1]["loss_scale"] == 65536 / 2 ** len(skipped), (steps[-1], len(skipped))
PY
grep -q 'overflowed in fp16 and was skipped' "$work/log" || fail "nothing about the skipped step"
train run.name=fp32 train.precision=fp32
[ "$(hash "$work/runs/small")" != "$(hash "$work/runs/fp32")" ] || fail "nothing was rounded"

# -- the gradient of a step has 11 bits: the first step's is in the momentum, scaled by a power of two
train run.name=once train.max_steps=1 'train.optimizer={name: sgd, lr: 1.0e-3, momentum: 0.9, weight_decay: 0}'
python3 - "$work"/runs/once/checkpoints/step-00000001/optimizer.safetensors <<'PY' || fail "a gradient has more bits than fp16"
import struct, sys
data = open(sys.argv[1], "rb").read()
begin = 8 + struct.unpack("<Q", data[:8])[0]
bits = struct.unpack(f"<{(len(data) - begin) // 4}I", data[begin:])
assert any(bits) and not any(b & 0x1fff for b in bits)
PY

# -- the second step is skipped: a run that was stopped behind it goes on with its scale and count
scaler() { grep -o '"scaler":{[^}]*}' "$work/runs/$1/checkpoints/step-00000060/state.json"; }
for at in 2 30; do
    exits 75 '' "$DTRAIN" "$config" run.name="stopped$at" run.stop_at=$at
    train run.name="stopped$at"
    [ "$(hash "$work/runs/small")" = "$(hash "$work/runs/stopped$at")" ] || fail "other bits when stopped at $at"
    [ "$(scaler small)" = "$(scaler "stopped$at")" ] || fail "another scale or count when stopped at $at"
done
if have_mpi; then
    train_on 2 run.name=two
    [ "$(hash "$work/runs/small")" = "$(hash "$work/runs/two")" ] || fail "other bits on two ranks"
fi

# -- it grows again
train run.name=long train.max_steps=2100 train.optimizer.lr=1.0e-9
python3 - "$work/runs/long/metrics.jsonl" <<'PY' || fail "the scale does not grow"
import json, sys
steps = [r for r in map(json.loads, open(sys.argv[1])) if "loss_scale" in r]
scales = [r["loss_scale"] for r in steps]
first = 1 + max(i for i, r in enumerate(steps[:90]) if r.get("skipped"))
assert scales[first + 1998] == scales[first], scales[first]
assert max(scales[first + 1999:]) == 2 * scales[first], (scales[first], max(scales[first + 1999:]))
PY
echo passed
