#!/usr/bin/env bash
# model.sync_bn: two ranks with half a batch each are one rank with the whole, weights and running statistics; eval.recalibrate_bn: running statistics are torch's update_bn over the training batches, on any number
# of ranks, and training does not see it.
. "${SOURCE:?}/tests/small_run.sh" || exit
python3 - "$work/set.tar" <<'PY'
import io, random, struct, sys, tarfile
random.seed(7)
with tarfile.open(sys.argv[1], "w", format=tarfile.USTAR_FORMAT) as tar:
    def add(name, data):
        info = tarfile.TarInfo(name)
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
    for i in range(64):
        k = i % 4
        pixels = bytearray(random.randrange(50 * k, 50 * k + 100) for _ in range(16 * 16 * 3))
        add(f"{i:04d}.bmp", struct.pack("<2sIHHIIiiHHIIiiII", b"BM", 54 + len(pixels), 0, 0, 54, 40, 16, 16, 1, 24, 0,
                                        len(pixels), 0, 0, 0, 0) + bytes(pixels))
        add(f"{i:04d}.cls", str(k).encode())
PY
cat >"$work/small.yaml" <<YAML
run: {name: whole, dir: $work/runs, seed: 5}
device: {kind: cpu, threads: 1}
data:
  path: $work/set.tar
  fields:
    image: {kind: image, source: bmp, channels: 3, size: [16, 16]}
    cls: {kind: class}
model: {name: resnet, depth: 18, width: 4, stem: small}
train:
  epochs: 100
  max_steps: 4
  global_batch: 32
  micro_batch: 16
  precision: fp32
  optimizer: {name: sgd, lr: 0.05}
checkpoint: {every: 1 steps, keep: 20}
metrics: {every: 1 steps, sinks: [jsonl]}
YAML
config=$work/small.yaml
compare() { # RUN RUN STEP TOLERANCE WHAT: largest difference of tensors, relative to each one's size
    python3 - "$work/runs" "$@" <<'PY'
import json, struct, sys
from array import array
runs, a, b, step, tolerance, what = sys.argv[1:]
def read(run):
    with open(f"{runs}/{run}/checkpoints/step-{int(step):08d}/model.safetensors", "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        head, data = json.loads(f.read(n)), f.read()
    return {k: array("f", data[t["data_offsets"][0]:t["data_offsets"][1]]) for k, t in head.items() if k != "__metadata__"}
x, y, worst = read(a), read(b), 0
for k in x:
    if what in k:
        size = max(map(abs, x[k])) + 1e-3
        worst = max(worst, max(abs(p - q) for p, q in zip(x[k], y[k])) / size)
print(f"{a} {b} {what or 'all'}: {worst:.2g}")
sys.exit(not worst <= float(tolerance))
PY
}
refused() { # MESSAGE WORD…
    local code=0 message=$1
    shift
    "$DTRAIN" "$config" run.name=bad "$@" >/dev/null 2>"$work/log" || code=$?
    [ $code = 2 ] && grep -q "$message" "$work/log" || fail "exit $code for $*"
}
two() {
    "${ranks[@]}" 2 "$DTRAIN" "$config" "$@" >/dev/null 2>"$work/log" || fail "2 ranks: $*"
}
can_mpi=0
! command -v mpirun >/dev/null || [ ! -e "$BUILD/dtrain_mpi.so" ] || can_mpi=1

# -- sync_bn: alone it is the usual batch norm; two ranks of 8 are one of 16
one=(train.global_batch=16 train.optimizer.lr=0.005)
train "${one[@]}"
train run.name=alone "${one[@]}" model.sync_bn=true
compare whole alone 3 1e-3 "" || fail "another batch norm"
if [ $can_mpi = 1 ]; then
    two run.name=synced "${one[@]}" model.sync_bn=true train.micro_batch=8
    two run.name=apart "${one[@]}" train.micro_batch=8
    compare whole synced 3 1e-3 "" || fail "two ranks of half a batch are another batch"
    ! compare whole apart 3 1e-2 running || fail "the test sees no difference"
    two run.name=accumulated model.sync_bn=true train.micro_batch=4 # the same bits, after a stop, too
    code=0
    "${ranks[@]}" 2 "$DTRAIN" "$config" run.name=again model.sync_bn=true train.micro_batch=4 run.stop_at=2 >/dev/null \
        2>"$work/log" || code=$?
    [ $code = 75 ] || fail "run.stop_at: exit $code"
    two run.name=again model.sync_bn=true train.micro_batch=4
    [ "$(hash "$work/runs/again")" = "$(hash "$work/runs/accumulated")" ] || fail "other bits"
    code=0
    "${ranks[@]}" 2 "$DTRAIN" "$config" run.name=bad model.sync_bn=true train.micro_batch=8 train.global_batch=24 \
        >/dev/null 2>"$work/log" || code=$?
    [ $code = 2 ] && grep -q "do not divide the step's 3" "$work/log" || fail "odd micro-batches: exit $code"
fi
refused 'model.sync_bn makes results depend' model.sync_bn=true run.reproducible=elastic
refused 'leave device.replicas out' model.sync_bn=true device.replicas=2 device.threads=2

# -- recalibrate_bn: with a rate of 0 the weights stay, and one step's statistics are moved by momentum 1 in effect
keys=(run.reproducible=elastic 'data.split={val: 0.25}' eval.every="2 steps" train.optimizer.momentum=0 train.ema=0.5
      train.schedule.name=constant)
train run.name=plain "${keys[@]}"
train run.name=fresh "${keys[@]}" eval.recalibrate_bn=1
python3 - "$work/runs" <<'PY' || fail "training saw the recalibration"
import hashlib, sys
of = lambda run: hashlib.sha256(open(f"{sys.argv[1]}/{run}/checkpoints/step-00000004/raw.safetensors", "rb").read()).digest()
assert of("plain") == of("fresh")
PY
! compare plain fresh 4 1e-3 running || fail "nothing was recalibrated"
# the statistics of the averaged weights on the first step's batch: those that a step with them moves to by 0.1
train run.name=probe "${keys[@]}" train.ema=0 model.init="$work/runs/fresh@4" train.optimizer.lr=1e-30 train.max_steps=1 \
    eval.every='1000 steps'
python3 - "$work/runs" <<'PY' || fail "not the means over the training batches"
import json, struct, sys
from array import array
def read(run, step):
    with open(f"{sys.argv[1]}/{run}/checkpoints/step-{step:08d}/model.safetensors", "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        head, data = json.loads(f.read(n)), f.read()
    return {k: array("f", data[t["data_offsets"][0]:t["data_offsets"][1]]) for k, t in head.items() if k != "__metadata__"}
fresh, probe, n = read("fresh", 4), read("probe", 1), 0
for k in fresh:
    if "running" not in k: continue
    for was, now in zip(fresh[k], probe[k]): # 0.9 was + 0.1 batch, and the batch is what was set
        assert abs(now - was) <= 2e-5 * (1 + abs(was)), (k, was, now)
        n += 1
assert n > 100
PY
if [ $can_mpi = 1 ]; then
    two run.name=fresh2 "${keys[@]}" eval.recalibrate_bn=1
    [ "$(hash "$work/runs/fresh2")" = "$(hash "$work/runs/fresh")" ] || fail "two ranks have other statistics"
fi
code=0
"$DTRAIN" "$config" run.name=stopped "${keys[@]}" eval.recalibrate_bn=1 run.stop_at=3 >/dev/null 2>"$work/log" || code=$?
[ $code = 75 ] || fail "run.stop_at: exit $code"
train run.name=stopped "${keys[@]}" eval.recalibrate_bn=1
[ "$(hash "$work/runs/stopped")" = "$(hash "$work/runs/fresh")" ] || fail "other statistics after a resume"
refused 'of which there are 4' "${keys[@]}" eval.recalibrate_bn=5
echo passed
