#!/usr/bin/env python3
"""What numpy, astropy and Pillow make of small arrays: writes arrays.safetensors beside this script.

Run by hand when a case is added (needs numpy, astropy, Pillow, safetensors); test_golden_arrays.c reads the
file and holds the same options. "file/NAME" are the bytes of an NPY or FITS file, "want/NAME" the image (H,W,C)
that must come out: values that are not finite are 0.
"""
import io
import os
import zlib

import numpy as np
from astropy.io import fits
from astropy.visualization import AsinhStretch, ManualInterval, MinMaxInterval, ZScaleInterval
from PIL import Image
from safetensors.numpy import save_file

rng = np.random.default_rng(3)
out = {}


def add(name, data, want, file=None):
    want = np.asarray(want, np.float64)
    want = want[..., None] if want.ndim == 2 else want
    out["file/" + (file or name)] = np.frombuffer(data, np.uint8)
    out["want/" + name] = np.ascontiguousarray(np.where(np.isfinite(want), want, 0).astype(np.float32))


# ---- NPY ---------------------------------------------------------------------------------------------
def npy(a, version=None):
    f = io.BytesIO()
    np.lib.format.write_array(f, a, version=version, allow_pickle=False)
    return f.getvalue()


def values(code, shape):
    t = np.dtype(code)
    if t.kind == "f":
        a = rng.normal(0, 1000, shape)
        a.flat[3] = np.nan
        a.flat[5] = np.inf
        return a.astype(t)
    if t.kind == "b":
        return rng.integers(0, 2, shape).astype(t)
    info = np.iinfo(t)
    return rng.integers(info.min, info.max, shape, dtype=t.newbyteorder("="), endpoint=True).astype(t)


for code in ("b1", "u1", "i1", "<u2", ">u2", "<i2", ">i2", "<u4", ">u4", "<i4", ">i4", "<u8", ">i8", "<f4", ">f4",
             "<f8", ">f8"):
    a = values(code, (4, 5))
    add("npy_" + code.replace("<", "").replace(">", "be_"), npy(a), a)
a = values("<f4", (4, 5, 3))
add("npy_hwc", npy(a), a)
add("npy_hwc_fortran", npy(np.asfortranarray(a)), a)
add("npy_hwc_bands_20", npy(a), a[..., [2, 0]])
add("npy_one_more_axis", npy(a[None]), a)
a = values("<f4", (3, 4, 5))
add("npy_chw", npy(a), a.transpose(1, 2, 0))
add("npy_chw_fortran", npy(np.asfortranarray(a)), a.transpose(1, 2, 0))
add("npy_version2", npy(a, (2, 0)), a.transpose(1, 2, 0))
add("npy_version3", npy(a, (3, 0)), a.transpose(1, 2, 0))
a = values("u1", (4, 5, 3))
add("npy_bytes", npy(a), a)
a = values("u1", (3, 4, 5))
add("npy_bytes_chw", npy(a), a.transpose(1, 2, 0))
a = values("<i2", (4, 5)) // 100
add("npy_cut_to_bytes", npy(a), np.clip(a, 0, 255))


# ---- FITS --------------------------------------------------------------------------------------------
def fits_file(*units):
    f = io.BytesIO()
    fits.HDUList(list(units)).writeto(f)
    return f.getvalue()


def to_hwc(a):
    return a.transpose(1, 2, 0) if a.ndim == 3 else a


for code, name in (("u1", "8"), (">i2", "16"), (">i4", "32"), (">i8", "64"), (">f4", "m32"), (">f8", "m64")):
    a = values(code, (4, 5))
    add("fits_" + name, fits_file(fits.PrimaryHDU(a)), a)
a = values(">u2", (3, 4, 5))
add("fits_unsigned_planes", fits_file(fits.PrimaryHDU(a)), to_hwc(a))
add("fits_bands_20", fits_file(fits.PrimaryHDU(a)), to_hwc(a)[..., [2, 0]])
add("fits_fourth_axis", fits_file(fits.PrimaryHDU(a[None])), to_hwc(a))
a = values(">i2", (4, 5)) // 4
unit = fits.PrimaryHDU(a)
unit.header["BLANK"] = int(a[1, 1])
want = a.astype(np.float64)
want[a == a[1, 1]] = 0
add("fits_blank", fits_file(unit), want)
unit = fits.PrimaryHDU(values(">f4", (4, 5)))
raw = fits_file(unit)
scaled = bytearray(raw)  # astropy scales when it writes: two cards by hand instead
cards = b"BSCALE  =                  2.5".ljust(80) + b"BZERO   =                -10.0".ljust(80)
end = bytes(scaled).index(b"END" + b" " * 77)
scaled[end:end + 240] = cards + b"END".ljust(80)
add("fits_scaled", bytes(scaled), fits.open(io.BytesIO(bytes(scaled)))[0].data)
a = values(">f4", (3, 4, 5))
add("fits_extension", fits_file(fits.PrimaryHDU(), fits.ImageHDU(a)), to_hwc(a))
a = values(">i2", (16, 20))
add("compressed", fits_file(fits.PrimaryHDU(), fits.CompImageHDU(a)), a)
add("fits_second_extension", fits_file(fits.PrimaryHDU(), fits.BinTableHDU.from_columns(
    [fits.Column("a", "E", array=np.arange(3))]), fits.ImageHDU(a)), a)

# ---- stretch -----------------------------------------------------------------------------------------
y, x = np.mgrid[0:48, 0:46]
sky = rng.normal(12, 3, y.shape) + 900 * np.exp(-((x - 20) ** 2 + (y - 33) ** 2) / 18)
sky[7, 9] = np.nan
sky[8, 9] = np.inf
sky = sky.astype("<f4")
small = sky[28:36, 15:24].copy()


def stretched(a, interval, curve=None):
    low, high = interval.get_limits(a)
    v = np.clip((a.astype(np.float64) - low) / (high - low), 0, 1)
    v[~np.isfinite(a)] = 0
    return v if curve is None else curve(v)


for name, a in (("sky", sky), ("small", small)):
    add(f"zscale_{name}", npy(a), stretched(a, ZScaleInterval()), name)
    add(f"zscale_asinh_{name}", npy(a), stretched(a, ZScaleInterval(), AsinhStretch(0.1)), name)
    add(f"minmax_asinh_{name}", npy(a), stretched(a, MinMaxInterval(), AsinhStretch(0.02)), name)
    add(f"given_asinh_{name}", npy(a), stretched(a, ManualInterval(5, 400), AsinhStretch(0.5)), name)
add("minmax_bytes", npy(sky), np.floor(stretched(sky, MinMaxInterval()) * 255 + 0.5), "sky")
flat = np.full((6, 6), 3, "<f4")
add("zscale_flat", npy(flat), np.zeros((6, 6)))
ramp = np.arange(900, dtype="<f4").reshape(30, 30) ** 2
add("zscale_ramp", npy(ramp), stretched(ramp, ZScaleInterval()))
steps = np.repeat(np.arange(9, dtype="<f4"), 121).reshape(33, 33)
steps[::7, ::5] += 500
add("zscale_steps", npy(steps), stretched(steps, ZScaleInterval()))

# ---- resize of floats --------------------------------------------------------------------------------
a = rng.normal(0, 1000, (13, 9)).astype("<f4")
for name, size, box in (("smaller", (4, 5), None), ("larger", (20, 30), None), ("box", (6, 7), (1.5, 2, 8.25, 12))):
    made = Image.fromarray(a, "F").resize((size[0], 13), Image.BILINEAR, (box[0], 0, box[2], 13) if box else None)
    made = made.resize(size, Image.BILINEAR, (0, box[1], size[0], box[3]) if box else None)
    add("resize_" + name, npy(a), np.asarray(made))

path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "arrays.safetensors")
save_file(dict(sorted(out.items())), path, metadata={"numpy": np.__version__})
print(f"{path}: {len(out)} tensors, {os.path.getsize(path) / 1024:.0f} KiB")

lens = os.environ.get("LENS_DES")  # a folder with g.fits …: the values that the test knows by heart
for band in "griz" if lens else "":
    cube = fits.open(os.path.join(lens, band + ".fits"))[0].data
    print(band, hex(zlib.crc32(np.ascontiguousarray(cube[[45, 0]].transpose(1, 2, 0)).astype("<f4").tobytes())))
