"""Functions of test_launch_local.sh."""
import mmap, time


def hold(path, ready, *words):
    """A process that has mapped a file, as a rank of the job that the words on its command line name has."""
    with open(path, "r+b") as f:
        mapped = mmap.mmap(f.fileno(), 0)
    open(ready, "w").close()
    time.sleep(600)
