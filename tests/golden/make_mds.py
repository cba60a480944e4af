#!/usr/bin/env python3
"""Writes the MDS sets that tests/unit/data/test_mds.c reads, with MosaicML's own writer.

    pip install mosaicml-streaming; python3 tests/golden/make_mds.py

Sample i has: image (jpeg, bytes below), thumb (png), raw (bytes), name (str), note (a long str), n (int), small (int8),
ratio (float32), half (float16), code (str_int), price (str_float), meta (json), vec (ndarray:float32:4),
any (ndarray), grid (ndarray:uint8). What the values are is written again in the test.
"""
import os
import shutil

import numpy as np
from streaming import MDSWriter

COLUMNS = {"image": "jpeg", "thumb": "png", "raw": "bytes", "name": "str", "note": "str", "n": "int", "small": "int8",
           "ratio": "float32", "half": "float16", "code": "str_int", "price": "str_float", "meta": "json",
           "vec": "ndarray:float32:4", "any": "ndarray", "grid": "ndarray:uint8"}


def sample(i):
    return {
        "image": b"\xff\xd8\xff" + bytes([i]) * (10 + i),  # the writer takes bytes as they are
        "thumb": b"\x89PNG\r\n\x1a\n" + bytes([i]) * 5,
        "raw": b"fLaC" + bytes([i]) * i,
        "name": f"n\u00e4me {i}",
        "note": "long " * 300 + str(i),
        "n": i * 1000000007 - 5,
        "small": np.int8(-i),
        "ratio": np.float32(i / 8),
        "half": np.float16(i / 4),
        "code": 10**20 + i,
        "price": i + 0.25,
        "meta": {"angle": i * 1.5, "who": f"p{i % 3}"},
        "vec": np.arange(4, dtype=np.float32) + i,
        "any": np.arange(6, dtype=np.int16).reshape(2, 3) + i,
        "grid": np.full((1 + i % 2, 3), i, np.uint8),
    }


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    sums = ["sha1", "xxh128", "xxh32", "xxh3_128", "xxh3_64", "xxh64"]
    for name, compression, n, hashes in (("mds_plain", None, 20, None), ("mds_zstd", "zstd:7", 20, None), ("mds_br", "br", 1, None),
                                         ("mds_hashed", None, 2, sums), ("mds_hashed_zstd", "zstd:7", 2, sums)):
        out = os.path.join(here, name)
        shutil.rmtree(out, ignore_errors=True)
        with MDSWriter(out=out, columns=COLUMNS, compression=compression, hashes=hashes, size_limit=20000) as w:
            for i in range(n):
                w.write(sample(i))


if __name__ == "__main__":
    main()
