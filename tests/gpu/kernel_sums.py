"""kernel_sums.py CSV STEPS: what ncu wrote of a run of so many steps, summed by kernel: facts of tests/gpu/run.sh. Launches
of the start, and the first step, are in the sums: they are divided by the steps."""
import collections
import csv
import re
import sys

UNITS = {"nsecond": 1e-9, "ns": 1e-9, "usecond": 1e-6, "us": 1e-6, "msecond": 1e-3, "ms": 1e-3, "second": 1, "s": 1,
         "byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}


def main():
    steps = int(sys.argv[2])
    lines = [line for line in open(sys.argv[1], errors="replace") if line.startswith('"')]
    sums = collections.defaultdict(lambda: [set(), 0.0, 0.0])
    for row in csv.DictReader(lines):
        name = re.sub(r"^.*::|[<(].*", "", row["Kernel Name"])[:60]
        value = float(row["Metric Value"].replace(",", "")) * UNITS[row["Metric Unit"]]
        kernel = sums[name]
        kernel[0].add(row["ID"])
        kernel[1 if "duration" in row["Metric Name"] else 2] += value
    seconds, moved = (sum(k[i] for k in sums.values()) for i in (1, 2))
    launches = sum(len(k[0]) for k in sums.values())
    print(f"fact: a step = {seconds / steps * 1e3:.2f} ms in {launches / steps:.0f} kernels, {moved / steps / 1e9:.2f} GB")
    for name, (ids, s, b) in sorted(sums.items(), key=lambda k: -k[1][1])[:30]:
        print(f"fact: {name} = {s / steps * 1e3:.3f} ms, {len(ids) / steps:.0f} launches, {b / steps / 1e9:.3f} GB, {b / s / 1e12 if s else 0:.2f} TB/s")


main()
