"""Functions of test_formats.sh: what two files say, number by number."""
import ast, csv, json
from array import array


def numbers(path):
    if path.endswith(".npy"):
        data = open(path, "rb").read()
        begin = 10 + int.from_bytes(data[8:10], "little")
        head = ast.literal_eval(data[10:begin].decode())
        assert head["descr"] == "<f4" and not head["fortran_order"], head
        return [head["shape"], list(array("f", data[begin:]))]
    with open(path) as f:
        if path.endswith(".csv"):
            return [{k: number(v) for k, v in row.items()} for row in csv.DictReader(f)]
        return [json.loads(line) for line in f]


def number(text):
    try:
        return float(text)
    except ValueError:
        return text


def compare(new, old, tolerance, place):
    """Members and columns that are new are fine."""
    if isinstance(old, dict):
        for key in old:
            assert key in new, f"{place}: no {key}"
            compare(new[key], old[key], tolerance, f"{place}.{key}")
    elif isinstance(old, list):
        assert len(new) == len(old), f"{place}: {len(new)}, not {len(old)}"
        for i, (a, b) in enumerate(zip(new, old)):
            compare(a, b, tolerance, f"{place}[{i}]")
    elif isinstance(old, float) and not place.endswith(("accuracy", "top5")):
        assert abs(new - old) <= tolerance * max(1, abs(old)), f"{place}: {new}, not {old}"
    elif place.endswith(("accuracy", "top5")):
        assert abs(new - old) <= (0.1 if tolerance else 0), f"{place}: {new}, not {old}" # one sample of 12
    else:
        assert new == old, f"{place}: {new}, not {old}"


def same(new, old, tolerance):
    new, old_rows, tolerance = numbers(new), numbers(old), float(tolerance)
    if old.endswith(".end"):  # another ISA may choose another best checkpoint of equal ones
        new, old_rows = ([r for r in rows if r["weights"] == "last"] for rows in (new, old_rows))
    compare(new, old_rows, tolerance, old)


def members(path, *names):
    """Of the first JSON object; new members are fine."""
    with open(path) as f:
        found = json.loads(f.readline())
    missing = [n for n in names if n not in found]
    assert not missing, f"no {missing} in {sorted(found)}"


def set_byte(path, at, value):
    with open(path, "r+b") as f:
        f.seek(int(at))
        f.write(value.encode())
