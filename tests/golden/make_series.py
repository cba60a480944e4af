#!/usr/bin/env python3
"""What pyedflib reads of small EDF and BDF files and scipy of MATLAB files: writes series.safetensors beside this script, and
the corpus of the fuzz target.

Run by hand when a case is added (needs numpy, pyedflib, scipy, safetensors); test_golden_series.c reads every case. "file/NAME"
are the bytes, "want/NAME" the values (T,C) in double, "rate/NAME" Hz or 0.
"""
import datetime
import io
import os
import tempfile

import numpy as np
import pyedflib
import scipy.io
from safetensors.numpy import save_file

rng = np.random.default_rng(5)
folder = tempfile.mkdtemp()
out = {}


def add(name, data, want, rate):
    out["file/" + name] = np.frombuffer(data, np.uint8)
    out["want/" + name] = np.ascontiguousarray(want, np.float64)
    out["rate/" + name] = np.array([rate], np.float64)


# ---- EDF and BDF -------------------------------------------------------------------------------------
def edf(kind, rates, seconds=4, duration=1, annotate=False, ranges=None):
    path = os.path.join(folder, "a.edf")
    w = pyedflib.EdfWriter(path, len(rates), file_type=kind)
    bits = 24 if kind in (pyedflib.FILETYPE_BDF, pyedflib.FILETYPE_BDFPLUS) else 16
    top = 2 ** (bits - 1) - 1
    w.setDatarecordDuration(duration)
    w.setStartdatetime(datetime.datetime(2026, 1, 2))
    for i, rate in enumerate(rates):
        low, high = ranges[i] if ranges else (-200 - i, 300)
        w.setSignalHeader(i, dict(label=f"EEG {i}", dimension="uV", sample_frequency=rate, physical_min=low, physical_max=high,
                                  digital_min=-top - 1, digital_max=top, transducer="", prefilter=""))
    w.writeSamples([rng.uniform(*(ranges[i] if ranges else (-199, 299)), int(seconds * rate)) for i, rate in enumerate(rates)])
    if annotate:
        w.writeAnnotation(1.5, -1, "spike")
    w.close()
    r = pyedflib.EdfReader(path)
    values = [r.readSignal(i) for i in range(r.signals_in_file)]
    r.close()
    with open(path, "rb") as f:
        return f.read(), values


def stacked(values, which):
    return np.stack([values[i] for i in which], -1)


data, v = edf(pyedflib.FILETYPE_EDF, [32, 32, 32])
add("edf", data, stacked(v, [0, 1, 2]), 32)
data, v = edf(pyedflib.FILETYPE_EDFPLUS, [50, 50], annotate=True)
add("edf_plus", data, stacked(v, [0, 1]), 50)
add("edf_plus_2", data, stacked(v, [1, 0]), 50)  # by label, in another order
data, v = edf(pyedflib.FILETYPE_BDFPLUS, [64, 64], annotate=True, ranges=[(-5000, 5000), (10, 20)])
add("bdf_plus", data, stacked(v, [0, 1]), 64)
data, v = edf(pyedflib.FILETYPE_EDF, [100, 1, 100])
add("edf_mixed_2", data, stacked(v, [2, 0]), 100)
data, v = edf(pyedflib.FILETYPE_EDF, [20], seconds=2, duration=.5)
add("edf_short_records", data, stacked(v, [0]), 20)
streamed = bytearray(data)
streamed[236:244] = b"-1      "  # still being recorded
add("edf_streamed", bytes(streamed), stacked(v, [0]), 20)


# ---- MATLAB ------------------------------------------------------------------------------------------
def mat(name, variables, want, **options):
    f = io.BytesIO()
    scipy.io.savemat(f, variables, **options)
    loaded = scipy.io.loadmat(io.BytesIO(f.getvalue()))[want].astype(np.float64)
    add(name, f.getvalue(), loaded.T if loaded.shape[0] == 1 else loaded, 0)


a = rng.normal(0, 5, (40, 3))
mat("mat", {"x": a}, "x")
mat("mat_packed", {"x": a, "fs": 250.0, "about": "a text", "more": {"y": a}}, "x", do_compression=True)
mat("mat_row", {"val": rng.integers(-2000, 2000, (1, 90)).astype(np.int16)}, "val")
for code in ("f4", "u1", "i1", "u2", "i4", "u4", "i8", "u8"):
    mat("mat_" + code, {"x": rng.integers(0, 100, (5, 2)).astype(code)}, "x")
narrow = bytearray(out["file/mat_u1"].tobytes())
narrow[144] = 6  # doubles that MATLAB stores as bytes
add("mat_narrow", bytes(narrow), out["want/mat_u1"], 0)
assert np.array_equal(scipy.io.loadmat(io.BytesIO(bytes(narrow)))["x"], out["want/mat_u1"])
mat("mat_two_y", {"x": a, "y": a[::2]}, "y", do_compression=True)
whole = out["file/mat"].tobytes()
swap = bytearray(whole)  # scipy writes the machine's order: its elements by hand
words = np.frombuffer(whole, "<u4", (len(whole) - 128) // 4, 128).astype(">u4").tobytes()
swap[124:128] = b"\x01\x00MI"
swap[128:] = words
name_at = whole.index(b"x\0\0\0", 160)
swap[name_at:name_at + 4] = b"x\0\0\0"
numbers = a.T.astype(">f8").tobytes()
swap[-len(numbers):] = numbers
assert np.array_equal(scipy.io.loadmat(io.BytesIO(bytes(swap)))["x"], a)
add("mat_big_endian", bytes(swap), a, 0)
corpus_of = {}
for name, variables in (("complex", {"x": a * 1j}), ("none", {"t": "text", "one": 1.0}), ("cube", {"x": np.zeros((2, 3, 4))})):
    f = io.BytesIO()
    scipy.io.savemat(f, variables)
    corpus_of["mat_" + name] = f.getvalue()

here = os.path.dirname(os.path.abspath(__file__))
save_file(dict(sorted(out.items())), os.path.join(here, "series.safetensors"), metadata={"pyedflib": pyedflib.__version__})
print(sum(k.startswith("file/") for k in out), "files")
corpus = os.path.join(here, "../fuzz/corpus_series")
os.makedirs(corpus, exist_ok=True)
for k, v in corpus_of.items():
    with open(os.path.join(corpus, k), "wb") as f:
        f.write(v)
for k in ("edf_plus", "bdf_plus", "edf_mixed_2", "edf_streamed", "mat", "mat_packed", "mat_row", "mat_u2", "mat_two_y",
          "mat_big_endian"):
    with open(os.path.join(corpus, k), "wb") as f:
        f.write(out["file/" + k].tobytes())
gaps = bytearray(out["file/edf_plus"].tobytes())
gaps[192:197] = b"EDF+D"
with open(os.path.join(corpus, "gaps"), "wb") as f:
    f.write(gaps)
