"""Functions of test_query.sh: what it trains on, and checks of what it wrote."""
import csv, io, json, sqlite3, tarfile, statistics


def make_weird():
    with tarfile.open("weird.tar", "w") as t:
        for i, (key, meta) in enumerate([("a\nb", {"say": 'he said "x, y"', "q": 0.5}), ("tab\there", {"say": "two\nlines"}),
                                         ("escape\x1b[31m", {"say": "back\\slash", "q": 2.25}), ("plain", {}),
                                         ("bytes\udcff", {"say": ""})]):
            for ext, data in [("txt", b"x%d" % i), ("json", json.dumps(meta).encode())]:
                info = tarfile.TarInfo(f"{key}.{ext}")
                info.size = len(data)
                t.addfile(info, io.BytesIO(data))


def make_numbers():
    keys = [r["key"] for r in csv.DictReader(open("all.csv"))]
    with open("numbers.csv", "w") as f:
        f.write("key,mass,plate,big\n" + "".join(f"{k},{i * i / 8},{i * 3},{2**53 + 1 + i}\n" for i, k in enumerate(keys) if i != 4))


def check_numbers():
    rows = list(csv.DictReader(open("numbers.csv")))
    for name, begins, number in (("mass", "number mass: ", float), ("plate", "column plate: ", int), ("big", "column big: ", int)):
        x, spec = [number(r[name]) for r in rows], "d" if number is int else "g"
        line = next(l for l in open("stat.txt") if l.startswith(begins))
        quartiles = ", ".join(f"{q:.6g}" for q in statistics.quantiles(x, n=4, method="inclusive"))
        want = f"{min(x):{spec}}..{max(x):{spec}}, mean {statistics.fmean(x):.6g}, deviation {statistics.pstdev(x):.6g}, quartiles {quartiles}"
        assert want in line, (line, want)


def check_weird():
    rows = list(csv.DictReader(open("weird.csv", newline="", errors="surrogateescape")))
    assert [r["key"] for r in rows] == ["a\\nb", "tab\\there", "escape\\x1b[31m", "plain", "bytes\\xff"], rows
    assert [r["say"] for r in rows] == ['he said "x, y"', "two\\nlines", "back\\\\slash", "", ""], rows
    assert [r["q"] for r in rows] == ["0.5", "", "2.25", "", ""], rows
    rows = json.load(open("weird.json"))
    assert [r["key"] for r in rows] == ["a\nb", "tab\there", "escape\x1b[31m", "plain", "bytes\ufffd"], rows
    assert [r["say"] for r in rows] == ['he said "x, y"', "two\nlines", "back\\slash", None, ""], rows
    assert [r["q"] for r in rows] == [0.5, None, 2.25, None, None], rows


def check_sqlite():
    db = sqlite3.connect("file:export.sqlite?mode=ro", uri=True)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    weird = sqlite3.connect("file:weird.sqlite?mode=ro", uri=True)
    assert weird.execute("SELECT say, q FROM catalog WHERE key = 'a' || char(10) || 'b'").fetchone() == ('he said "x, y"', 0.5)
    keys = [k for k, in db.execute("SELECT key FROM catalog WHERE subject = 2 ORDER BY id")]
    assert keys == open("keys.txt").read().split(), keys
