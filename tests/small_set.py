"""What the Python files of script tests (call.py) make and read in common. Called often: slow modules where they are used."""
import json, struct
from array import array


def bmp(width, height, pixels):
    """A BMP file; pixels: B, G, R of row after row, the lowest first, each row filled up to 4 bytes."""
    return struct.pack("<2sIHHIIiiHHIIiiII", b"BM", 54 + len(pixels), 0, 0, 54, 40, width, height, 1, 24, 0, len(pixels),
                       0, 0, 0, 0) + bytes(pixels)


def write_tar(path, samples):
    """WebDataset shard of samples 0000, 0001, …, each {extension: bytes or text}."""
    import io, tarfile
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for i, members in enumerate(samples):
            for ext, data in members.items():
                data = data.encode() if isinstance(data, str) else data
                info = tarfile.TarInfo(f"{i:04d}.{ext}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))


def records(path, kind=None):
    """The lines of metrics.jsonl, those of a kind, or the records of result.json: of a split the best weights last."""
    with open(path) as f:
        rows = [r for r in map(json.loads, f) if kind is None or r["kind"] == kind]
    if kind or len(rows) != 1 or rows[0].get("schema") != 1:
        return rows
    last = rows[0].pop("last", {})
    return [r for split, r in rows[0].items() if split != "schema" for r in (last.get(split), r) if r]


def write_result(path, *lines):
    """result.json of records, JSON each."""
    result, last = {"schema": 1}, {}
    for r in map(json.loads, lines):
        best = r["split"] not in result or "best" in r["weights"]
        if best and r["split"] in result:
            last[r["split"]] = result[r["split"]]
        (result if best else last)[r["split"]] = r
    with open(path, "w") as f:
        f.write(json.dumps(result | ({"last": last} if last else {}), separators=(",", ":")) + "\n")


def table(path):
    """The rows of a CSV file."""
    import csv
    with open(path, newline="") as f:
        return list(csv.DictReader(f))


def value(path, expression):
    """Prints the value of an expression of a JSON file: r is its last line, rows are all."""
    rows = records(path)
    print(eval(expression, {"r": rows[-1], "rows": rows}))


def on_screen(columns, out, *command):
    """Runs a command on a terminal of so many columns; out: what it writes there."""
    import fcntl, os, pty, sys, termios
    with open(out, "wb") as screen:
        pid, fd = pty.fork()
        if pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, int(columns), 0, 0))
            os.execvp(command[0], command)
        try:
            while data := os.read(fd, 1 << 16):
                screen.write(data)
        except OSError:
            pass
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def free_port():
    import random
    import socket
    port = None  # of those that the system gives nobody by itself, so that it stays free while its server is away
    while not port or socket.socket().connect_ex(("127.0.0.1", port)) == 0:
        port = random.randrange(20000, 32768)
    print(port)


def read_safetensors(path):
    """({name: array of floats}, {name: shape}, the metadata)"""
    with open(path, "rb") as f:
        head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    metadata = head.pop("__metadata__", {})
    return ({k: array("f", data[slice(*t["data_offsets"])]) for k, t in head.items()},
            {k: t["shape"] for k, t in head.items()}, metadata)


def write_run(run, steps, name="photos", classes=("cat", "dog"), every=100, seed=1, lr=2e-3, end=True):
    """A run directory as a training of so many steps leaves it, evaluated every so many steps, with classes."""
    import math, os, random
    draw = random.Random(seed)
    steps, every, seed, lr = int(steps), int(every), int(seed), float(lr)
    os.makedirs(run, exist_ok=True)
    confusion = {t: {p: 8 if t == p else 1 for p in classes} for t in classes}
    report = {"classes": {c: {"precision": 0.75, "recall": 0.5, "f1": 0.6, "support": 10 + i}
                          for i, c in enumerate(classes)}}
    start = {"kind": "start", "from_step": 0, "schema": 1, "version": "0.1.0", "world_size": 2, "time": 1.7e9,
             "total_steps": steps, "steps_per_epoch": every, "chosen_by": "accuracy", "lower_is_better": False,
             "samples": {"train": 32 * every, "val": 20, "test": 20}, "host": "node1", "machine": "cpu avx2",
             "data": "lmdb photos.lmdb", "command": "dtrain photos.yaml", "cpu": "Zen<9>", "cores": 12, "memory_bytes": 2**36,
             "began": 1.7e9 - 2.5, "given": {"train.epochs": "2", "train.optimizer.lr": "2e-3"}}
    with open(f"{run}/metrics.jsonl", "w") as f:
        f.write(json.dumps(start, separators=(",", ":")) + "\n")
        for s in range(1, steps + 1):
            loss = 2 * math.exp(-3 * s / steps) + 0.2 * draw.random()
            f.write('{"kind":"step","step":%d,"epoch":%r,"samples":%d,"loss":%r,"lr":%r,"grad_norm":%r,"samples_per_s":%r,'
                    '"seconds":{"step":%r,"data":%r,"compute":0.007,"comm":0.001,"other":0.0005},"rss":51568640,"time":%r}\n' %
                    (s, s / every, 32 * s, loss, lr * (1 - s / steps), 1 + draw.random(), 3200 + draw.random(),
                     0.01 + 0.001 * draw.random(), 0.0015, 1.7e9 + s))
            if s % every == 0:
                e = {"kind": "eval", "split": "val", "step": s, "accuracy": 1 - loss / 3, "loss": loss,
                     "confusion": confusion, "report": report, "time": 1.7e9 + s}
                f.write(json.dumps(e, separators=(",", ":")) + "\n")
            if s == steps:
                f.write('{"kind":"goodput","step":%d,"goodput":0.8,"seconds":{"steps":%d,"startup":100}}\n' % (s, steps))
        if end:
            f.write('{"kind":"end","step":%d,"status":0}\n' % steps)
    best = {"weights": "best and last", "step": steps, "samples": 20, "accuracy": 0.9 + 0.01 * seed, "loss": 0.3}
    if end:
        train = {"split": "train", "weights": "last", "step": steps, "loss": 0.25, "chosen_by": "accuracy"}
        write_result(f"{run}/result.json", *map(json.dumps, (train, {"split": "val"} | best, {"split": "test"} | best)))
    with open(f"{run}/config.yaml", "w") as f:
        f.write("run: {name: %s, seed: %d}\ndata:\n  path: photos.lmdb\n  fields:\n    image: {kind: image, size: 32}\n"
                "    label: {kind: class}\nmodel: {name: resnet}\n"
                "train: {epochs: 2, global_batch: 32, micro_batch: 8, optimizer: {lr: %r}}\n" % (json.dumps(name), seed, lr))
    with open(f"{run}/log", "w") as f:
        f.write("2026-11-25T22:25:26Z I calm\n2026-11-25T22:25:27Z W a checkpoint could not be written\n")
