#!/usr/bin/env python3
"""What pyedflib reads of small EDF and BDF files: writes series.safetensors beside this script, and the corpus of the fuzz
target.

Run by hand when a case is added (needs numpy, pyedflib, safetensors); test_golden_series.c reads every case. "file/NAME"
are the bytes, "want/NAME" the values (T,C) in double, "rate/NAME" Hz or 0.
"""
import os
import tempfile

import numpy as np
import pyedflib
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

here = os.path.dirname(os.path.abspath(__file__))
save_file(dict(sorted(out.items())), os.path.join(here, "series.safetensors"), metadata={"pyedflib": pyedflib.__version__})
print(sum(k.startswith("file/") for k in out), "files")
corpus = os.path.join(here, "../fuzz/corpus_series")
os.makedirs(corpus, exist_ok=True)
for k in ("edf_plus", "bdf_plus", "edf_mixed_2", "edf_streamed"):
    with open(os.path.join(corpus, k), "wb") as f:
        f.write(out["file/" + k].tobytes())
gaps = bytearray(out["file/edf_plus"].tobytes())
gaps[192:197] = b"EDF+D"
with open(os.path.join(corpus, "gaps"), "wb") as f:
    f.write(gaps)
