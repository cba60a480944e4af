"""Table and memory of test_many_classes.sh."""


def make_table(path):
    with open(path, "w") as f:
        f.write("label,a,b\n")
        for i in range(2000):
            f.write(f"{i % 7},{i % 11},{i % 13}\n")


def peak_below(mib, *command):
    """Runs a command whose process must not grow to so many MiB."""
    import resource, subprocess
    subprocess.run(command, check=True)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"{peak:.0f} MiB")
    assert peak < float(mib), f"{peak} MiB: {command}"


def has_rows(all_rows, some_rows):
    """The second file has some of the first one's rows, which are 2,000."""
    rows, some = (open(path).read().splitlines() for path in (all_rows, some_rows))
    assert len(rows) == len(set(rows)) == 2001, len(rows)
    assert len(some) > 100 and set(some) <= set(rows), (len(some), set(some) - set(rows))
