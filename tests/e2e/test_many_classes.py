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
