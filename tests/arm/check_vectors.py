#!/usr/bin/env python3
"""Whether the hottest kernels of an arm64 build are vector code: check_vectors.py BUILD.

The loop of a kernel that has the most vector instructions must have no scalar arithmetic of floats, and few accesses of
the stack, which are registers that did not suffice. There is no such machine to time it on: instructions stand in."""
import pathlib
import re
import subprocess
import sys

SIMD = {
    "simd_winograd": "input_4_f32 output_4_f32 output_grad_4_f32 product_tiles product_channels",
    "simd_depthwise": "conv3_1_0 conv7_1_0 weights7_1_0",
    "simd_bn": "stats forward backward",
    "simd_elementwise": "map_relu_f32 map_gelu_tanh_f32 to_bf16",
    "simd_rows": "softmax_f32 norm_f32",
    "simd_flat": "row_dot row_softmax",
    "simd_optimizer": "update_adamw",
    "simd_pool": "pool_max_f32",
}
VECTOR = re.compile(r"\bv\d+\.\d*[bhsd]\b|\bz\d+\.[bhsd]\b")
SCALAR = re.compile(r"f(?!mov|cvt)\w+\s+[hsd]\d+\b")  # arithmetic, comparison, selection
STACK = re.compile(r"(ld|st)\w+\s+\{?[qz]\d.*\[sp\b")


def functions(path):
    """{name: [(address, instruction)]} of an object file."""
    text = subprocess.run(["aarch64-linux-gnu-objdump", "-d", "--no-show-raw-insn", path], check=True, text=True,
                          stdout=subprocess.PIPE).stdout
    found = {}
    for line in text.splitlines():
        if name := re.match(r"[0-9a-f]+ <(.+)>:$", line):
            body = found.setdefault(name[1], [])
        elif code := re.match(r"\s+([0-9a-f]+):\s+(.+)", line):
            body.append((int(code[1], 16), code[2]))
    return found


def vectors(codes):
    return sum(bool(VECTOR.search(c)) for c in codes)


def hottest_loop(body):
    """The innermost loop with the most vector instructions; a function without one whole. A jump back without a condition
    often is to a rare case's end, so that it makes a loop only where no other does."""
    at = {address: i for i, (address, _) in enumerate(body)}
    for jump in (r"(?:b\.\w+|[ct]bn?z)\s+(?:.*, )?([0-9a-f]+) <", r"b\s+([0-9a-f]+) <"):
        loops = [(at[int(to[1], 16)], i) for i, (_, code) in enumerate(body)
                 if (to := re.match(jump, code)) and at.get(int(to[1], 16), i + 1) <= i]
        inner = [a for a in loops if not any(b != a and a[0] <= b[0] and b[1] <= a[1] for b in loops)]
        best = max(([code for _, code in body[a:b + 1]] for a, b in inner), key=vectors, default=[])
        if vectors(best):
            return best
    return [code for _, code in body]


def main():
    build, bad = pathlib.Path(sys.argv[1]), 0
    wanted = [(f"dt_simd_{isa}.dir/runtime/backend/cpu/{file}", name)
              for isa in ("neon", "sve256") for file, names in SIMD.items() for name in names.split()]
    wanted += [("dt_data.dir/data/decode/resize_vectors", f"resize_vectors_{name}") for name in ("across", "down")]
    for file, name in wanted:
        body = functions(build / "CMakeFiles" / f"{file}.c.o").get(name)
        if not body:
            sys.exit(f"{file}.c has no function {name} (any more): change the list")
        loop = hottest_loop(body)
        vector = vectors(loop)
        scalar, stack = (sum(bool(p.match(c)) for c in loop) for p in (SCALAR, STACK))
        if not vector or scalar or stack > max(8, vector / 3):  # 8: a last part of a vector goes through the stack
            print(f"{file}.c: {name}: {vector} vector instructions, {scalar} of scalars, {stack} of the stack")
            bad += 1
    print(f"{len(wanted)} kernels, {bad} that are no vector code")
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
