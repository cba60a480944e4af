#!/usr/bin/env bash
# data.fields.*.mirror: numbers change sign where data.augment flips their image, and only there: the loss of the first
# step is that of the targets computed here, for angles with a mean and for the columns of a rotation.
. "${SOURCE:?}/tests/small_run.sh" || exit
python3 - "$work/set.tar" <<'PY'
import json, random, sys
from small_set import bmp, write_tar
random.seed(7)
write_tar(sys.argv[1], [{ # images of one colour look the same in a mirror
    "bmp": bmp(8, 8, [random.randrange(256)] * (8 * 8 * 3)),
    "json": json.dumps({k: random.uniform(-40, 40) for k in ("yaw", "pitch", "roll")}),
    "six": " ".join(f"{random.uniform(-1, 1):.4f}" for _ in range(6))} for _ in range(16)])
PY
new_config still <<YAML
    image: {kind: image, source: bmp, channels: 3, size: [8, 8]}
    pose: {kind: vector, source: [yaw, pitch, roll], normalize: {mean: [5, 1, -2], std: [30, 16, 12]}, mirror: [-1, 1, -1]}
  augment: {image: [{flip: {axis: horizontal, p: 0}}]}
model: {name: layers, layers: [global_pool]} # predicts the same in training
train: {max_steps: 1, global_batch: 16, micro_batch: 16, precision: fp32, loss: mse, optimizer: {name: sgd, lr: 1.0e-30}}
YAML
loss() { python3 -c '
import json, sys
print(next(r["loss"] for r in map(json.loads, open(sys.argv[1])) if "loss" in r))' "$work/runs/$1/metrics.jsonl"; }
train
train run.name=flipped 'data.augment.image=[{flip: {axis: horizontal, p: 1}}]'
train run.name=twice 'data.augment.image=[{flip: {axis: horizontal, p: 1}}, {flip: {axis: horizontal, p: 1}}]'
train run.name=upside 'data.augment.image=[{flip: {axis: vertical, p: 1}}]'
six='data.fields.pose={kind: vector, source: six, size: 6, mirror: [1, -1, -1, -1, 1, 1], normalize: {mean: [0], std: [1]}}'
train run.name=six "$six"
train run.name=six_flipped "$six" 'data.augment.image=[{flip: {axis: horizontal, p: 1}}]'
[ "$(loss twice)" = "$(loss still)" ] && [ "$(loss upside)" = "$(loss still)" ] || fail "mirrored without need"
[ "$(loss flipped)" != "$(loss still)" ] && [ "$(loss six)" != "$(loss six_flipped)" ] || fail "not mirrored"
for run in flipped six_flipped; do
    "$DTRAIN" predict "$work/runs/$run" "$work/set.tar" --which latest -o "$work/$run.jsonl" 2>"$work/log" || fail predict
done
python3 - "$work" "$(loss flipped)" "$(loss six_flipped)" <<'PY' || fail "other targets"
import json, sys, tarfile
work = sys.argv[1]
tar = tarfile.open(f"{work}/set.tar")
read = lambda i, ext: tar.extractfile(f"{i:04d}.{ext}").read().decode()
def expect(run, loss, targets, signs, std):
    rows = [json.loads(line) for line in open(f"{work}/{run}.jsonl")]
    find = lambda r: list(r["pose"].values()) if isinstance(r["pose"], dict) else r["pose"]
    got = sum((p - m * t) ** 2 / s / s for r, row in zip(rows, targets)
              for p, t, m, s in zip(find(r), row, signs, std)) / len(rows) / len(signs)
    assert abs(got - float(loss)) < 1e-5 * got, (run, got, loss)
angles = [[json.loads(read(i, "json"))[k] for k in ("yaw", "pitch", "roll")] for i in range(16)]
expect("flipped", sys.argv[2], angles, (-1, 1, -1), (30, 16, 12))
six = [[float(v) for v in read(i, "six").split()] for i in range(16)]
expect("six_flipped", sys.argv[3], six, (1, -1, -1, -1, 1, 1), (1,) * 6)
PY
refused 'mirror has 2 factors, field pose has 3 numbers' 'data.fields.pose.mirror=[-1, 1]'
refused "'2' is neither 1 nor -1" 'data.fields.pose.mirror=[2, 1, 1]'
exits 2 'field pose changes sign with the image' "$DTRAIN" predict "$work/runs/flipped" "$work/set.tar" --which latest \
    --tta flip -o "$work/x.jsonl"
echo passed
