"""For across.sh."""
import json, os, struct


def compare_fits(*folders):
    """The same files; of the floats one in 10,000 at most differs, and by 1e-6 at most."""
    files = [sorted(os.path.relpath(os.path.join(at, f), folder) for at, _, names in os.walk(folder) for f in names)
             for folder in folders]
    assert files[0] == files[1] and files[0]
    n = n_other = 0
    for file in files[0]:
        a, b = (open(os.path.join(folder, file), "rb").read() for folder in folders)
        if file.endswith(".fits"):
            assert a[:2880] == b[:2880] and len(a) == len(b) and len(a) % 4 == 0, file
            pairs = list(zip(*(struct.unpack(f">{len(x) // 4 - 720}f", x[2880:]) for x in (a, b))))
            n += len(pairs)
            n_other += sum(x != y for x, y in pairs)
            assert all(abs(x - y) <= 1e-6 * max(1, abs(x)) for x, y in pairs), file
        else:
            assert a == b, file
    assert n_other * 10000 <= n > 0, n_other
    print(f"{n_other} of {n} floats differ")


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
