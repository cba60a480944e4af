"""Writes tests/golden/parquet/: one table as several programs write it by default, with its cells in table.csv; images as
Hugging Face keeps them; files that are refused. Needs pyarrow, pandas, polars, duckdb, datasets, Pillow, numpy."""
import datetime
import decimal
import io
import os

import datasets
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "parquet"))
N = 40
rows = range(N)
table = {
    "i": [k * 1000003 - 7 for k in rows],
    "n": [None if k % 5 == 2 else k for k in rows],
    "f": [None if k % 7 == 3 else k / 8 - 1 for k in rows],
    "f32": [k * 0.1 for k in rows],
    "s": [None if k % 3 == 1 else f"name {k // 4}, ü" for k in rows],
    "c": [["iris", "lens", "pipe"][k % 3] for k in rows],
    "flag": [k % 3 == 0 for k in rows],
    "day": [datetime.date(1969, 12, 20) + datetime.timedelta(days=k) for k in rows],
    "t": [datetime.datetime(1969, 12, 31, 23, 59, 50) + datetime.timedelta(seconds=k, microseconds=k % 2) for k in rows],
    "price": [decimal.Decimal(k * 125 - 300).scaleb(-2) for k in rows],
}
types = {"i": pa.int64(), "n": pa.int64(), "f": pa.float64(), "f32": pa.float32(), "s": pa.string(),
         "c": pa.dictionary(pa.int32(), pa.string()), "flag": pa.bool_(), "day": pa.date32(), "t": pa.timestamp("us"),
         "price": pa.decimal128(9, 2)}
arrow = pa.table({k: pa.array(v, types[k]) for k, v in table.items()})
pq.write_table(arrow, "pyarrow.parquet")
pq.write_table(arrow, "pyarrow_v2.parquet", data_page_version="2.0", compression="zstd", row_group_size=16)
pq.write_table(arrow, "pyarrow_gzip.parquet", compression="gzip", use_dictionary=False, store_schema=False)
frame = arrow.to_pandas()
frame["n"] = pd.array(table["n"], "Int64")
frame.to_parquet("pandas.parquet")
pl.from_arrow(arrow).write_parquet("polars.parquet")
duckdb.sql("copy (select * from arrow) to 'duckdb.parquet' (format parquet)")


def cell(v, kind):
    if v is None:
        return ""
    if kind == pa.bool_():
        return str(v).lower()
    if kind == pa.float32():
        return str(np.float32(v))
    return v.isoformat() if hasattr(v, "isoformat") else f'"{v}"' if isinstance(v, str) else str(v)


with open("table.csv", "w") as f:
    print(",".join(table), file=f)
    for k in rows:
        print(",".join(cell(v[k], types[name]) for name, v in table.items()), file=f)


def image(k):
    out = io.BytesIO()
    Image.new("RGB", (4, 3), (60 * k, 0, 0)).save(out, "PNG")
    return {"bytes": out.getvalue(), "path": f"photos/{k}.png"}


features = datasets.Features(image=datasets.Image(), label=datasets.ClassLabel(names=["cat", "dog"]),
                             boxes=datasets.Sequence(datasets.Value("int32")))
photos = datasets.Dataset.from_dict({"image": [image(k) for k in range(4)], "label": [0, 1, -1, 1], "boxes": [[k] for k in range(4)]},
                                    features=features)
photos.to_parquet("images.parquet")

one = pa.table({"x": [1, 2, 3]})
pq.write_table(one, "refused_brotli.parquet", compression="brotli")
pq.write_table(one, "refused_delta.parquet", use_dictionary=False, column_encoding={"x": "DELTA_BINARY_PACKED"})
odd = {"list": pa.array([[1, 2], None]), "map": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int32())),
       "deep": pa.array([{"a": {"b": 1}}, None]), "pair": pa.array([{"a": 1, "b": None}, {"a": None, "b": "x"}]),
       "big": pa.array([decimal.Decimal(1), None], pa.decimal256(60, 2)), "id": pa.array([b"0123456789abcdef", None], pa.binary(16)),
       "none": pa.nulls(2), "half": pa.array(np.array([1.5, -0.25], "f2")), "u64": pa.array([2**64 - 1, None], pa.uint64()),
       "time": pa.array([datetime.time(1, 2, 3, 4), None]), "zone": pa.array([0, None], pa.timestamp("ns", "UTC"))}
pq.write_table(pa.table(odd), "odd.parquet")
duckdb.sql("copy (select interval 1 day as t) to 'interval.parquet' (format parquet)")
pq.write_table(pa.table({"t": pa.array([0], pa.timestamp("ns"))}), "int96.parquet", use_deprecated_int96_timestamps=True)
