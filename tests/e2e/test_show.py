"""Functions of test_show.sh: what it trains on, and checks of what it wrote."""
import math, os, struct, wave, zlib


def make():
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


def check_edges():
    rows, lines = read("hits.png"), [l.rstrip("\n").split("\t") for l in open("hits.txt")]
    places = [tuple(int(x) - 1 for x in l[0].split(",")) for l in lines]
    h, w = len(rows) // (max(p[0] for p in places) + 1), len(rows[0]) // (max(p[1] for p in places) + 1)
    for (r, c), l in zip(places, lines):
        right = l[2].split("=")[1] == l[3].split("=")[1]
        assert rows[r * h + 5][(c + 1) * w - 2] == (30 if right else 210), (l, rows[r * h + 5][(c + 1) * w - 2])


def check_pictures():
    texts = {}
    def cells(path, table):
        rows = read(path)
        lines = [l.rstrip("\n").split("\t") for l in open(table)]
        places = [tuple(int(x) - 1 for x in l[0].split(",")) for l in lines]
        n_rows, n_columns = max(p[0] for p in places) + 1, max(p[1] for p in places) + 1
        h, w = len(rows) // n_rows, len(rows[0]) // n_columns
        for (r, c), l in zip(places, lines):
            cell = [row[c * w:(c + 1) * w - 4] for row in rows[r * h:(r + 1) * h]]
            ink = [[x < 128 for x in row] for row in cell[-12:]] # a line of text below: the class
            assert any(map(any, ink)) and texts.setdefault(l[-1], ink) == ink, l
            yield cell[:-16], l[-1].split("=")[1]
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
    assert texts["label=a"] != texts["label=b"], "a class has the text of another"
    for cell, label in cells("sounds.png", "sounds.txt"):
        bright = max(range(len(cell)), key=lambda y: sum(cell[y]))
        assert (bright > len(cell) / 2) == (label == "low"), (label, bright, len(cell))


def npy(path, shape, values):
    head = str({"descr": "<f4", "fortran_order": False, "shape": shape}).encode()
    head += b" " * (117 - len(head)) + b"\n"
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + struct.pack(f"<{len(values)}f", *values))


def make_bands():
    for k in "ab":
        os.makedirs(f"bands/{k}")
        os.makedirs(f"series/{k}")
        os.makedirs(f"faint/{k}")
        for i in range(2):
            npy(f"bands/{k}/{i}.npy", (16, 16, 2), [v for y in range(16) for x in range(16) for v in (x, 1000 * y)])
            npy(f"faint/{k}/{i}.npy", (16, 16, 2), [1000 if y == x == 8 else 20 if y == 4 else (7 * x + 3 * y) % 5 - 2
                                                  for y in range(16) for x in range(16) for band in range(2)])
            npy(f"series/{k}/{i}.npy", (64, 2), [v for t in range(64) for v in (t, 500 - t)])


def check_bands():
    rows = read("bands.png") # a panel for each band, each between its own least and greatest value
    left, right = [row[:128] for row in rows[:128]], [row[132:260] for row in rows[:128]]
    assert left[64][2] == 0 and left[64][125] == 255 and left[2][64] == left[125][64], left[64]
    assert right[2][64] == 0 and right[125][64] == 255 and right[64][2] == right[64][125], right[64]
    rows = read("faint.png") # a row of 10 times the noise beside a star of 500 times
    assert all(80 < rows[36][x] < 160 for x in (20, 152)) and rows[68][68] == rows[68][200] == 255, rows[36]
    rows = read("series.png") # a lane of 48 pixels for each channel, drawn through
    assert len(rows[0]) == 388, len(rows[0])
    for lane, up in ((0, True), (1, False)):
        ink = [[y for y in range(48) if rows[48 * lane + y][x] < 128] for x in range(384)]
        assert all(ink), "a gap in the line"
        assert (ink[0][0] > 40 and ink[383][0] < 8) if up else (ink[0][0] < 8 and ink[383][-1] > 40), (lane, ink[0], ink[383])


def make_scales():
    for name, scale in (("tiny", 1e-12), ("huge", 1e12), ("fine", 1)):
        for k in "ab":
            os.makedirs(f"{name}/{k}")
            for i in range(4):
                head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (32, 32), }"
                head += b" " * (117 - len(head)) + b"\n"
                data = struct.pack("<1024f", *(scale * (x % 7 - 3) for x in range(1024)))
                open(f"{name}/{k}/{i}.npy", "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + data)
