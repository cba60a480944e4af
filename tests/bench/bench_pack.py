#!/usr/bin/env python3
"""dtrain pack of many small WAVs against its limits and its peers, all in one run, taken in turns.

    tests/bench/bench_pack.py [--files 40000] [--bytes 16000] [--rounds 3] [--threads 2] [--dir DIR] [--build build]

Limits: every file opened, read and closed by as many threads (bench_pack_limits); as many bytes written
to one file, through the cache and past it, with and without fsync. Peers: Python's tarfile, and
webdataset's ShardWriter where it is installed; both on one thread, as they come, without fsync. Files
are in the page cache (warm). A rate is that of the best round, as other load only ever adds time.
Prints a table and one JSON line.
"""
import argparse
import json
import os
import shutil
import subprocess
import tempfile
import time

SHIM = "int fsync(int fd) { return 0; }\n"


def run(words, **env):
    begin = time.perf_counter()
    p = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **env})
    seconds = time.perf_counter() - begin
    if p.returncode != 0:
        raise SystemExit(f"{' '.join(words)}: exit {p.returncode}: {p.stderr[-500:]}")
    return seconds, p.stdout


def with_tarfile(source, out):
    import tarfile
    begin = time.perf_counter()
    with tarfile.open(out, "w") as tar:
        for folder, _, files in sorted(os.walk(source)):
            for name in sorted(files):
                tar.add(os.path.join(folder, name), arcname=os.path.relpath(os.path.join(folder, name), source))
    return time.perf_counter() - begin


def with_webdataset(source, out):
    import webdataset
    begin = time.perf_counter()
    with webdataset.ShardWriter(out, maxcount=10**9, maxsize=10**12, verbose=0) as writer:
        for folder, _, files in sorted(os.walk(source)):
            for name in sorted(files):
                with open(os.path.join(folder, name), "rb") as f:
                    key = os.path.relpath(os.path.join(folder, name[:-4]), source)
                    writer.write({"__key__": key, "wav": f.read(), "json": {"label": os.path.basename(folder)}})
    return time.perf_counter() - begin


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--files", type=int, default=40000)
    p.add_argument("--bytes", type=int, default=16000)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--dir")
    p.add_argument("--build", default="build")
    a = p.parse_args()
    work = tempfile.mkdtemp(dir=a.dir)
    limits, dtrain = f"{a.build}/bench_pack_limits", f"{a.build}/dtrain"
    best = {}

    def note(name, seconds):
        best[name] = min(best.get(name, 1e9), seconds)

    def pack(name, out, *options, **env):
        run(["rm", "-rf"] + [f"{work}/{f}" for f in os.listdir(work) if f.startswith("out")])
        note(name, run([dtrain, "pack", f"{work}/raw", f"{work}/{out}", "--threads", str(a.threads), *options], **env)[0])

    try:
        run([limits, "make", f"{work}/raw", str(a.files), str(a.bytes)])
        with open(f"{work}/shim.c", "w") as f:
            f.write(SHIM)
        run(["cc", "-shared", "-fPIC", "-o", f"{work}/shim.so", f"{work}/shim.c"])
        run([limits, "read", f"{work}/raw", "1"])
        n_bytes = a.files * (a.bytes // 512 * 512 + 4 * 512)
        for _ in range(a.rounds):
            note("read", json.loads(run([limits, "read", f"{work}/raw", str(a.threads)])[1])["s"])
            for how in "cache", "cache+sync", "direct+sync":
                words = [limits, "write", f"{work}/plain", str(n_bytes), str(a.threads), how]
                note(f"write {how}", json.loads(run(words)[1])["s"])
                os.unlink(f"{work}/plain")
            pack("pack tar", "out.tar")
            pack("pack tar, no fsync", "out.tar", LD_PRELOAD=f"{work}/shim.so")
            pack("pack 8 shards", "out-{0..7}.tar")
            pack("pack lmdb", "out.lmdb")
            run(["rm", "-rf"] + [f"{work}/{f}" for f in os.listdir(work) if f.startswith("out")])
            note("peer: tarfile", with_tarfile(f"{work}/raw", f"{work}/peer.tar"))
            try:
                note("peer: webdataset", with_webdataset(f"{work}/raw", f"{work}/peer-%06d.tar"))
            except ImportError:
                pass
        rate = {k: a.files / s for k, s in best.items()}
        for k, r in rate.items():
            print(f"{k:24} {best[k]:8.3f} s  {r:9.0f} files/s  {r * (a.bytes + 44) / 1e6:8.1f} MB/s")
        durable = min(rate["read"], max(rate["write cache+sync"], rate["write direct+sync"]))
        cached = min(rate["read"], rate["write cache"])
        slower = min(rate["read"], rate["write cache+sync"])
        print(f"pack tar / min(read, fastest write + fsync) = {rate['pack tar'] / durable:.2f}")
        print(f"pack tar / min(read, cached write + fsync)  = {rate['pack tar'] / slower:.2f}")
        print(f"pack tar without fsync / min(read, cached write without fsync) = {rate['pack tar, no fsync'] / cached:.2f}")
        print(json.dumps({"files": a.files, "bytes": a.bytes, "threads": a.threads,
                          "files_per_s": {k: round(r) for k, r in rate.items()},
                          "ratio": round(rate["pack tar"] / durable, 3),
                          "ratio_cached": round(rate["pack tar"] / slower, 3),
                          "ratio_no_fsync": round(rate["pack tar, no fsync"] / cached, 3)}))
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
