#!/usr/bin/env bash
# train.teacher: the gradient of a step is that of (1 - alpha) CE + alpha T^2 KL(teacher || student), computed here from
# the logits of both; the teacher does not change; stops, ranks and accumulation give the same bits; what does not fit is one
# line.
. "${SOURCE:?}/tests/small_run.sh" || exit
python3 - "$work" <<'PY'
import io, random, sys, tarfile
random.seed(7)
names = ["apple", "berry", "cherry"]
for which, order in ("set", names), ("other", ["apple", "berry", "date"]):
    with tarfile.open(f"{sys.argv[1]}/{which}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
        for i in range(48):
            k = 0 if i < 20 else 1 if i < 38 else 2
            x = " ".join(f"{random.gauss(k, 1):.4f}" for _ in range(4))
            for ext, data in ("x", x), ("cls", order[k]):
                info = tarfile.TarInfo(f"{i:04d}.{ext}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data.encode()))
PY
cat >"$work/small.yaml" <<YAML
run: {name: big, dir: $work/runs, seed: 5, reproducible: elastic}
device: {kind: cpu, threads: 1}
data:
  path: $work/set.tar
  fields:
    x: {kind: vector, size: [4]}
    cls: {kind: class}
model: {name: mlp, hidden: 32}
train:
  epochs: 100
  max_steps: 40
  global_batch: 48
  micro_batch: 12
  precision: fp32
  targets: {cls: {loss: cross_entropy}}
  optimizer: {name: sgd, lr: 0.1, momentum: 0, weight_decay: 0}
metrics: {every: 1 steps, sinks: [jsonl]}
YAML
config=$work/small.yaml
train
student=(model.hidden=8 run.seed=9 train.max_steps=6 checkpoint.every='1 step' checkpoint.keep=20
         train.schedule.name=constant)
teach=("${student[@]}" train.teacher="$work/runs/big@latest" train.teacher_temperature=3 train.teacher_alpha=0.7)
before=$(hash "$work/runs/big")
train run.name=alone "${student[@]}"
train run.name=taught "${teach[@]}"
[ "$(hash "$work/runs/big")" = "$before" ] || fail "the teacher was trained"
! grep -q 'teacher:' "$work"/runs/taught/checkpoints/step-00000006/*.safetensors || fail "the teacher is in the student's checkpoint"

# -- the head's bias after one step moved by the formula's gradient, from the logits at the step before
for run in taught big; do
    which=latest
    [ $run = big ] || which=1
    "$DTRAIN" predict "$work/runs/$run" "$work/set.tar" --logits --which $which -o "$work/$run.jsonl" 2>"$work/log" ||
        fail predict
done
"${PYTHON:-python3}" - "$work" <<'PY' || fail "other gradients than the formula's"
import json, math, struct, sys
work, T, alpha, lr = sys.argv[1], 3.0, 0.7, 0.1
def read(step):
    with open(f"{work}/runs/taught/checkpoints/step-{step:08d}/model.safetensors", "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        head, data = json.loads(f.read(n)), f.read()
    name = next(k for k, t in head.items() if k.endswith("bias") and t["shape"] == [3])
    a, b = head[name]["data_offsets"]
    return struct.unpack("<3f", data[a:b])
def softmax(x):
    e = [math.exp(v - max(x)) for v in x]
    return [v / sum(e) for v in e]
def logits(run):
    rows = (json.loads(line) for line in open(f"{work}/{run}.jsonl"))
    return [r["logits"] if "logits" in r else r["cls"]["logits"] for r in rows]
truth, step = [0] * 20 + [1] * 18 + [2] * 10, [0.0] * 3
for y, s, t in zip(truth, logits("taught"), logits("big")):
    p, ps, pt = softmax(s), softmax([v / T for v in s]), softmax([v / T for v in t])
    for k in range(3):
        step[k] += ((1 - alpha) * (p[k] - (k == y)) + alpha * T * (ps[k] - pt[k])) / 48
for was, now, g in zip(read(1), read(2), step):
    assert abs(was - lr * g - now) < 2e-6, (was, now, g)
assert max(map(abs, step)) > 1e-3
PY

# -- stopped and resumed; two ranks
code=0
"$DTRAIN" "$config" run.name=stopped "${teach[@]}" run.stop_at=3 >/dev/null 2>"$work/log" || code=$?
[ $code = 75 ] || fail "run.stop_at: exit $code"
train run.name=stopped "${teach[@]}"
[ "$(hash "$work/runs/stopped")" = "$(hash "$work/runs/taught")" ] || fail "other weights after a resume"
if command -v mpirun >/dev/null && [ -e "$BUILD/dtrain_mpi.so" ]; then
    "${ranks[@]}" 2 "$DTRAIN" "$config" run.name=two "${teach[@]}" >/dev/null 2>"$work/log" || fail "2 ranks"
    [ "$(hash "$work/runs/two")" = "$(hash "$work/runs/taught")" ] || fail "two ranks have other weights"
fi

refused() { # CODE MESSAGE WORD…
    local code=0 want=$1 message=$2
    shift 2
    "$DTRAIN" "$config" run.name=bad "${teach[@]}" "$@" >/dev/null 2>"$work/log" || code=$?
    [ $code = "$want" ] && grep -q "$message" "$work/log" || fail "exit $code for $*"
}
refused 2 'train.teacher_temperature says nothing without train.teacher' train.teacher=null
refused 4 'no run' train.teacher="$work/runs/none"
refused 2 'data.fields.x.normalize was .* in that run and is' 'data.fields.x.normalize={mean: [1], std: [2]}'
refused 2 "class 2 of cls is 'cherry' there and 'date' here" data.path="$work/other.tar"
refused 2 'train.teacher knows 3 classes of cls, and there are 4 here' data.fields.cls.classes=4
# the teacher's run moved
"$DTRAIN" "$config" run.name=moved "${teach[@]}" run.stop_at=3 >/dev/null 2>"$work/log" && fail "run.stop_at"
cp -r "$work/runs/big" "$work/elsewhere"
"$DTRAIN" "$config" run.name=moved "${teach[@]}" train.teacher="$work/elsewhere@latest" >/dev/null 2>"$work/log" || fail "a teacher that moved"
[ "$(hash "$work/runs/moved")" = "$(hash "$work/runs/taught")" ] || fail "a teacher that moved: other weights"
# the teacher went on meanwhile
code=0
"$DTRAIN" "$config" run.name=stale "${teach[@]}" run.stop_at=3 >/dev/null 2>"$work/log" || code=$?
train train.max_steps=45 run.resume=force
code=0
"$DTRAIN" "$config" run.name=stale "${teach[@]}" >/dev/null 2>"$work/log" || code=$?
[ $code = 2 ] && grep -q 'train.teacher has other weights' "$work/log" || fail "a teacher that changed: exit $code"

# -- encoders with batch norms, mixed and augmented images, an average of the weights: the same bits on two replicas
small_data "$work" 6 3
config=$(small_config "$work")
keys=(run.reproducible=elastic data.mix.mixup=0.3 data.view.pairs.within=subject)
train run.name=fused "${keys[@]}" train.max_steps=4
taught=("${keys[@]}" train.max_steps=4 train.teacher="$work/runs/fused@latest" model.fusion=gated train.ema=0.5
        train.recompute=auto)
train run.name=one "${taught[@]}"
train run.name=two_replicas "${taught[@]}" device.threads=2
[ "$(hash "$work/runs/one")" = "$(hash "$work/runs/two_replicas")" ] || fail "two replicas have other weights"
"$DTRAIN" check "$config" "${taught[@]}" >"$work/check" 2>"$work/log" || fail check
"$DTRAIN" check "$config" "${keys[@]}" model.fusion=gated >"$work/plain" 2>"$work/log" || fail check
[ "$(grep '^model' "$work/check")" = "$(grep '^model' "$work/plain")" ] || fail "check counts the teacher's parameters"
"$DTRAIN" eval "$work/runs/one" >/dev/null 2>"$work/log" || fail "eval of a student"
rm -r "$work/runs/fused"
"$DTRAIN" predict "$work/runs/one" "$work/small.lmdb" -o "$work/out.csv" 2>"$work/log" || fail "predict without the teacher"
echo passed
