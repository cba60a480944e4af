"""Functions of test_data_config.sh: sets of each kind, and checks of what was trained on them."""
import math, os, random, struct, wave
from small_set import bmp, records

draw = random.Random(7)


def put(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, "wb" if isinstance(data, bytes) else "w").write(data)


def picture(path, colour, width=40, height=48):
    rows = b""
    for _ in range(height):
        row = bytes(max(0, min(255, c + draw.randint(-30, 30))) for _ in range(width) for c in reversed(colour))
        rows += row + bytes(-len(row) % 4)
    put(path, bmp(width, height, rows))


def npy(path, shape, values):
    head = "{'descr': '<f4', 'fortran_order': False, 'shape': (%s,), }" % ", ".join(map(str, shape))
    head += " " * (-(len(head) + 11) % 64) + "\n"
    put(path, b"\x93NUMPY\x01\0" + struct.pack("<H", len(head)) + head.encode() + struct.pack(f"<{len(values)}f", *values))


def edf(path, rate, signals):
    """A second of each signal, -1..1."""
    each = ((16, "signal"), (80, ""), (8, "uV"), (8, -1), (8, 1), (8, -32767), (8, 32767), (80, ""), (8, rate), (32, ""))
    n = len(signals)
    head = ((8, 0), (80, "X"), (80, "X"), (8, "01.01.26"), (8, "00.00.00"), (8, 256 + 256 * n), (44, ""), (8, 1), (8, 1), (4, n))
    text = "".join(str(v).ljust(w) for w, v in head) + "".join(str(v).ljust(w) * n for w, v in each)
    put(path, text.encode() + b"".join(struct.pack("<h", int(32767 * v)) for x in signals for v in x))


def sound(path, tone, rate):
    put(path, b"")
    with wave.open(path, "wb") as f:
        f.setnchannels(1), f.setsampwidth(2), f.setframerate(rate)
        f.writeframes(b"".join(struct.pack("<h", int(9000 * math.sin(k * tone / rate) + draw.randint(-99, 99)))
                               for k in range(rate // 2)))


def make():
    houses = ["name,rooms,area,zone,floors,price"]
    iris, prices = ["a,b,species"], ["area,age_of_roof,kind,price"]
    for i in range(120):
        c = i % 2
        picture(f"colours/{('red', 'blue')[c] if i % 12 else 'green'}/{i}.bmp",
                ((200, 60, 60), (60, 60, 200))[c] if i % 12 else (60, 200, 60), width=40 + i % 3 * 10)
        put(f"digits/{('train', 'test')[i % 5 == 0]}/{i % 6}_{i}.pgm", b"P5 28 28 255\n" + bytes(
            max(0, min(255, 40 * (i % 6) + draw.randint(-9, 9))) for _ in range(784)))
        motion = ("walk", "run")[c]
        put(f"wrist/{motion}_p{i % 10}_{i}.csv", "".join(
            f"{math.sin((1 + 2 * c) * t / 9) + draw.random():.3f},{draw.random():.3f},{9.81 + draw.random():.3f}\n" for t in range(200)))
        edf(f"brain/{('calm', 'tense')[c]}_{i}.edf", 100, [[math.sin((1 + 4 * c) * t / 9) * draw.random() for t in range(100)]] * 2)
        sound(f"tones/{('low', 'high')[c]}_{('kitchen', 'hall')[i // 2 % 2]}_{i}.wav", (900, 6000)[c], (8000, 16000)[i % 3 > 0])
        npy(f"maps/{('up', 'down')[c]}/{i}.npy", (2, 20, 24), [draw.gauss(5 * c + k // 480, 1) for k in range(960)])
        for eye, shade in ("left", 200), ("right", 60):
            picture(f"eyes/{eye}/{('old', 'young')[c]}_{i}.bmp", (shade, 120, 60 + 100 * c), 24, 24)
        rooms, area = 1 + i % 5, 50 + i
        picture(f"houses/{i}.bmp", (60 + i, 120, 100), 32, 32)
        houses.append(f"{i}.bmp,{'' if i == 7 else rooms + 0.5},{area}.25,zone {i % 3},{1 + i % 4},{1000 * area + 500 * rooms}.5")
        iris.append(f"{draw.gauss(c * 4, 1):.3f},{draw.gauss(0, 1):.3f},{('setosa', 'virginica')[c]}")
        prices.append(f"{area}.5,{i % 7},{'flat' if i % 3 else 'villa'},{3000 * area}.5")
    put("alone/one/1.pgm", b"P5 1 1 255\n0")
    for name, rows in (("houses", houses), ("iris", iris), ("prices", prices)):
        put(f"tables/{name}.csv", "\n".join(rows) + "\n")


def learned(run, metric, least):
    """A metric of the test, where it is above a number, or (mae) below one; loss: less at the end than at the beginning."""
    if metric == "loss":
        losses = [r["loss"] for r in records(f"{run}/metrics.jsonl", "step")]
        n = len(losses) // 4
        assert sum(losses[-n:]) < float(least) * sum(losses[:n]), losses
        return
    value = records(f"{run}/result.json")[-1][metric]
    assert value < float(least) if metric.endswith("mae") else value > float(least), (run, metric, value)
