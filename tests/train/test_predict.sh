#!/usr/bin/env bash
# dtrain predict: any set, folder, list or file, labelled or not, in its order, the same on ranks; what cannot be read is
# a row with its reason; CSV, JSON lines and NPY say the same.
. "${SOURCE:?}/tests/small_run.sh" || exit

python3 - "$work" <<'PY'
import os, random, sys
import small_set
work = sys.argv[1]
random.seed(3)
names = [("ant", 30), ("bee, wild", 90), ("cat", 150), ("dog", 220)]
def bmp(shade):
    return small_set.bmp(12, 12, [max(0, min(255, shade + random.randrange(-20, 21))) for _ in range(12 * 12 * 3)])
def make(name, n, labelled=True, noise=0):
    samples = []
    for i in range(n):
        word, shade = names[i % 4]
        shade = shade + random.randrange(-noise, noise + 1)
        samples.append({"bmp": bmp(max(0, min(255, shade)))})
        if labelled:
            samples[i]["json"] = '{"label": "%s", "angle": %d, "odd": %d, "third": %d}' % (word, shade, i % 2, i % 3 == 0)
    small_set.write_tar(f"{work}/{name}.tar", samples)
make("set", 128)
make("hard", 150, noise=60)
make("bare", 8, labelled=False)
os.makedirs(f"{work}/new")
for i in range(12):
    with open(f"{work}/new/{i:02d}.bmp", "wb") as f:
        f.write(bmp(names[i % 4][1]))
with open(f"{work}/new/05.bmp", "wb") as f:
    f.write(b"BM broken")
with open(f"{work}/list.txt", "w") as f:
    f.write("new/07.bmp\nnew/05.bmp\nnew/02.bmp\n")
PY
new_config names <<YAML
    image: {kind: image, source: bmp, size: [12, 12], normalize: {mean: [0.5, 0.5, 0.5], std: [0.25, 0.25, 0.25]}}
    label: {kind: class}
  split: {unit: record, val: 0.2, test: 0.2}
  augment: {image: [{flip: horizontal}]}
model: {name: resnet, depth: 10, width: 8}
train: {epochs: 6, global_batch: 16, micro_batch: 8, precision: fp32, optimizer: {name: adamw, lr: 3.0e-3}}
eval: {every: 6 epochs, metrics: [accuracy]}
YAML
train

predict() { # output, run, words
    local out=$1 run=$2
    shift 2
    "$DTRAIN" predict "$work/runs/$run" "$@" >"$work/$out" 2>"$work/log" || fail "exit $?: predict $run $*"
}

# the same classes as eval finds, on a set where not all is right
predict hard.csv names "$work/hard.tar"
predict plain.csv names "$work/hard.tar" data.augment=null
cmp "$work/hard.csv" "$work/plain.csv" || fail "what is predicted is augmented as in training"
"$DTRAIN" eval "$work/runs/names" --which best --set "$work/hard.tar" >"$work/eval" 2>"$work/log" || fail "eval"
predict hard.jsonl names "$work/hard.tar" -o "$work/out.jsonl" --logits --embeddings
predict nothing names "$work/hard.tar" -o "$work/out.npy"
predict nothing names "$work/hard.tar" -o "$work/logits.npy" --logits
[ ! -s "$work/nothing" ] || fail "stdout with -o"
[ ! -e "$work/out.npy.part" ] || fail "a part is left"
python3 - "$work" <<'PY' || fail "rows"
import csv, json, math, struct, sys
work = sys.argv[1]
names = ["ant", "bee, wild", "cat", "dog"]
rows = list(csv.DictReader(open(f"{work}/hard.csv")))
assert len(rows) == 150 and [r["key"] for r in rows] == [f"{i:04d}" for i in range(150)]
assert all(r["path"] == f"{work}/hard.tar" and r["error"] == "" for r in rows)
right = sum(r["label"] == names[i % 4] for i, r in enumerate(rows)) / 150
accuracy = json.load(open(f"{work}/eval"))["accuracy"]
assert abs(right - accuracy) < 1e-9 and 0.3 < right < 1, (right, accuracy)
lines = [json.loads(l) for l in open(f"{work}/out.jsonl")]
def npy(path):
    b = open(path, "rb").read()
    assert b[:8] == b"\x93NUMPY\1\0"
    n = struct.unpack("<H", b[8:10])[0]
    head = eval(b[10:10 + n])
    assert (10 + n) % 64 == 0 and head["descr"] == "<f4" and head["shape"] == (150, 4), head
    v = struct.unpack("<600f", b[10 + n:])
    return [v[4 * i:4 * i + 4] for i in range(150)]
p, x = npy(f"{work}/out.npy"), npy(f"{work}/logits.npy")
for i, (r, l) in enumerate(zip(rows, lines)):
    top = sorted(range(4), key=lambda k: -p[i][k])
    e = [math.exp(v - max(x[i])) for v in x[i]]
    assert l["key"] == r["key"] and l["label"]["class"] == r["label"] == names[top[0]]
    assert [n for n, _ in l["label"]["top"]] == [names[k] for k in top] == [r["label"]] + [r[f"label.{k}"] for k in (2, 3, 4)]
    assert abs(sum(v for _, v in l["label"]["top"]) - 1) < 1e-6 and len(l["embedding"]) == 64
    assert all(abs(a - b) < 1e-5 for a, b in zip(l["label"]["logits"], x[i]))
    assert all(abs(e[k] / sum(e) - p[i][k]) < 1e-5 for k in range(4))
    assert abs(float(r["label.4.probability"]) - p[i][top[3]]) < 1e-6
PY

# an unlabelled tar, a folder with a broken picture, a list in its order, one picture
predict bare.csv names "$work/bare.tar" --top 1
[ "$(sed 1d "$work/bare.csv" | wc -l)" = 8 ] || fail "bare"
predict new.csv names "$work/new" --top 1
python3 - "$work" <<'PY' || fail "the folder's rows"
import csv, sys
rows = list(csv.DictReader(open(f"{sys.argv[1]}/new.csv")))
assert list(rows[0]) == ["key", "path", "label", "label.probability", "error"], rows[0]
assert [r["path"] for r in rows] == [f"{sys.argv[1]}/new/{i:02d}.bmp" for i in range(12)]
for i, r in enumerate(rows):
    assert (r["label"] == "" and "BMP: cut in its header" in r["error"]) if i == 5 else (
        r["label"] == ["ant", "bee, wild", "cat", "dog"][i % 4] and r["error"] == ""), r
PY
grep -q "1 sample could not be read" "$work/log" || fail "not told"
predict list.csv names "$work/list.txt" --top 1
mkdir "$work/odd"
cp "$work/new/02.bmp" "$work/odd/a"$'\e[2J\n'',"b.bmp'
predict odd.csv names "$work/odd"
grep -qF 'a\x1b[2J\n,""b.bmp"' "$work/odd.csv" && ! LC_ALL=C grep -q $'\e' "$work/odd.csv" && [ "$(wc -l <"$work/odd.csv")" = 2 ] ||
    fail "a name reaches the terminal: $(cat -v "$work/odd.csv")"
cut -d, -f1 "$work/list.csv" | tr '\n' ' ' | grep -qx "key new/07 new/05 new/02 " || fail "order of the list: $(cat "$work/list.csv")"
predict one.csv names "$work/new/02.bmp" --top 1
[ "$(sed 's/^new.//' "$work/list.csv" | sed -n 4p)" = "$(sed -n 2p "$work/one.csv")" ] || fail "one picture: $(cat "$work/one.csv")"
exits 3 '' "$DTRAIN" predict "$work/runs/names" "$work/new" data.on_error=fail

# the same bytes however it is computed
predict again names "$work/hard.tar" device.threads=2 device.replicas=2
cmp "$work/hard.csv" "$work/again" || fail "replicas"
if have_mpi; then
    mpi 3 "$DTRAIN" predict "$work/runs/names" "$work/hard.tar" >"$work/again" 2>"$work/log" || fail "3 ranks: exit $?"
    cmp "$work/hard.csv" "$work/again" || fail "3 ranks"
    mpi 3 "$DTRAIN" predict "$work/runs/names" "$work/new" --top 1 >"$work/again" 2>"$work/log" || fail "3 ranks: exit $?"
    cmp "$work/new.csv" "$work/again" || fail "3 ranks, a broken picture"
fi
python3 -c 'import pty, sys; sys.exit(pty.spawn(sys.argv[1:]))' "$DTRAIN" predict "$work/runs/names" "$work/hard.tar" -o "$work/o.csv" >"$work/screen"
grep -q 'predict \[#*\] 150/150 samples' "$work/screen" || fail "no line of progress: $(cat "$work/screen")"

# numbers in the field's unit, labels of which several can be true, several targets
sed 's/label: {kind: class}/angle: {kind: real, normalize: {mean: [100], std: [80]}}/; s/lr: 3.0e-3}/&, loss: mse/
     s/accuracy/mae/' "$config" >"$work/angle.yaml"
config=$work/angle.yaml
train run.name=angle train.epochs=20
predict angle.csv angle "$work/bare.tar"
predict nothing angle "$work/bare.tar" --logits -o "$work/angle.jsonl"
sed 's/label: {kind: class}/flags: {kind: vector, source: [odd, third]}\n    label: {kind: class}/
     s/lr: 3.0e-3}/&, targets: {label: {loss: cross_entropy}, flags: {loss: bce}}/; s/metrics: \[accuracy\]/metrics: [loss]/' "$work/small.yaml" >"$work/two.yaml"
config=$work/two.yaml
train run.name=two
predict two.csv two "$work/bare.tar" --top 2 --logits
predict nothing two "$work/bare.tar" -o "$work/two.jsonl"
python3 - "$work" <<'PY' || fail "numbers, several targets"
import csv, json, math, sys
work = sys.argv[1]
rows = list(csv.DictReader(open(f"{work}/angle.csv")))
assert list(rows[0]) == ["key", "path", "angle", "error"], rows[0]
for i, r in enumerate(rows):
    assert abs(float(r["angle"]) - [30, 90, 150, 220][i % 4]) < 40, r
for r, l in zip(rows, map(json.loads, open(f"{work}/angle.jsonl"))): # logits are the network's outputs, before the unit
    assert abs(l["angle"]["value"] - float(r["angle"])) < 1e-4 and abs(l["angle"]["logits"][0] * 80 + 100 - l["angle"]["value"]) < 1e-3, l
rows = list(csv.DictReader(open(f"{work}/two.csv")))
assert list(rows[0]) == ["key", "path", "flags.odd", "flags.third", "flags.logit.odd", "flags.logit.third", "label",
    "label.probability", "label.2", "label.2.probability", *[f"label.logit.{n}" for n in ("ant", "bee, wild", "cat", "dog")],
    "error"], rows[0]
lines = [json.loads(l) for l in open(f"{work}/two.jsonl")]
for r, l in zip(rows, lines):
    assert abs(1 / (1 + math.exp(-float(r["flags.logit.third"]))) - float(r["flags.third"])) < 1e-6
    assert l["flags"]["third"] == float(r["flags.third"]) and l["label"]["class"] == r["label"], (l, r)
PY

# ---- parts of the run's own data, and the run's data.where -----------------------------------------
config=$work/small.yaml
train run.name=part data.path="$work/hard.tar" data.where="key >= '0030'" train.max_steps=30 data.augment=null
for split in train val test; do
    predict $split.csv part --split $split
    "$DTRAIN" eval "$work/runs/part" --split $split >"$work/$split.json" 2>"$work/log" || fail "eval"
done
predict moved.csv part "$work/hard.tar" --split val
cmp "$work/val.csv" "$work/moved.csv" || fail "--split of a set that is named"
predict where.csv part "$work/hard.tar"
grep -q "120 records of 150 (data.where)" "$work/log" || fail "records are left out without a word"
predict all.csv part "$work/hard.tar" data.where=null
predict some.csv part "$work/hard.tar" data.where="key < '0007'"
predict folder.csv part "$work/new" data.where=null
"$DTRAIN" predict "$work/runs/part" "$work/runs/part" --split test >"$work/twice.csv" 2>"$work/log" || fail "two runs, their own data"
python3 - "$work" <<'PY' || fail "parts"
import csv, json, sys
work = sys.argv[1]
def read(name):
    return list(csv.DictReader(open(f"{work}/{name}.csv")))
part = {r["key"]: r["part"] for r in csv.DictReader(open(f"{work}/runs/part/split.csv"))}
for split in ("train", "val", "test"):
    rows = read(split)
    assert sorted(r["key"] for r in rows) == sorted(k for k, p in part.items() if p == split) and min(part) == "0030"
    right = sum(r["label"] == ["ant", "bee, wild", "cat", "dog"][int(r["key"]) % 4] for r in rows)
    assert abs(right / len(rows) - json.load(open(f"{work}/{split}.json"))["accuracy"]) < 1e-9, split
assert [len(read(n)) for n in ("where", "all", "some", "folder")] == [120, 150, 7, 12]
assert [r["key"] for r in read("twice")] == [r["key"] for r in read("test")]
PY

refused() {
    exits 2 "$1" "$DTRAIN" predict "${@:2}"
}
refused "none of train|val|test" "$work/runs/part" --split all
refused "data.where=null takes all records" "$work/runs/part" "$work/set.tar" data.where="camera = 'left'"
refused "wants a run, or several, and a data set" "$work/runs/names"
refused "to_parquet" "$work/runs/names" "$work/new" -o "$work/a.parquet"
refused "the extension says the format" "$work/runs/names" "$work/new" -o "$work/a.txt"
refused "holds one array, and the run has 2 targets" "$work/runs/two" "$work/new" -o "$work/a.npy"
refused "take --logits or --embeddings" "$work/runs/names" "$work/new" -o "$work/a.npy" --logits --embeddings

# ---- several passes --------------------------------------------------------------------------------
# an ensemble is the mean; by uncertainty the surer run counts more
config=$work/small.yaml
train run.name=other run.seed=6 train.epochs=2 model.dropout=0.3
npy() { predict nothing "$@" -o "$work/$out.npy"; }
out=a npy names "$work/hard.tar"
out=b npy other "$work/hard.tar"
"$DTRAIN" predict "$work/runs/names" "$work/runs/other" "$work/hard.tar" >"$work/both.csv" 2>"$work/log" || fail "ensemble"
"$DTRAIN" predict "$work/runs/names" "$work/runs/other" "$work/hard.tar" --weights uncertainty >"$work/sure.csv" 2>"$work/log" ||
    fail "ensemble by uncertainty"
predict mc.csv other "$work/hard.tar" --mc 8
predict mc2.csv other "$work/hard.tar" --mc 8 device.threads=2 device.replicas=2
cmp "$work/mc.csv" "$work/mc2.csv" || fail "--mc: other replicas, other masks"
predict seed.csv other "$work/hard.tar" --mc 8 run.seed=7
! cmp -s "$work/mc.csv" "$work/seed.csv" || fail "--mc does not follow the seed"
predict tta.csv names "$work/hard.tar" --tta flip,scale
predict flip.csv names "$work/hard.tar" 'data.augment.image=[{flip: {axis: horizontal, p: 1}}]'
python3 - "$work" <<'PY' || fail "means"
import csv, math, struct, sys
work = sys.argv[1]
names = ["ant", "bee, wild", "cat", "dog"]
def npy(name):
    b = open(f"{work}/{name}.npy", "rb").read()
    v = struct.unpack("<600f", b[-2400:])
    return [v[4 * i:4 * i + 4] for i in range(150)]
def table(name):
    rows = list(csv.DictReader(open(f"{work}/{name}.csv")))
    for r in rows:
        n = [r["label"]] + [r[f"label.{k}"] for k in (2, 3, 4)]
        v = [r["label.probability"]] + [r[f"label.{k}.probability"] for k in (2, 3, 4)]
        r["p"] = [float(v[n.index(c)]) for c in names]
    return rows
H = lambda p: -sum(x * math.log(x) for x in p if x > 0)
a, b, both, sure = npy("a"), npy("b"), table("both"), table("sure")
for i in range(150):
    mean = [(x + y) / 2 for x, y in zip(a[i], b[i])]
    assert all(abs(x - y) < 1e-6 for x, y in zip(mean, both[i]["p"])), (i, mean, both[i])
    k = mean.index(max(mean))
    assert abs(float(both[i]["label.variance"]) - (a[i][k] - b[i][k]) ** 2 / 4) < 1e-6
    assert abs(float(both[i]["label.entropy"]) - H(mean)) < 1e-5
    assert abs(float(both[i]["label.mutual_information"]) - (H(mean) - (H(a[i]) + H(b[i])) / 2)) < 1e-5
    u, v = 1 / (H(a[i]) + 1e-3), 1 / (H(b[i]) + 1e-3)
    assert all(abs((u * x + v * y) / (u + v) - z) < 1e-5 for x, y, z in zip(a[i], b[i], sure[i]["p"])), i
mc = table("mc")
assert all(abs(sum(r["p"]) - 1) < 1e-6 and float(r["label.mutual_information"]) >= 0 for r in mc)
assert sum(float(r["label.variance"]) > 0 for r in mc) > 140
tta, flip = table("tta"), table("flip")
assert any(abs(x - y) > 1e-5 for i in range(150) for x, y in zip(flip[i]["p"], a[i]))
assert any(abs(2 * t - x - y) > 1e-5 for i in range(150) for t, x, y in zip(tta[i]["p"], flip[i]["p"], a[i]))
scale = [[3 * t - x - y for t, x, y in zip(tta[i]["p"], flip[i]["p"], a[i])] for i in range(150)]
assert all(-1e-5 < x < 1 + 1e-5 for p in scale for x in p)
PY
if have_mpi; then
    mpi 3 "$DTRAIN" predict "$work/runs/other" "$work/runs/names" "$work/hard.tar" --mc 2 --weights uncertainty run.seed=3 \
        model.dropout=0.3 --tta flip >"$work/again" 2>"$work/log" || fail "3 ranks: exit $?"
    "$DTRAIN" predict "$work/runs/other" "$work/runs/names" "$work/hard.tar" --mc 2 --weights uncertainty run.seed=3 \
        model.dropout=0.3 --tta flip >"$work/alone" 2>"$work/log" || fail "exit $?"
    cmp "$work/alone" "$work/again" || fail "3 ranks, several passes"
fi
refused "--mc draws dropout masks, and run names was trained without" "$work/runs/names" "$work/new" --mc 3
refused "an ensemble predicts the same" "$work/runs/names" "$work/runs/angle" "$work/new"
refused "are of one pass" "$work/runs/names" "$work/runs/other" "$work/new" --logits
refused "none of flip, scale" "$work/runs/names" "$work/new" --tta turn

# ---- temperature -----------------------------------------------------------------------------------
train run.name=cal data.path="$work/hard.tar" data.split.val=0.4 data.split.test=null train.epochs=30
predict before.csv cal "$work/hard.tar" --logits
"$DTRAIN" eval "$work/runs/cal" --calibrate >"$work/cal.json" 2>"$work/log" || fail "--calibrate"
predict after.csv cal "$work/hard.tar" --logits
python3 - "$work" <<'PY' || fail "temperature"
import csv, json, math, sys
work = sys.argv[1]
names = ["ant", "bee, wild", "cat", "dog"]
r = json.load(open(f"{work}/cal.json"))
T = r["label"]["temperature"]
assert json.load(open(f"{work}/runs/cal/calibration.json"))["label"]["temperature"] == T and T != 1
val = {row["key"] for row in csv.DictReader(open(f"{work}/runs/cal/split.csv")) if row["part"] == "val"}
rows = list(csv.DictReader(open(f"{work}/before.csv")))
x = {row["key"]: [float(row[f"label.logit.{n}"]) for n in names] for row in rows}
def nll(t):
    return sum(math.log(sum(math.exp(v / t) for v in x[k])) - x[k][int(k) % 4] / t for k in val) / len(val)
assert len(val) == r["samples"] > 40
assert abs(nll(1) - r["label"]["nll_before"]) < 1e-5 and abs(nll(T) - r["label"]["nll"]) < 1e-5, (nll(T), r)
assert nll(T) < nll(T * 1.02) and nll(T) < nll(T / 1.02), T
assert r["label"]["ece"] != r["label"]["ece_before"]
for a, b in zip(rows, csv.DictReader(open(f"{work}/after.csv"))):
    e = sorted((math.exp(v / T) for v in x[a["key"]]), reverse=True)
    assert a["label"] == b["label"] and a["label.logit.cat"] == b["label.logit.cat"]
    assert abs(float(b["label.probability"]) - e[0] / sum(e)) < 1e-6
PY
train run.name=cal data.path="$work/hard.tar" data.split.val=0.4 data.split.test=null train.epochs=31 run.resume=force
predict other.csv cal "$work/hard.tar" --which latest
grep -q "is of another checkpoint" "$work/log" || fail "a temperature of another checkpoint"
exits 2 "the run predicts none" "$DTRAIN" eval "$work/runs/angle" --calibrate
