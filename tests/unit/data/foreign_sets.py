"""Writes small data sets with the programs that people make them with, for test_foreign_sets.c.

    python3 tests/unit/data/foreign_sets.py OUT

Every set has a file OUT/<name>.expect: its pattern, then a line for each member (key, extension, bytes) and each column value.
What a missing module would write is left out; the names of the sets that were written go to standard output.
"""
import glob
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile

OUT = sys.argv[1]
JPEG = b"\xff\xd8\xff\xe0jpeg"
PNG = b"\x89PNG\r\n\x1a\npng"


def expect(name, pattern, members, columns=(), error=None):
    """members: (key, ext, bytes); columns: (key, column, text); in the order of records."""
    with open(f"{OUT}/{name}.expect", "w", encoding="utf-8") as f:
        f.write(f"set\t{OUT}/{pattern}\n")
        for key, ext, data in members:
            f.write(f"member\t{key}\t{ext}\t{data.hex()}\n")
        for key, column, value in columns:
            f.write(f"column\t{key}\t{column}\t{value}\n")
        if error:
            f.write(f"error\t{error}\n")
    print(name)


def entries():
    """(name in the tar, bytes), with what tars of data sets have in them."""
    long = "d" * 60
    out = []
    for i in range(5):
        out += [(f"a/b.c/{i:04d}.jpg", JPEG + bytes([i]) * i), (f"a/b.c/{i:04d}.cls", str(i % 2).encode())]
    out += [(f"{long}/{long}/x.seg.PNG", PNG), (f"{long}/{long}/{long}/{long}/{long}/y.jpg", JPEG)]
    out += [("n/w\u00f6rd.txt", "\u00e4".encode()), ("n/empty.txt", b"")]
    return out


def split(name):
    folder, base = name.rsplit("/", 1)
    stem, ext = base.split(".", 1)
    return f"{folder}/{stem}", ext.lower()


def members_of(files):
    return [(*split(name), data) for name, data in files]


def columns_of(files):
    return [(split(name)[0], "cls", data.decode()) for name, data in files if name.endswith(".cls")]


# ---- tar ---------------------------------------------------------------------------------------------
def python_tar(name, format):
    files = entries()
    if format == tarfile.USTAR_FORMAT:  # cannot say the longest
        files = [f for f in files if len(f[0]) < 250]
    with tarfile.open(f"{OUT}/{name}.tar", "w", format=format) as tar:
        folder = tarfile.TarInfo("a/b.c")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for path, data in files:
            info = tarfile.TarInfo(path)
            info.size = len(data)
            info.mtime = 1700000000.25 if format == tarfile.PAX_FORMAT else 1700000000
            tar.addfile(info, io.BytesIO(data))
        for kind in (tarfile.LNKTYPE, tarfile.SYMTYPE):
            link = tarfile.TarInfo("a/link.jpg")
            link.type, link.linkname = kind, "a/b.c/0000.jpg"
            tar.addfile(link)
        for skipped in (".hidden.jpg", "a/.hidden", "README", "__meta__"):
            info = tarfile.TarInfo(skipped)
            info.size = 1
            tar.addfile(info, io.BytesIO(b"x"))
    expect(name, f"{name}.tar", members_of(files), columns_of(files))


def gnu_tar():
    files = entries()
    for format, limit in (("v7", 99), ("oldgnu", 999), ("gnu", 999), ("ustar", 250), ("pax", 999)):
        raw = f"{OUT}/raw-{format}"
        some = [f for f in files if len(f[0]) < limit]
        for path, data in some:
            os.makedirs(os.path.dirname(f"{raw}/{path}"), exist_ok=True)
            with open(f"{raw}/{path}", "wb") as f:
                f.write(data)
        command = ["tar", "-C", raw, f"--format={format}", "--sort=name", "-cf", f"{OUT}/gnu-{format}.tar", "."]
        if subprocess.run(command, stderr=subprocess.DEVNULL).returncode != 0:
            continue
        order = subprocess.run(["tar", "-tf", f"{OUT}/gnu-{format}.tar", "--quoting-style=literal"], capture_output=True, text=True).stdout.split("\n")
        place = {name[2:] if name.startswith("./") else name: i for i, name in enumerate(order)}
        some.sort(key=lambda f: place[f[0]])
        expect(f"gnu-{format}", f"gnu-{format}.tar", members_of(some), columns_of(some))
        for flag, tail in (("-z", "gz"), ("--zstd", "zst")):
            packed = f"{OUT}/gnu-{format}-{tail}"
            if subprocess.run(command[:5] + [flag, "-cf", packed, "."], stderr=subprocess.DEVNULL).returncode == 0:
                expect(f"gnu-{format}-{tail}", f"gnu-{format}-{tail}", members_of(some))
    with open(f"{OUT}/raw-gnu/sparse.jpg", "wb") as f:
        f.truncate(1 << 20)
    for format in ("gnu", "pax"):
        tar = f"{OUT}/sparse-{format}.tar"
        if subprocess.run(["tar", "-C", f"{OUT}/raw-gnu", f"--format={format}", "--sparse", "-cf", tar, "sparse.jpg"]).returncode == 0:
            expect(f"sparse-{format}", f"sparse-{format}.tar", [], error="sparse")


def web_dataset():
    import webdataset

    members, columns = [], []
    with webdataset.ShardWriter(f"{OUT}/wds-%03d.tar", maxcount=4, verbose=0) as w:
        for i in range(10):
            key = f"photos/{i:05d}"
            meta = {"who": f"p{i % 3}", "angle": i + 0.5, "deep": {"x": 1}}
            w.write({"__key__": key, "jpg": JPEG + bytes([i]), "cls": i % 4, "json": meta, "caption.txt": f"c {i}"})
            members += [(key, "jpg", JPEG + bytes([i])), (key, "caption.txt", f"c {i}".encode())]
            columns += [(key, "cls", str(i % 4)), (key, "who", f"p{i % 3}"), (key, "angle", f"{i}.5")]
    expect("wds", "wds-{000..002}.tar", members, columns)
    with webdataset.TarWriter(f"{OUT}/wds-gz.tar.gz", compress=True) as w:
        for key, ext, data in members:
            if ext == "jpg":
                w.write({"__key__": key, "jpg": data})
    expect("wds-gz", "wds-gz.tar.gz", [m for m in members if m[1] == "jpg"])
    shards = [{"url": os.path.basename(p), "nsamples": n} for p, n in zip(sorted(glob.glob(f"{OUT}/wds-0*.tar")), (4, 4, 2))]
    with open(f"{OUT}/wids.json", "w") as f:
        json.dump({"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": shards}, f)
    os.environ["WIDS_CACHE"] = f"{OUT}/wids-cache"
    try:
        import wids  # a package of its own in newer releases
    except ImportError:
        wids = None

    assert wids is None or len(wids.ShardListDataset(f"{OUT}/wids.json")) == 10  # wids itself reads the list
    expect("wids", "wids.json", members, columns)


# ---- LMDB --------------------------------------------------------------------------------------------
def varint(v):
    v &= (1 << 64) - 1
    out = b""
    while v >= 128:
        out += bytes([v & 127 | 128])
        v >>= 7
    return out + bytes([v])


def datum(data, label, shape=(3, 2, 2), encoded=False):
    head = b"".join(varint(i + 1 << 3) + varint(n) for i, n in enumerate(shape))
    tail = varint(5 << 3) + varint(label) + (varint(7 << 3) + varint(1) if encoded else b"")
    return head + varint(4 << 3 | 2) + varint(len(data)) + data + tail


def lmdb_sets():
    import lmdb

    def write(path, items, subdir=True):
        os.makedirs(os.path.dirname(f"{OUT}/{path}"), exist_ok=True)
        with lmdb.open(f"{OUT}/{path}", map_size=1 << 26, subdir=subdir) as env, env.begin(write=True) as txn:
            for key, value in items:
                txn.put(key.encode() if isinstance(key, str) else key, value)

    big = [bytes([i]) * (i * 3000) for i in range(8)]
    keys = [f"{i:08x}" * 5 for i in range(8)]
    write("lsun/cat_lmdb", [(k, JPEG + b) for k, b in zip(keys, big)])
    write("lsun/tower_lmdb", [(k, PNG + b) for k, b in zip(keys, big)])
    expect("lsun", "lsun/tower_lmdb", [(k, "png", PNG + b) for k, b in zip(keys, big)])
    expect("lsun2", "lsun/*_lmdb", [(k, "jpg", JPEG + b) for k, b in zip(keys, big)] + [(k, "png", PNG + b) for k, b in zip(keys, big)])
    write("file.lmdb", [(f"stem_{i}.v2", PNG + b) for i, b in enumerate(big)], subdir=False)
    expect("basicsr", "file.lmdb", [(f"stem_{i}.v2", "png", PNG + b) for i, b in enumerate(big)])
    ocr = [("num-samples", b"8")]
    for i, b in enumerate(big):
        ocr += [(f"image-{i + 1:09d}", PNG + b), (f"label-{i + 1:09d}", f"w\u00f6rd {i}".encode())]
    write("ocr", ocr)
    expect("ocr", "ocr", [(f"image-{i + 1:09d}", "png", PNG + b) for i, b in enumerate(big)],
           [(f"image-{i + 1:09d}", "label", f"w\u00f6rd {i}") for i in range(8)])
    write("caffe", [(f"{i:08d}_x.jpg", datum(JPEG + b, i - 2, encoded=True)) for i, b in enumerate(big)])
    expect("caffe", "caffe", [(f"{i:08d}_x.jpg", "jpg", JPEG + b) for i, b in enumerate(big)],
           [(f"{i:08d}_x.jpg", "label", str(i - 2)) for i in range(8)])
    write("caffe-raw", [(f"{i:08d}", datum(bytes(range(i, i + 12)), i)) for i in range(8)])
    expect("caffe-raw", "caffe-raw", [(f"{i:08d}", "datum", datum(bytes(range(i, i + 12)), i)) for i in range(8)])


def main():
    python_tar("py-ustar", tarfile.USTAR_FORMAT)
    python_tar("py-gnu", tarfile.GNU_FORMAT)
    python_tar("py-pax", tarfile.PAX_FORMAT)
    if shutil.which("tar"):
        gnu_tar()
    for function, module in ((web_dataset, "webdataset"), (lmdb_sets, "lmdb")):
        try:
            __import__(module)
        except ImportError:
            continue
        function()


main()
