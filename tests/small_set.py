"""What the Python files of script tests (call.py) make and read in common."""
import csv, io, json, struct, tarfile
from array import array


def bmp(width, height, pixels):
    """A BMP file; pixels: B, G, R of row after row, the lowest first, each row filled up to 4 bytes."""
    return struct.pack("<2sIHHIIiiHHIIiiII", b"BM", 54 + len(pixels), 0, 0, 54, 40, width, height, 1, 24, 0, len(pixels),
                       0, 0, 0, 0) + bytes(pixels)


def write_tar(path, samples):
    """WebDataset shard of samples 0000, 0001, …, each {extension: bytes or text}."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for i, members in enumerate(samples):
            for ext, data in members.items():
                data = data.encode() if isinstance(data, str) else data
                info = tarfile.TarInfo(f"{i:04d}.{ext}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))


def records(path, kind=None):
    """The lines of metrics.jsonl or result.json, those of a kind."""
    with open(path) as f:
        return [r for r in map(json.loads, f) if kind is None or r["kind"] == kind]


def table(path):
    """The rows of a CSV file."""
    with open(path, newline="") as f:
        return list(csv.DictReader(f))


def value(path, expression):
    """Prints the value of an expression of a JSON file: r is its last line, rows are all."""
    rows = records(path)
    print(eval(expression, {"r": rows[-1], "rows": rows}))


def read_safetensors(path):
    """({name: array of floats}, {name: shape}, the metadata)"""
    with open(path, "rb") as f:
        head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    metadata = head.pop("__metadata__", {})
    return ({k: array("f", data[slice(*t["data_offsets"])]) for k, t in head.items()},
            {k: t["shape"] for k, t in head.items()}, metadata)
