#!/usr/bin/env bash
# dtrain data show: the picture has what the network gets: pixels after augmentation and mixing, sounds as spectrograms.
. "${SOURCE:?}/tests/expect.sh" || exit
command -v "$python" >/dev/null || { echo "skipped: no python3"; exit 77; }

"$python" - <<'END'
import math, os, struct, wave
for name, pixels in (("a", bytes([0, 0, 200, 200] * 4)), ("b", bytes([0, 0, 100, 100] * 4))):
    os.makedirs("pictures/" + name)
    for i in range(4):
        open(f"pictures/{name}/{i}.pgm", "wb").write(b"P5 4 4 255\n" + pixels)
for name, hz in (("low", 300), ("high", 3000)):
    os.makedirs("sounds/" + name)
    for i in range(4):
        with wave.open(f"sounds/{name}/{i}.wav", "wb") as w:
            w.setparams((1, 2, 8000, 0, "NONE", ""))
            w.writeframes(b"".join(struct.pack("<h", int(9000 * math.sin(2 * math.pi * hz * t / 8000))) for t in range(8000)))
END
cat >read_png.py <<'END'
import struct, sys, zlib
def read(path):
    data, at, idat = open(path, "rb").read(), 8, b""
    while at < len(data):
        n, kind = struct.unpack(">I4s", data[at:at + 8])
        if kind == b"IHDR": w, h, depth, colour = struct.unpack(">IIBB", data[at + 8:at + 18])
        if kind == b"IDAT": idat += data[at + 8:at + 8 + n]
        at += 12 + n
    c = 3 if colour == 2 else 1
    raw, rows, before = zlib.decompress(idat), [], bytes(w * c)
    for y in range(h):
        f, line = raw[y * (w * c + 1)], bytearray(raw[y * (w * c + 1) + 1:(y + 1) * (w * c + 1)])
        for i in range(len(line)):
            a, b, d = (line[i - c] if i >= c else 0), before[i], (before[i - c] if i >= c else 0)
            p = a + b - d
            paeth = a if abs(p - a) <= abs(p - b) and abs(p - a) <= abs(p - d) else b if abs(p - b) <= abs(p - d) else d
            line[i] = (line[i] + (0, a, b, (a + b) // 2, paeth)[f]) & 255
        rows.append([line[i * c] for i in range(w)])
        before = line
    return rows
END
cat >c.yaml <<'END'
run: {name: r}
data:
  path: pictures
  fields:
    image: {kind: image, channels: 1, size: [4, 4]}
    label: {kind: class}
  split: {val: 0.25, stratify: label}
  augment: {image: [{flip: {axis: horizontal, p: 1}}]}
model: {name: resnet, width: 4}
train: {epochs: 1, global_batch: 4, micro_batch: 2}
END
"$dtrain" data show c.yaml train.png --n 4 >train.txt 2>err.txt || fail "$(cat err.txt)"
"$dtrain" data show c.yaml val.png --split val >val.txt 2>err.txt || fail "$(cat err.txt)"
"$dtrain" data show c.yaml mix.png --n 6 data.mix.mixup=1 >mix.txt 2>err.txt || fail "$(cat err.txt)"
[ "$(wc -l <train.txt)" = 4 ] && [ "$(wc -l <val.txt)" = 2 ] || fail "lines: $(cat train.txt val.txt)"
grep -qE '^1,1	[ab]/[0-9]	label=[ab]$' train.txt || fail "lines: $(cat train.txt)"
sed -i 's,path: pictures,path: sounds,; s/image: {kind.*/image: {kind: audio, rate: 8000, seconds: 1, n_mels: 32}/; /augment:/d' c.yaml
"$dtrain" data show c.yaml sounds.png --n 4 >sounds.txt 2>err.txt || fail "$(cat err.txt)"
"$python" - <<'END'
from read_png import read
def cells(path, table):
    rows = read(path)
    lines = [l.rstrip("\n").split("\t") for l in open(table)]
    places = [tuple(int(x) - 1 for x in l[0].split(",")) for l in lines]
    n_rows, n_columns = max(p[0] for p in places) + 1, max(p[1] for p in places) + 1
    h, w = len(rows) // n_rows, len(rows[0]) // n_columns
    for (r, c), l in zip(places, lines):
        yield [row[c * w:(c + 1) * w - 4] for row in rows[r * h:(r + 1) * h - 4]], l[-1].split("=")[1]
value = {"a": 200, "b": 100}
for cell, label in cells("train.png", "train.txt"): # flipped
    assert cell[5][5] == value[label] and cell[5][-5] == 0, (label, cell[5])
for cell, label in cells("val.png", "val.txt"): # as they are
    assert cell[5][5] == 0 and cell[5][-5] == value[label], (label, cell[5])
mixed = 0
for cell, label in cells("mix.png", "mix.txt"):
    parts = [p.split() for p in label.split(" + ")]
    want = sum(float(p[0]) * value[p[1]] if len(p) == 2 else value[p[0]] for p in parts)
    assert abs(cell[5][5] - want) <= 2, (label, cell[5][5])
    mixed += len(parts) > 1
assert mixed, "nothing is mixed"
for cell, label in cells("sounds.png", "sounds.txt"):
    bright = max(range(len(cell)), key=lambda y: sum(cell[y]))
    assert (bright > len(cell) / 2) == (label == "low"), (label, bright, len(cell))
END
# -- dtrain check: values far from what a network expects are told, with the way to bring them there
"$python" - <<'END'
import os, struct
for name, scale in (("tiny", 1e-12), ("huge", 1e12), ("fine", 1)):
    for k in "ab":
        os.makedirs(f"{name}/{k}")
        for i in range(4):
            head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (32, 32), }"
            head += b" " * (117 - len(head)) + b"\n"
            data = struct.pack("<1024f", *(scale * (x % 7 - 3) for x in range(1024)))
            open(f"{name}/{k}/{i}.npy", "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + data)
END
sed 's/image: {kind.*/image: {kind: image, size: 32, channels: 1, dtype: f32}/; s/path: .*/path: fine/' c.yaml >f32.yaml
for set in tiny huge; do
    "$dtrain" check f32.yaml data.path=$set >out.txt 2>&1 || fail "$(cat out.txt)"
    grep -q "data.fields.image: the network gets values of -3e[-+]12 to 3e[-+]12 .*normalize: {mean: \[" out.txt || fail "$set: $(cat out.txt)"
    good=$(sed -n 's/.*give normalize: //p' out.txt)
    "$dtrain" check f32.yaml data.path=$set data.fields.image.normalize="$good" >out.txt 2>&1 || fail "$(cat out.txt)"
    ! grep -q "the network gets" out.txt || fail "$set with $good: $(cat out.txt)"
done
"$dtrain" check f32.yaml >out.txt 2>&1 || fail "$(cat out.txt)"
! grep -q "the network gets" out.txt || fail "fine: $(cat out.txt)"

# -- nothing to show
sed '/image:/d' c.yaml >none.yaml
code=0
"$dtrain" data show none.yaml x.png 2>err.txt || code=$?
[ $code = 2 ] && grep -qF "no image or audio field" err.txt || fail "nothing to show: $code $(cat err.txt)"
code=0
"$dtrain" data show c.yaml 2>err.txt || code=$?
[ $code = 2 ] && grep -qF "CONFIG.yaml OUT.png" err.txt || fail "no OUT: $code $(cat err.txt)"
echo OK
