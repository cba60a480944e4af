#!/usr/bin/env bash
# train.clip_norm, clip_value and clip_agc: what a step of plain SGD moves is lr times the clipped gradient.
. "${SOURCE:?}/tests/small_run.sh" || exit
small_data "$work" 6 4
config=$(small_config "$work")
keys=('train.optimizer={name: sgd, momentum: 0, lr: 0.5, weight_decay: 0}' train.schedule.name=constant
      train.schedule.warmup=0 train.max_steps=2 checkpoint.every='1 step' train.clip_norm=null)
train run.name=none "${keys[@]}"
train run.name=norm "${keys[@]}" train.clip_norm=0.125
train run.name=value "${keys[@]}" train.clip_value=0.002
train run.name=agc "${keys[@]}" train.clip_agc=0.01
"${PYTHON:-python3}" - "$work/runs" <<'PY' || fail "clipped otherwise"
import json, struct, sys
from array import array
def read(run, step):
    with open(f"{sys.argv[1]}/{run}/checkpoints/step-{step:08d}/model.safetensors", "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        head, data = json.loads(f.read(n)), f.read()
    return {k: (t["shape"], array("f", data[t["data_offsets"][0]:t["data_offsets"][1]]))
            for k, t in head.items() if k != "__metadata__" and "running" not in k and "num_batches" not in k}
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
for got, plain, want in ((norm["norm"], norm["none"], 0.125), (most["value"], most["none"], 0.002), (share["agc"], share["none"], 0.01)):
    assert plain > 1.5 * want and abs(got - want) < 0.01 * want
PY
echo passed
