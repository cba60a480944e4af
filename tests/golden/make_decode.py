"""Writes tests/golden/decode.safetensors: small PNG, BMP, PPM and WebP files with the CRC-32 of the pixels that
Pillow reads from them (as RGB and as grey), and CRCs of what Pillow's bilinear resize makes of a picture.

Files that Pillow does not write (interlaced, 16 bits, run-length coded) are made here byte by byte. Values of
16 bits are what the format means, rounded (v * 255 / 65535), where Pillow cuts or clips.
Run by hand in an environment with Pillow, numpy and safetensors:  python tests/golden/make_decode.py
"""
import io
import os
import struct
import zlib

import numpy as np
import PIL
from PIL import Image
from safetensors.numpy import save_file

W, H = 17, 11
rng = np.random.default_rng(1)


def picture(channels, bits):
    """(H,W,channels) of values 0..2^bits-1: slopes, an edge and noise."""
    y, x = np.mgrid[0:H, 0:W]
    full = 2 ** bits - 1
    planes = [(x * (3 + c) / W + y * (2 - c) / H + (x > 9)) / 6 for c in range(channels)]
    a = np.stack(planes, axis=-1) + rng.uniform(-0.05, 0.05, (H, W, channels))
    return np.clip(np.round(a * full), 0, full).astype(np.int64)


# ---- PNG ---------------------------------------------------------------------------------------------
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def pack_row(row, bits):
    flat = row.reshape(-1)
    if bits == 16:
        return flat.astype(">u2").tobytes()
    if bits == 8:
        return flat.astype(np.uint8).tobytes()
    digits = "".join(format(v, f"0{bits}b") for v in flat)
    digits += "0" * (-len(digits) % 8)
    return bytes(int(digits[i:i + 8], 2) for i in range(0, len(digits), 8))


def paeth(a, b, c):
    p = a + b - c
    return min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]


def filter_rows(rows, step):
    """Each row with another of the five filters."""
    out, above = b"", bytes(len(rows[0]))
    for y, row in enumerate(rows):
        kind = y % 5
        out += bytes([kind])
        for i, v in enumerate(row):
            a = row[i - step] if i >= step else 0
            b, c = above[i], above[i - step] if i >= step else 0
            guess = (0, a, b, (a + b) // 2, paeth(a, b, c))[kind]
            out += bytes([(v - guess) & 255])
        above = row
    return out


ADAM7 = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]


def png(pixels, colour, bits, interlaced=False, palette=None, extra=b""):
    samples = pixels.shape[2]
    step = max(1, samples * bits // 8)
    passes = ADAM7 if interlaced else [(0, 0, 1, 1)]
    data = b""
    for y0, x0, dy, dx in passes:
        part = pixels[y0::dy, x0::dx]
        if part.size:
            data += filter_rows([pack_row(r, bits) for r in part], step)
    out = b"\x89PNG\r\n\x1a\n"
    out += chunk(b"IHDR", struct.pack(">IIBBBBB", W, H, bits, colour, 0, 0, int(interlaced)))
    if palette is not None:
        out += chunk(b"PLTE", palette.astype(np.uint8).tobytes())
    return out + extra + chunk(b"IDAT", zlib.compress(data, 9)) + chunk(b"IEND", b"")


def rounded(pixels, bits):
    full = 2 ** bits - 1
    return (pixels * 255 * 2 + full) // (2 * full)


def to_rgb(pixels):
    return np.repeat(pixels[..., :1], 3, axis=2) if pixels.shape[2] < 3 else pixels[..., :3]


cases = []


def add(name, data, rgb=None, pillow_reads=True):
    image = Image.open(io.BytesIO(data))
    read = np.asarray(image.convert("RGB")).astype(np.int64) if pillow_reads else rgb
    if rgb is None:
        rgb = read
    elif "16" not in name and not np.array_equal(rgb, read):
        raise SystemExit(f"{name}: Pillow reads something else")
    r, g, b = (rgb[..., c] for c in range(3))
    grey = (19595 * r + 38470 * g + 7471 * b + 32768) >> 16
    if image.mode in ("L", "RGB", "RGBA") and "16" not in name and pillow_reads:
        assert np.array_equal(grey, np.asarray(image.convert("L"))), name
    crc = [zlib.crc32(a.astype(np.uint8).tobytes()) for a in (rgb, grey)]
    cases.append((name, data, image.size, crc))


for lace in (False, True):
    tail = ", interlaced" if lace else ""
    for bits in (1, 2, 4, 8, 16):
        p = picture(1, bits)
        add(f"png grey {bits}{tail}", png(p, 0, bits, lace), to_rgb(rounded(p, bits)))
    for bits in (1, 2, 4, 8):
        n = min(2 ** bits, 100)
        p, colours = picture(1, bits) % n, rng.integers(0, 256, (n, 3))
        trns = chunk(b"tRNS", bytes(range(n))[::-1]) if bits == 4 else b""
        add(f"png palette {bits}{tail}", png(p, 3, bits, lace, colours, trns), colours[p[..., 0]])
    for bits in (8, 16):
        p = picture(3, bits)
        add(f"png rgb {bits}{tail}", png(p, 2, bits, lace), rounded(p, bits))
        p = picture(2, bits)
        add(f"png grey alpha {bits}{tail}", png(p, 4, bits, lace), to_rgb(rounded(p, bits)))
        p = picture(4, bits)
        add(f"png rgb alpha {bits}{tail}", png(p, 6, bits, lace), to_rgb(rounded(p, bits)))
p = picture(3, 8)
add("png rgb with transparent colour", png(p, 2, 8, extra=chunk(b"tRNS", struct.pack(">HHH", *p[0, 0]))), p)
add("png with gamma", png(p, 2, 8, extra=chunk(b"gAMA", struct.pack(">I", 100000))), p)


def pillow(name, mode, kind, **how):
    channels = {"1": 1, "L": 1, "P": 1, "RGB": 3, "RGBA": 4}[mode]
    p = picture(channels, 8).astype(np.uint8)
    if mode == "1":
        image = Image.fromarray(p[..., 0]).convert("1")
    elif mode == "P":
        image = Image.fromarray(p[..., 0], "P")
        image.putpalette(rng.integers(0, 256, 768).astype(np.uint8).tobytes())
    else:
        image = Image.fromarray(p[..., 0] if channels == 1 else p, mode)
    out = io.BytesIO()
    image.save(out, kind, **how)
    add(name, out.getvalue())


for mode in ("1", "L", "P", "RGB", "RGBA"):
    pillow(f"png of Pillow {mode}", mode, "PNG")
    pillow(f"bmp of Pillow {mode}", mode, "BMP")
for mode in ("1", "L", "RGB"):
    pillow(f"ppm of Pillow {mode}", mode, "PPM")


# ---- BMP by hand -------------------------------------------------------------------------------------
def bmp(bits, body, compression=0, palette=None, masks=b"", header=40, height=H):
    info = struct.pack("<IiiHHIIiiII", header, W, height, 1, bits, compression, len(body), 0, 0,
                       0 if palette is None else len(palette), 0)
    if header > 40:
        info += masks + b"\0" * (header - 40 - len(masks))
        masks = b""
    colours = b"" if palette is None else b"".join(bytes([b, g, r, 0]) for r, g, b in palette)
    at = 14 + len(info) + len(masks) + len(colours)
    return b"BM" + struct.pack("<IHHI", at + len(body), 0, 0, at) + info + masks + colours + body


def rows_of(values, code):
    out = b""
    for row in values[::-1]:
        raw = row.astype(code).tobytes()
        out += raw + b"\0" * (-len(raw) % 4)
    return out


def rle8(indices):
    """Runs and literal runs."""
    out = b""
    for y, row in enumerate(indices[::-1]):
        x = 0
        while x < len(row):
            n = 1
            while x + n < len(row) and row[x + n] == row[x]:
                n += 1
            if n == 1 and x + 4 <= len(row):
                out += bytes([0, 4]) + bytes(row[x:x + 4].tolist())
                x += 4
                continue
            out += bytes([n, int(row[x])])
            x += n
        out += b"\0\0"
    return out[:-2] + b"\0\1"


def rle4(indices):
    out = b""
    for row in indices[::-1]:
        n = len(row)
        pairs = row.tolist() + [0] * (n % 2)
        literal = bytes(pairs[i] << 4 | pairs[i + 1] for i in range(0, len(pairs), 2))
        out += bytes([0, n]) + literal + b"\0" * (len(literal) % 2)
        out += b"\0\0"
    return out + b"\0\1"


p = picture(1, 4)[..., 0]
p[:, 5:15] = p[:, 5:6]
colours = rng.integers(0, 256, (16, 3))
add("bmp rle8", bmp(8, rle8(p), 1, colours), colours[p])
add("bmp rle4", bmp(4, rle4(p), 2, colours), colours[p])
runs = b"".join(bytes([W, y * 16 + 15 - y, 0, 0]) for y in range(H))
two = np.stack([np.where(np.arange(W) % 2 == 0, y, 15 - y) for y in range(H)])[::-1]
add("bmp rle4 runs", bmp(4, runs + b"\0\1", 2, colours), colours[two])
jump = bytes([3, 5, 0, 2, 4, 2, 2, 7, 0, 1])
p = np.zeros((H, W), int)
p[H - 1, :3] = 5
p[H - 3, 7:9] = 7
add("bmp rle8 jump", bmp(8, jump, 1, colours), colours[p], False)  # Pillow wants all rows
add("bmp rle8 too long a run", bmp(8, bytes([W + 9, 3, 0, 0]) * H + b"\0\1", 1, colours),
    colours[np.full((H, W), 3)])


def masked(values, masks):
    planes = []
    for m in masks:
        shift = (m & -m).bit_length() - 1
        planes.append(rounded((values & m) >> shift, (m >> shift).bit_length()))
    return np.stack(planes, axis=-1)


words = rng.integers(0, 1 << 16, (H, W))
longs = rng.integers(0, 1 << 32, (H, W))
for header in (40, 108, 124):
    for name, bits, code, values, masks in (
            ("565", 16, "<u2", words, (0xf800, 0x7e0, 0x1f)),
            ("555", 16, "<u2", words, (0x7c00, 0x3e0, 0x1f)),
            ("8888", 32, "<u4", longs, (0xff0000, 0xff00, 0xff)),
            ("rgbx", 32, "<u4", longs, (0xff000000, 0xff0000, 0xff00))):
        data = bmp(bits, rows_of(values, code), 3, None, struct.pack("<III", *masks), header)
        rgb = masked(values, masks)
        # Pillow scales 5 and 6 bits another way: compare it only with what is exact in both
        name = f"bmp {name} of header {header}" + (" (16)" if bits == 16 else "")
        add(name, data, rgb)
data = bmp(16, rows_of(words, "<u2"))
add("bmp 555 (16) without masks", data, masked(words, (0x7c00, 0x3e0, 0x1f)))
top = picture(3, 8)
add("bmp top down", bmp(24, rows_of(top[::-1, :, ::-1], "u1"), height=-H), top)


# ---- PPM by hand -------------------------------------------------------------------------------------
def ppm(kind, body, top=None, head=b"# a comment\n"):
    size = b"P%d\n" % kind + head + b"%d # another\n %d\n" % (W, H)
    return size + (b"" if top is None else b"%d\n" % top) + body


def text(values):
    return b"".join(b" ".join(b"%d" % v for v in row.reshape(-1)) + b"\n" for row in values)


p = picture(1, 1)
add("ppm P1", ppm(1, text(p)), to_rgb(1 - p) * 255)
add("ppm P1 digits touching", ppm(1, text(p).replace(b" ", b"")), to_rgb(1 - p) * 255)
p = picture(1, 8)
add("ppm P2", ppm(2, text(p), 255), to_rgb(p))
p = picture(3, 8)
add("ppm P3", ppm(3, text(p), 255, b""), p)
add("ppm P6", ppm(6, p.astype(np.uint8).tobytes(), 255), p)
p = picture(3, 4)
add("ppm P3 to 15", ppm(3, text(p), 15), rounded(p, 4))
add("ppm P6 to 15", ppm(6, p.astype(np.uint8).tobytes(), 15), rounded(p, 4))
p = picture(1, 16)
add("ppm P5 16 bits", ppm(5, p.astype(">u2").tobytes(), 65535), to_rgb(rounded(p, 16)))
add("ppm P2 16 bits", ppm(2, text(p), 65535), to_rgb(rounded(p, 16)))
p = picture(3, 16)
add("ppm P6 16 bits", ppm(6, p.astype(">u2").tobytes(), 65535), rounded(p, 16))


# ---- WebP --------------------------------------------------------------------------------------------
for mode in ("RGB", "RGBA"):
    pillow(f"webp lossy {mode}", mode, "WEBP", quality=80)
    pillow(f"webp lossless {mode}", mode, "WEBP", lossless=True)
first, second = (Image.fromarray(picture(3, 8).astype(np.uint8)) for _ in range(2))
animation = io.BytesIO()
first.save(animation, "WEBP", save_all=True, append_images=[second], lossless=True)


# ---- resize ------------------------------------------------------------------------------------------
def large(mode, w, h):
    channels = 3 if mode == "RGB" else 1
    data = bytes((x * 37 + y * 61 + c * 91 + x * y * 13 + (x // 7 + y // 5) % 2 * 90) % 256
                 for y in range(h) for x in range(w) for c in range(channels))
    return Image.frombytes(mode, (w, h), data)


sizes = []
for mode in ("RGB", "L"):
    for (w, h), out, box in (
            ((131, 97), (67, 50), None), ((131, 97), (30, 21), None), ((131, 97), (9, 7), None),
            ((131, 97), (224, 224), None), ((131, 97), (1, 1), None), ((131, 97), (2, 3), None),
            ((131, 97), (64, 64), (3, 5, 90, 91)), ((131, 97), (49, 33), (20.5, 10.25, 130.75, 96.5)),
            ((131, 97), (61, 43), (70, 50, 131, 97)), ((1, 97), (5, 20), None), ((131, 1), (50, 3), None),
            ((4, 3), (2, 2), None), ((1100, 5), (2, 2), None), ((5, 1100), (2, 2), None),
            ((13, 9), (5, 4), None), ((13, 9), (20, 17), None), ((13, 9), (6, 9), None),
            ((13, 9), (3, 2), (2, 1, 11, 8)), ((13, 9), (7, 5), (1, 2, 6, 7))):
        box = box or (0, 0, w, h)
        # width first, as Pillow up to 12 does; 13 begins with the height where that shrinks much more
        made = large(mode, w, h).resize((out[0], h), Image.BILINEAR, box=(box[0], 0, box[2], h))
        made = made.resize(out, Image.BILINEAR, box=(0, box[1], out[0], box[3])).tobytes()
        sizes.append((mode, w, h, out, box, zlib.crc32(made)))

out = {"animation": animation.getvalue()}
out.update((f"file/{name}", data) for name, data, _, _ in cases)
out = {name: np.frombuffer(data, np.uint8) for name, data in out.items()}
out.update((f"pixels/{name}", np.array([*size, *crc], np.int64)) for name, _, size, crc in cases)
out["resize"] = np.array([(3 if mode == "RGB" else 1, w, h, *to, *box, crc) for mode, w, h, to, box, crc in sizes],
                         np.float64)
save_file(out, os.path.join(os.path.dirname(__file__), "decode.safetensors"),
          metadata={"made": f"by make_decode.py with Pillow {PIL.__version__}"})
print(len(cases), "files")
