"""For across.sh."""
import json, os, struct


def compare_values(*folders):
    """The same files; floats differ by 1e-6 at most, pixels by 1, and both seldom."""
    files = [sorted(os.path.relpath(os.path.join(at, f), folder) for at, _, names in os.walk(folder) for f in names)
             for folder in folders]
    assert files[0] == files[1] and files[0]
    n = n_other = 0
    for file in files[0]:
        a, b = (open(os.path.join(folder, file), "rb").read() for folder in folders)
        assert len(a) == len(b), file
        most = lambda x: 1
        if file.endswith(".fits"):
            assert a[:2880] == b[:2880] and len(a) % 4 == 0, file
            a, b = (struct.unpack(f">{len(x) // 4 - 720}f", x[2880:]) for x in (a, b))
            most = lambda x: 1e-6 * max(1, abs(x))
        n += len(a)
        if a != b:
            other = [(x, y) for x, y in zip(a, b) if x != y]
            n_other += len(other)
            assert all(abs(x - y) <= most(x) for x, y in other), file
    assert n_other * 20 <= n > 0, (n_other, n)
    print(f"{n_other} of {n} values differ")


def compare_predictions(*paths):
    """The same samples, columns and texts; numbers within 1e-5."""
    tables = [[json.loads(line) for line in open(path)] for path in paths]
    assert len(tables[0]) == len(tables[1]) > 0
    most = 0

    def compare(a, b):
        nonlocal most
        assert type(a) is type(b), (a, b)
        if isinstance(a, float):
            most = max(most, abs(a - b))
        elif isinstance(a, dict):
            assert list(a) == list(b), (a, b)
            for key in a:
                compare(a[key], b[key])
        elif isinstance(a, list):
            assert len(a) == len(b)
            for x, y in zip(a, b):
                compare(x, y)
        else:
            assert a == b, (a, b)

    compare(*tables)
    assert most < 1e-5, most
    print(f"{len(tables[0])} predictions, differences up to {most:.2g}")
