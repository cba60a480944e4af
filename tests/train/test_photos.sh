#!/usr/bin/env bash
# configs/photos.yaml on pictures by class folder, packed into WebDataset shards: small BMPs that this
# script draws, and photographs if the machine has them. The shards are read by Python's tarfile too.
. "${SOURCE:?}/tests/small_run.sh" || exit
config=$SOURCE/configs/photos.yaml

shards() { # pattern, extension: Python finds image, class and metadata of every sample
    python3 - "$@" <<'PY'
import glob, json, re, sys, tarfile
pattern, image = sys.argv[1:]
samples = {}
for path in sorted(glob.glob(re.sub(r"\{.*\}", "*", pattern))):
    with tarfile.open(path) as tar:
        for member in tar:
            key, ext = member.name.rsplit(".", 1)
            samples.setdefault(key, {})[ext] = tar.extractfile(member).read()
labels = {}
for key, s in samples.items():
    assert set(s) == {image, "cls", "json"} and s[image], (key, s.keys())
    json.loads(s["json"])
    labels.setdefault(key.split("/")[0], set()).add(int(s["cls"]))
assert sorted(map(list, labels.values())) == [[i] for i in range(len(labels))], labels
print(f"tarfile reads {len(samples)} samples of {len(labels)} classes")
PY
}

python3 - "$work/drawn" <<'PY'
import os, random, sys
from small_set import bmp
random.seed(3)
for label, (r, g, b) in {"red": (200, 40, 40), "green": (40, 200, 40), "blue": (40, 40, 200)}.items():
    os.makedirs(f"{sys.argv[1]}/{label}")
    for i in range(24):
        w, h = random.choice([(33, 20), (40, 40), (18, 27)])
        rows = b""
        for _ in range(h):
            row = bytes(max(0, min(255, c + random.randint(-40, 40))) for _ in range(w) for c in (b, g, r))
            rows += row + bytes(-len(row) % 4)
        open(f"{sys.argv[1]}/{label}/{i}.bmp", "wb").write(bmp(w, h, rows))
PY
"$DTRAIN" pack "$work/drawn" "$work/drawn-{000000..000003}.tar" >/dev/null 2>"$work/log" || fail "pack: exit $?"
shards "$work/drawn-{000000..000003}.tar" bmp
train run.dir="$work/runs" run.name=drawn data.path="$work/drawn-{000000..000003}.tar" \
    data.fields.image.source=bmp data.fields.image.size='[24, 24]' data.fields.class.classes=3 model.width=8 \
    train.epochs=20 train.precision=fp32 eval.metrics='[recall, macro_f1]'
python3 -c 'import json, sys; r = json.loads(open(sys.argv[1]).readlines()[-1]); print("drawn:", r)
mean = (r["recall.red"] + r["recall.green"] + r["recall.blue"]) / 3
sys.exit(not (r["accuracy"] >= 0.7 and abs(mean - r["recall"]) < 1e-12 and r["macro_f1"] >= 0.7 and "loss" not in r))' \
    "$work/out" || fail "three colours are not told apart"

photos=$SOURCE/../shared/data/trashnet.tar
[ -e "$photos" ] || { echo "no photographs on this machine: that part is left out"; exit 0; }
"$DTRAIN" pack "$photos" "$work/photos-{000000..000003}.tar" >/dev/null 2>"$work/log" || fail "pack: exit $?"
[ "$(ls "$work"/photos-*.tar | wc -l)" = 4 ] || fail "not four shards"
shards "$work/photos-{000000..000003}.tar" jpg
train run.dir="$work/runs" data.path="$work/photos-{000000..000003}.tar" data.fields.class.classes=6 train.max_steps=6
grep -q '"accuracy"' "$work/out" || fail "no metrics of the photographs"
echo "photographs: $(tail -1 "$work/out")"
