"""Functions of test_parquet.sh: files of every kind that pyarrow writes, and what pyarrow reads of them."""
import datetime
import decimal
import glob
import importlib
import json
import random
import tarfile


def column(rng, kind, n):
    import pyarrow as pa
    whole = {"i8": pa.int8(), "i16": pa.int16(), "i32": pa.int32(), "i64": pa.int64(), "u8": pa.uint8(), "u16": pa.uint16(),
             "u32": pa.uint32(), "u64": pa.uint64()}
    few = rng.random() < 0.5 # so that dictionaries are used
    day = datetime.datetime(2020, 1, 1)
    if kind in whole:
        bits, signed = int(kind[1:]), kind[0] == "i"
        low, high = (-2 ** (bits - 1), 2 ** (bits - 1) - 1) if signed else (0, 2 ** bits - 1)
        v, t = [rng.choice([low, high, 7]) if few else rng.randint(low, high) for _ in range(n)], whole[kind]
    elif kind in ("f32", "f64"):
        v, t = [rng.choice([0.5, -2.0]) if few else rng.gauss(0, 10.0 ** rng.randint(-3, 3)) for _ in range(n)], pa.float32() if kind == "f32" else pa.float64()
    elif kind == "flag":
        v, t = [rng.random() < 0.3 for _ in range(n)], pa.bool_()
    elif kind in ("text", "long_text", "category"):
        v = [f"w{rng.randint(0, 3)}" if few or kind == "category" else "é" * rng.randint(1, 40) + str(k) for k in range(n)]
        t = {"text": pa.string(), "long_text": pa.large_string(), "category": pa.dictionary(pa.int8(), pa.string())}[kind]
    elif kind == "bytes":
        v, t = [bytes([rng.randint(0, 255)]) * rng.choice([1, 40, 3000 if n < 200 else 5]) for _ in range(n)], pa.binary()
    elif kind == "day":
        v, t = [day.date() + datetime.timedelta(days=rng.randint(-30000, 30000)) for _ in range(n)], pa.date32()
    elif kind == "price":
        v, t = [decimal.Decimal(rng.randint(-10 ** 12, 10 ** 12)).scaleb(-3) for _ in range(n)], pa.decimal128(20, 3)
    else:
        v, t = [day + datetime.timedelta(milliseconds=rng.randint(0, 10 ** 12)) for _ in range(n)], pa.timestamp(rng.choice(["ms", "us", "ns"]))
    nulls = rng.choice([0, 0, 0.1, 0.9, 1]) if kind != "bytes" else rng.choice([0, 0.1])
    return pa.array([None if rng.random() < nulls else x for x in v], t)


KINDS = "i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 flag text long_text category day price time".split()


def generate():
    import pyarrow as pa
    import pyarrow.parquet as pq
    rng = random.Random(1)
    for k in range(200):
        n = rng.choice([1, 7, 8, 9, 64, 300]) if k else 6000
        kinds = ["bytes"] + rng.sample(KINDS, rng.randint(1, 6))
        table = pa.table({kind: column(rng, kind, n if k != 1 else 0) for kind in kinds})
        if k % 10 == 3: # a struct
            table = pa.table({"bytes": table["bytes"], "pair": pa.array([None if rng.random() < 0.2 else {"a": rng.randint(0, 9), "b": "x"} for _ in range(n)],
                                                                        pa.struct([("a", pa.int32()), ("b", pa.string())]))})
        if k % 7 == 4: # columns that are required
            table = pa.table([c.fill_null(b"x") if c.type == pa.binary() else c for c in table.columns],
                             pa.schema([pa.field(f.name, f.type, f.type != pa.binary()) for f in table.schema]))
        pq.write_table(table, f"case-{k:03}.parquet", compression=["snappy", "zstd", "gzip", "none"][k % 4],
                       use_dictionary=rng.random() < 0.6, data_page_version=rng.choice(["1.0", "2.0"]),
                       row_group_size=rng.choice([1 << 20, 5, 64]) if k else 2500, data_page_size=rng.choice([1 << 20, 100]),
                       write_batch_size=rng.choice([1024, 16]), store_schema=rng.random() < 0.5, version=rng.choice(["1.0", "2.6"]),
                       write_statistics=rng.random() < 0.8)


def text(v):
    if isinstance(v, bool):
        return str(v).lower()
    if isinstance(v, datetime.datetime): # pyarrow's version 1.0 of the format has microseconds at most
        return v.isoformat(timespec="microseconds").rstrip("0").rstrip(".") if v.microsecond else v.isoformat()
    return v.isoformat() if isinstance(v, datetime.date) else str(v)


def compare():
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    have, member = {}, {}
    with tarfile.open("cases.tar") as tar:
        for m in tar:
            key, kind = m.name.split(".", 1)
            if kind.startswith("bytes."):
                member[key] = tar.extractfile(m).read()
    for line in open("cases.jsonl"):
        row = json.loads(line)
        have[row["key"]] = row
    n = n_cells = 0
    for path in sorted(glob.glob("case-*.parquet")):
        table = pq.read_table(path).flatten()
        columns = {name: table[name].to_pylist() for name in table.column_names}
        for r in range(table.num_rows):
            key = f"{path[:8]}/{r:07}"
            if columns["bytes"][r] is None:
                assert key not in have, key
                continue
            row = have.pop(key)
            n += 1
            assert member[key] == columns["bytes"][r], key
            for name, values in columns.items():
                if name == "bytes":
                    continue
                v, got = values[r], row[name]
                n_cells += 1
                if v is None or v != v:
                    assert got is None, (key, name, v, got)
                elif isinstance(v, int) and not isinstance(v, bool):
                    assert int(got) == v, (key, name, v, got) # as text where one of the column has more than 63 bits
                elif isinstance(v, (float, decimal.Decimal)):
                    want = float(str(np.float32(v))) if table.schema.field(name).type == pa.float32() else v
                    assert float(got) == float(want), (key, name, v, got)
                else:
                    fraction = "." in str(got) and isinstance(v, datetime.datetime)
                    assert (str(got).rstrip("0") if fraction else got) == text(v), (key, name, v, got)
    assert not have, list(have)[:3]
    print(n, "records,", n_cells, "cells are those of pyarrow")


def read_export():
    """Every reader that is installed gives what the JSON has."""
    import pyarrow.parquet as pq
    table = pq.read_table("out.parquet")
    table.validate(full=True)
    readers = {"pyarrow": lambda m: table.to_pylist(), "polars": lambda m: m.read_parquet("out.parquet").to_dicts(),
               "duckdb": lambda m: m.sql("select * from 'out.parquet'").fetchall(),
               "pandas": lambda m: m.read_parquet("out.parquet", dtype_backend="pyarrow").itertuples(index=False)}
    want = [json.loads(line) for line in open("cases.jsonl")]
    for name, read in readers.items():
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        rows = list(read(module))
        assert len(rows) == len(want), (name, len(rows), len(want))
        for got, row in zip(rows, want):
            got = list(got.values()) if isinstance(got, dict) else list(got)
            for value, (key, v) in zip(got, row.items(), strict=True):
                missing = str(value) in ("None", "nan", "<NA>")
                assert v is None if missing else value == v or float(value) == v, (name, key, value, v)
        print(name, "reads", len(rows), "rows")


def nulls():
    """Rows without bytes, and rows that all have the same: a few kilobytes each."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    n = 1 << 24
    none = pa.nulls(n, pa.binary())
    pq.write_table(pa.table({"a": none, "b": none, "c": none}), "nulls.parquet")
    same = pa.DictionaryArray.from_arrays(pa.Array.from_buffers(
        pa.int32(), n, [None, pa.py_buffer(bytes(4 * n))]), pa.array([b"x"]))
    pq.write_table(pa.table({"a": same}), "same.parquet")


def refused():
    import pyarrow as pa
    import pyarrow.parquet as pq
    numbers, texts = pa.table({"x": [1, 2]}), pa.table({"x": ["a", "b"]})
    for words, table, options in [("packed with LZ4", numbers, dict(compression="lz4")),
                                  ("encoding DELTA_LENGTH_BYTE_ARRAY", texts, dict(column_encoding="DELTA_LENGTH_BYTE_ARRAY")),
                                  ("encoding DELTA_BYTE_ARRAY", texts, dict(column_encoding="DELTA_BYTE_ARRAY")),
                                  ("encoding BYTE_STREAM_SPLIT", pa.table({"x": [1.5]}), dict(column_encoding="BYTE_STREAM_SPLIT"))]:
        name = words.split()[-1] + ".parquet"
        pq.write_table(table, name, **({"use_dictionary": False} | options))
        print(name, words, sep="\t")
