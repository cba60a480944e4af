#!/usr/bin/env python3
"""dtrain pack of many small WAVs against its limits and its peers, all in one run, taken in turns.

    tests/bench/bench_pack.py [--files 40000] [--bytes 16000] [--rounds 3] [--threads 2] [--dir DIR] [--build build]
                              [--no-peers]

Limits, of plain loops on as many threads (bench_pack_limits): *read* walks the folder, opens, reads and closes
every file; *write* writes as many bytes as the tar has, past the page cache and through it, with fsync, as
pack's files are synced; *copy* does both in one program: what is read goes into blocks of 1 MiB, which are
written and synced, by as many threads, two and three times as many (the best counts: who waits for the disk
lets another read). min(read, write) is what a machine could reach that reads and writes at once and does
nothing else; where both need the same cores no program comes near it, and *copy* says how near a program
without order, headers, hashes, index and catalog comes. Peers: Python's tarfile, and webdataset's ShardWriter
where it is installed; both on one thread, as they come, without fsync. Files are in the page cache
(warm). Printed are the median and the best round of each, CPU time (user and system) of the round with least
of it, and ratios: the median of the rounds' own, as what disk and machine give changes from minute to minute.
The goal's ratio, to min(read, write), comes first, that to *copy* behind it. An LMDB has fewer bytes than a tar
and is held against the rate of that many. Prints tables and one JSON line.
"""
import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import tempfile
import time

from bench_short import most

SHIM = "int fsync(int fd) { return 0; }\n"
HOWS = {"cache": "write cache", "cache+sync": "write cache + fsync", "direct+sync": "write direct + fsync"}


def run(words, **env):
    """Seconds, output, and CPU seconds."""
    begin = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    p = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **env})
    seconds = time.perf_counter() - begin
    if p.returncode != 0:
        raise SystemExit(f"{' '.join(words)}: exit {p.returncode}: {p.stderr[-500:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, p.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


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
    p.add_argument("--no-peers", action="store_true")
    a = p.parse_args()
    a.files, a.rounds = most(a.files, 400), most(a.rounds, 1)
    work = tempfile.mkdtemp(dir=a.dir)
    limits, dtrain = f"{a.build}/bench_pack_limits", f"{a.build}/dtrain"
    rounds, least_cpu = [], {}

    def note(name, seconds, cpu=None):
        rounds[-1][name] = min(rounds[-1].get(name, 1e9), seconds)
        if cpu is not None:
            least_cpu[name] = min(least_cpu.get(name, 1e9), cpu)

    def limit(name, *words):
        _, out, cpu = run([limits, *words])
        note(name, json.loads(out)["s"], cpu)

    def clear():
        run(["rm", "-rf"] + [f"{work}/{f}" for f in os.listdir(work) if f.startswith(("out", "peer"))])

    def pack(name, out, *options, **env):
        clear()
        words = [dtrain, "pack", f"{work}/raw", f"{work}/{out}", "--threads", str(a.threads), *options]
        seconds, _, cpu = run(words, **env)
        note(name, seconds, cpu)

    def peers():
        clear()
        note("peer: tarfile", with_tarfile(f"{work}/raw", f"{work}/peer.tar"))
        try:
            note("peer: webdataset", with_webdataset(f"{work}/raw", f"{work}/peer-%06d.tar"))
        except ImportError:
            pass

    try:
        run([limits, "make", f"{work}/raw", str(a.files), str(a.bytes)])
        with open(f"{work}/shim.c", "w") as f:
            f.write(SHIM)
        run(["cc", "-shared", "-fPIC", "-o", f"{work}/shim.so", f"{work}/shim.c"])
        run([limits, "read", f"{work}/raw", "1"])
        n_bytes = a.files * ((a.bytes + 44 + 511) // 512 * 512 + 5 * 512)  # header; json and cls, each with its own
        for _ in range(a.rounds):
            rounds.append({})
            limit("read", "read", f"{work}/raw", str(a.threads))
            pack("pack tar", "out.tar")
            for how, name in HOWS.items():
                limit(name, "write", f"{work}/plain", str(n_bytes), str(a.threads), how)
                os.unlink(f"{work}/plain")
            pack("pack lmdb", "out.lmdb")
            fewer = n_bytes / os.path.getsize(f"{work}/out.lmdb/data.mdb")  # bytes than a tar has
            for k in 1, 2, 3:
                limit("copy direct + fsync", "copy", f"{work}/raw", f"{work}/plain", str(k * a.threads), "direct+sync")
                os.unlink(f"{work}/plain")
            pack("pack tar, no fsync", "out.tar", LD_PRELOAD=f"{work}/shim.so")
            pack("pack 8 shards", "out-{0..7}.tar")
            if not a.no_peers:
                peers()
        files_per_s = {k: [a.files / r[k] for r in rounds] for k in rounds[0]}
        rate = {k: statistics.median(r) for k, r in files_per_s.items()}
        for k, r in rate.items():
            cpu = f"{1e6 * least_cpu[k] / a.files:5.1f} us CPU a file" if k in least_cpu else ""
            print(f"{k:24} {a.files / r:8.3f} s  {r:9.0f} files/s (best {max(files_per_s[k]):9.0f})"
                  f"  {r * (a.bytes + 44) / 1e6:8.1f} MB/s  {cpu}")
        ratio = {}
        for r in rounds:
            write = min(r["write cache + fsync"], r["write direct + fsync"])
            durable, cached = max(r["read"], write), max(r["read"], r["write cache"])
            for k, of, seconds in (("pack tar", "min(read, write + fsync)", durable),
                                   ("pack 8 shards", "min(read, write + fsync)", durable),
                                   ("pack lmdb", "min(read, write + fsync)", max(r["read"], write / fewer)),
                                   ("pack tar", "copy", r["copy direct + fsync"]),
                                   ("pack 8 shards", "copy", r["copy direct + fsync"]),
                                   ("pack lmdb", "copy (of a tar's bytes)", r["copy direct + fsync"]),
                                   ("copy direct + fsync", "min(read, write + fsync)", durable),
                                   ("pack tar, no fsync", "min(read, cached write)", cached)):
                ratio.setdefault(f"{k} / {of}", []).append(seconds / r[k])
        for k, r in ratio.items():
            print(f"{k:48} {statistics.median(r):.2f}  ({min(r):.2f} to {max(r):.2f})")
        print(json.dumps({"files": a.files, "bytes": a.bytes, "threads": a.threads,
                          "files_per_s": {k: round(r) for k, r in rate.items()},
                          "cpu_us_per_file": {k: round(1e6 * s / a.files, 2) for k, s in least_cpu.items()},
                          "ratio": {k: round(statistics.median(r), 3) for k, r in ratio.items()}}))
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
