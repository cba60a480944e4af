"""Holds what the compiler made of each custom kernel against a table, so that a change that costs speed is seen without a
device, and looks for instructions that must not be there. test_fatbin.sh runs it.

    kernel_table.py CUOBJDUMP NVCC_VERSION FILE...            compares; exit 1: something is worse, or is forbidden
    kernel_table.py --write CUOBJDUMP NVCC_VERSION FILE...    writes the table

FILE is dtrain_cuda.so for any architectures, with PTX. The table holds registers, bytes of stack
(spills), bytes of shared memory, threads of a block and percent of a multiprocessor's warps that fit, for each
architecture. Worse is: more stack, fewer warps. Another nvcc gives other numbers: then nothing is compared.
"""
import json
import os
import re
import subprocess
import sys

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kernel_table.json")
SHARED = {"sm_80": 164 << 10, "sm_90": 228 << 10, "sm_100": 228 << 10, "sm_120": 100 << 10}  # of a multiprocessor
WARPS = {"sm_120": 48}  # 64 elsewhere
# The same bits as the host's, which rounds each product and sum: no fused multiply-add that the compiler makes. The mixed
# form of normalize has those of the plain one, which are written so in the source.
EXACT = ["augment", "branch_fwd", "dropout", "dropout_nhwc", "cast_fwd", "flat_add"]


def name_of(symbol):  # _Z10bn_bwd_sums10dt_bn_args, mangled: the length of the name, the name
    length, rest = re.match(r"_Z(\d+)(.*)", symbol).groups()
    return rest[: int(length)]


def dump(tool, option, file):
    return subprocess.run([tool, option, file], check=True, capture_output=True, text=True, errors="replace").stdout


def warps_percent(arch, threads, registers, shared):
    """CUDA's occupancy calculator: registers come in units of 256 a warp. Each block has 1 KiB of shared memory that is the
    system's, which from sm_90 on is in the number."""
    most, warps = WARPS.get(arch, 64), (threads + 31) // 32
    by_registers = 65536 // (-(-registers * 32 // 256) * 256) // warps
    blocks = min(most // warps, by_registers, SHARED[arch] // (shared + 1024 * (arch == "sm_80")) if shared else 32, 32)
    return round(100 * blocks * warps / most)


def tables_of(tool, files):
    threads, fma, forbidden, found = {}, {}, [], {}
    for file in files:
        kernel = None
        for line in dump(tool, "-ptx", file).splitlines():
            entry = re.search(r"\.entry (_Z\w+)", line)
            if entry:
                kernel = name_of(entry[1])
                fma[kernel], threads[kernel] = 0, 256  # unless it says (kernel.h)
            bound = re.match(r"\.maxntid (\d+)", line)
            if bound:
                threads[kernel] = int(bound[1])
            if kernel and re.search(r"\bfma\.", line):
                fma[kernel] += 1
            if re.search(r"\b(atom|red)\.[\w.]*\.(f16|bf16|f32|f64)", line):
                forbidden.append(f"{kernel} adds floats atomically: {line.strip()}")
    for file in files:
        arch = None
        for line in dump(tool, "-res-usage", file).splitlines():
            arch = line.split()[-1] if line.startswith("arch = ") else arch
            if line.startswith(" Function "):
                kernel = name_of(line.split()[1].rstrip(":"))
            use = dict(re.findall(r"(REG|STACK|SHARED|LOCAL):(\d+)", line))
            if use:
                registers, stack, shared = int(use["REG"]), int(use["STACK"]) + int(use["LOCAL"]), int(use["SHARED"])
                found.setdefault(arch, {})[kernel] = [registers, stack, shared, threads[kernel],
                                                      warps_percent(arch, threads[kernel], registers, shared)]
    for kernel in EXACT:
        if fma[kernel]:
            forbidden.append(f"{kernel} has {fma[kernel]} fused multiply-adds, and promises the host's bits")
    if fma["normalize_mixed"] != fma["normalize"]:
        forbidden.append("normalize_mixed has fused multiply-adds that normalize has not")
    return found, forbidden


def compare(have, want):
    worse = [f"{arch} {kernel}: the table has none of it" for arch in have for kernel in have[arch]
             if kernel not in want[arch]]
    for arch in have:
        for kernel, (registers, stack, shared, threads, percent) in want[arch].items():
            now = have[arch].get(kernel)
            if not now:
                worse.append(f"{arch} {kernel}: only the table has it")
            elif now[1] > stack or now[4] < percent:
                worse.append(f"{arch} {kernel}: {now[0]} registers ({registers}), {now[1]} bytes of stack ({stack}), "
                             f"{now[2]} of shared memory ({shared}), {now[4]} % of the warps ({percent} %)")
    return worse


def main():
    words = sys.argv[1:]
    write = words[:1] == ["--write"]
    tool, nvcc, *files = words[write:]
    have, forbidden = tables_of(tool, files)
    if write:
        rows = [f'"{arch}": {{\n' + ",\n".join(f'  "{kernel}": {json.dumps(row)}' for kernel, row in sorted(have[arch].items()))
                + "\n}" for arch in sorted(have)]
        with open(TABLE, "w") as file:
            file.write(f'{{"nvcc": "{nvcc}",\n' + ",\n".join(rows) + "}\n")
    with open(TABLE) as file:
        table = json.load(file)
    for line in forbidden:
        print("FAILED:", line)
    known = {arch: rows for arch, rows in have.items() if arch in table}
    if nvcc != table["nvcc"]:
        print(f"not compared: the table is of nvcc {table['nvcc']}, this is {nvcc}")
        known = {}
    worse = compare(known, table)
    for line in worse:
        print("FAILED:", line)
    print(f"{sum(map(len, known.values()))} kernels compared with the table, for {', '.join(sorted(known)) or 'nothing'}")
    if worse:
        print(f"meant so? {sys.argv[0]} --write, and say why in the commit")
    sys.exit(bool(worse or forbidden))


main()
