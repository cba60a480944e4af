#!/usr/bin/env python3
"""What Pillow and tifffile make of small TIFF files: writes tiff.safetensors beside this script, and the corpus of the fuzz
target.

Run by hand when a case is added (needs numpy, Pillow, tifffile, imagecodecs, safetensors); test_golden_arrays.c reads
every case. "file/NAME" are the bytes, "want/NAME" the image (H,W,C): of bytes what Pillow reads as RGB, of floats the
values that tifffile reads. "pages/NAME" are the pages that are asked for.
"""
import io
import os
import struct

import numpy as np
import tifffile
from PIL import Image
from safetensors.numpy import save_file

H, W = 21, 37
rng = np.random.default_rng(8)
out = {}


def add(name, data, want, pages=None):
    want = np.asarray(want)
    want = want[..., None] if want.ndim == 2 else want
    out["file/" + name] = np.frombuffer(data, np.uint8)
    out["want/" + name] = np.ascontiguousarray(want if want.dtype == np.uint8 and pages is None else
                                               np.where(np.isfinite(want), want, 0).astype(np.float32))
    if pages is not None:
        out["pages/" + name] = np.array(pages, np.int64)


def rgb_of(data):
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def smooth(channels, bits=8):
    y, x = np.mgrid[0:H, 0:W]
    planes = [(x * (c + 2) + y * (5 - c)) % 97 / 97 for c in range(channels)]
    a = (np.stack(planes, -1) * (2 ** bits - 1)).astype(np.uint8 if bits <= 8 else np.uint16)
    return a[..., 0] if channels == 1 else a


# ---- pictures that Pillow writes ---------------------------------------------------------------------
def pillow(name, image, **options):
    f = io.BytesIO()
    image.save(f, "TIFF", **options)
    add(name, f.getvalue(), rgb_of(f.getvalue()))


grey, rgb, rgba = Image.fromarray(smooth(1)), Image.fromarray(smooth(3)), Image.fromarray(smooth(4), "RGBA")
for name, image in (("l", grey), ("la", rgba.convert("LA")), ("rgb", rgb), ("rgba", rgba), ("p", rgb.quantize(50)),
                    ("1", grey.convert("1"))):
    pillow(name, image)
for compression in ("tiff_lzw", "tiff_adobe_deflate", "tiff_deflate", "packbits", "zstd", "tiff_lzma"):
    pillow(f"rgb_{compression}", rgb, compression=compression)
for compression in ("group3", "group4", "tiff_ccitt"):
    pillow(f"1_{compression}", grey.convert("1"), compression=compression)
pillow("l_jpeg", grey, compression="jpeg")
pillow("rgb_jpeg", rgb, compression="jpeg", quality=90)  # YCbCr, by the library that dtrain links with, too
pillow("p_lzw", rgb.quantize(7), compression="tiff_lzw")
pillow("one_row_a_strip", rgb, compression="tiff_lzw", strip_size=W * 3)
pillow("big", rgb, big_tiff=True)


# ---- pictures that it reads only ---------------------------------------------------------------------
def by_hand(bits, rows, photometric=1, order="<", fill=1, palette=None, samples=1):
    """One strip, uncompressed; tags in order, long values behind the directory."""
    tags = [(256, 4, [W]), (257, 4, [H]), (258, 3, [bits] * samples), (259, 3, [1]), (262, 3, [photometric]), (266, 3, [fill]),
            (273, 4, [8]), (277, 3, [samples]), (278, 4, [H]), (279, 4, [len(rows)])]
    if palette is not None:
        tags.append((320, 3, palette))
    rows += b"\0" * (len(rows) % 2)
    at = 8 + len(rows) + 2 + 12 * len(tags) + 4
    head, tail = struct.pack(order + "H", len(tags)), b""
    for tag, kind, values in tags:
        begin = struct.pack(order + "HHI", tag, kind, len(values))
        data = struct.pack(order + {3: "H", 4: "I"}[kind] * len(values), *values)
        if len(data) > 4:
            head += begin + struct.pack(order + "I", at + len(tail))
            tail += data
        else:
            head += begin + data.ljust(4, b"\0")
    return (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", 8 + len(rows)) + rows + head + b"\0" * 4 + tail


def packed(values, bits, flip=False):
    out_rows = b""
    for row in values:
        digits = "".join(format(v, f"0{bits}b") for v in row)
        digits += "0" * (-len(digits) % 8)
        out_rows += bytes(int(digits[i:i + 8][::-1 if flip else 1], 2) for i in range(0, len(digits), 8))
    return out_rows


colours = rng.integers(0, 256, 48)
for bits in (1, 2, 4):
    v = rng.integers(0, 2 ** bits, (H, W))
    for photometric, name in ((1, "black"), (0, "white")):
        data = by_hand(bits, packed(v, bits), photometric)
        add(f"grey{bits}_{name}", data, rgb_of(data))
data = by_hand(4, packed(v, 4), 3, palette=[int(c) * 257 for c in colours])
add("palette4", data, rgb_of(data))
data = by_hand(4, packed(v, 4), 3, palette=[int(c) for c in colours])  # of 8 bits, as old writers have it
add("palette4_old", data, colours.reshape(3, 16).T[v].astype(np.uint8))
data = by_hand(1, packed(v % 2, 1, True), 1, fill=2)
add("bits_reversed", data, rgb_of(data))
data = by_hand(8, smooth(1).tobytes(), 0, ">")
add("white_big_endian", data, rgb_of(data))


# ---- what tifffile writes ----------------------------------------------------------------------------
def tiff(name, a, want=None, pages=None, **options):
    f = io.BytesIO()
    tifffile.imwrite(f, a, **options)
    if want is None:
        with tifffile.TiffFile(io.BytesIO(f.getvalue())) as t:
            want = t.pages[0].asarray()
        if options.get("planarconfig") == "separate":
            want = want.transpose(1, 2, 0)
    add(name, f.getvalue(), want, pages)


def values(code, shape):
    t = np.dtype(code)
    if t.kind == "f":
        a = rng.normal(0, 1000, shape)
        a.flat[3] = np.nan
        return a.astype(t)
    info = np.iinfo(t)
    return rng.integers(info.min, info.max, shape, dtype=t.newbyteorder("="), endpoint=True).astype(t)


for code in ("<u2", ">u2", "<i2", "<u4", "<i4", "<i8", "<f4", ">f4", "<f8"):
    tiff("array_" + code.replace("<", "").replace(">", "be_"), values(code, (H, W)), photometric="minisblack")
tiff("array_i1", values("i1", (H, W)), photometric="minisblack")
for code in ("u2", "f4"):
    a = values(code, (H, W, 5))
    a[~np.isfinite(a)] = 0
    tiff(f"bands_{code}", a, photometric="minisblack", planarconfig="contig", extrasamples=[0] * 4)
    tiff(f"planes_{code}", a.transpose(2, 0, 1), photometric="minisblack", planarconfig="separate", compression="zlib",
         extrasamples=[0] * 4)
    tiff(f"tiles_{code}", a, photometric="minisblack", planarconfig="contig", tile=(16, 32), compression="lzw",
         extrasamples=[0] * 4)
    tiff(f"tiles_planes_{code}", a.transpose(2, 0, 1), photometric="minisblack", planarconfig="separate", tile=(32, 16),
         extrasamples=[0] * 4)
tiff("predictor_u2", values("u2", (H, W)), compression="lzw", predictor=2, photometric="minisblack")
tiff("predictor_f4", values("f4", (H, W)), compression="zlib", predictor=3, photometric="minisblack", tile=(16, 16))
tiff("predictor_f8", values(">f8", (H, W)), compression="zstd", predictor=3, photometric="minisblack", rowsperstrip=4)
tiff("rgb16", smooth(3, 16), photometric="rgb", compression="lzw", predictor=2)
tiff("rgb16_planes", smooth(3, 16).transpose(2, 0, 1), photometric="rgb", planarconfig="separate", tile=(16, 16))
tiff("white16", values("u2", (H, W)), photometric="miniswhite")
out["want/white16"] = 65535 - out["want/white16"]  # tifffile leaves them
for name, options in (("rgb_tiles", dict(tile=(16, 16), compression="lzw", predictor=2)), ("rgb_rows", dict(rowsperstrip=5)),
                      ("rgb_be", dict(byteorder=">", compression="packbits")), ("rgb_big_tiles", dict(bigtiff=True, tile=(64, 64)))):
    f = io.BytesIO()
    tifffile.imwrite(f, smooth(3), photometric="rgb", **options)
    add(name, f.getvalue(), smooth(3))
f = io.BytesIO()
tifffile.imwrite(f, smooth(3).transpose(2, 0, 1), photometric="rgb", planarconfig="separate", compression="zlib")
add("rgb_planes", f.getvalue(), smooth(3))
f = io.BytesIO()
tifffile.imwrite(f, smooth(1) > 100, photometric="minisblack")
add("bool", f.getvalue(), np.repeat(np.where(smooth(1) > 100, 255, 0).astype(np.uint8)[..., None], 3, -1))
stack = values("u2", (4, H, W))
tiff("stack_first", stack, want=stack[0], photometric="minisblack")
tiff("stack_2", stack, want=stack[2], pages=[2], photometric="minisblack", compression="lzw")
tiff("stack_310", stack, want=stack[[3, 1, 0]].transpose(1, 2, 0), pages=[3, 1, 0], photometric="minisblack")
stack = values("u1", (3, H, W, 3))
tiff("stack_rgb_21", stack, want=np.concatenate([stack[2], stack[1]], -1), pages=[2, 1], photometric="rgb")
tiff("imagej", values("u2", (3, H, W)), imagej=True)
f = io.BytesIO()
with tifffile.TiffWriter(f, ome=True) as t:  # a pyramid: smaller images in SubIFDs, and behind them as pages
    t.write(smooth(3), subifds=1, tile=(16, 16), photometric="rgb")
    t.write(smooth(3)[::2, ::2], subfiletype=1, tile=(16, 16), photometric="rgb")
add("pyramid", f.getvalue(), smooth(3))

path = os.path.dirname(os.path.abspath(__file__))
save_file(dict(sorted(out.items())), os.path.join(path, "tiff.safetensors"), metadata={"tifffile": tifffile.__version__})
n = sum(k.startswith("file/") for k in out)
print(n, "files,", os.path.getsize(os.path.join(path, "tiff.safetensors")) // 1024, "KiB")

# ---- the corpus, with files that are refused -----------------------------------------------------------
corpus = os.path.join(path, "../fuzz/corpus_tif")
os.makedirs(corpus, exist_ok=True)
small = {k: out["file/" + k].tobytes() for k in ("1_group4", "la", "rgb_jpeg", "rgb_tiff_lzw", "palette4", "tiles_planes_u2",
                                                "predictor_f4", "stack_310", "big", "rgb_be")}
f = io.BytesIO()
Image.fromarray(smooth(4), "CMYK").save(f, "TIFF")
small["cmyk"] = f.getvalue()
f = io.BytesIO()
tifffile.imwrite(f, np.zeros((4, 4), np.float16))
small["half"] = f.getvalue()
small["bits12"] = by_hand(12, packed(rng.integers(0, 4096, (H, W)), 12))
small["ycbcr"] = by_hand(8, smooth(3).tobytes(), 6, samples=3)
f = io.BytesIO()
tifffile.imwrite(f, np.zeros((4, 4), np.complex64))
small["complex"] = f.getvalue()
for k, v in small.items():
    with open(os.path.join(corpus, k + ".tif"), "wb") as f:
        f.write(v)
print(len(small), "in the corpus,", sum(map(len, small.values())), "bytes")
