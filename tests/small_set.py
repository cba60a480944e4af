"""What script tests make and read in Python (small_run.sh puts it in the path)."""
import io, json, struct, tarfile
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


def read_safetensors(path):
    """({name: array of floats}, {name: shape}, the metadata)"""
    with open(path, "rb") as f:
        head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    metadata = head.pop("__metadata__", {})
    return ({k: array("f", data[slice(*t["data_offsets"])]) for k, t in head.items()},
            {k: t["shape"] for k, t in head.items()}, metadata)
