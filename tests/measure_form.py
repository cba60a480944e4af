#!/usr/bin/env python3
"""Prints how the source is divided, so that it can be compared over time: python3 tests/measure_form.py [ROOT]

Files are .c, .h and .cu of runtime, data, launch and models. A line of code is neither blank nor a comment alone. A
function begins at column 0 and ends with a brace there, as clang-format leaves it. A walk is a fixed list of functions:
what a reader opens to follow one story, in the order of execution; a function that is not found is an error. A climb is a
step of the walk back to a file that was left.
"""
import os
import re
import statistics
import subprocess
import sys
from collections import defaultdict

WALKS = {
    "JPEG to batch, without cache and readahead": """dt_loader_work dt_sampler_index dt_sample_fill dt_fetch_member
        dt_reader_read dt_decode_image_part jpeg_decode_image dt_resize dt_augment_apply dt_mix_run""",
    "gradient to optimizer step": """dt_exec_run dt_step_on_grad dt_buckets_ready dt_tree_plan dt_mpi_reduce_start
        dt_mpi_sum dt_commit_run dt_optimizer_find_ratios dt_cpu_flat_optimize dt_params_repack_step""",
    "resume": """dt_trainer_train dt_run_open dt_run_read_state find_newest dt_ckpt_find dt_ckpt_manifest_read dt_run_state_read
        dt_run_state_parse check_config run_resume_compare_config dt_run_check_resumed open_training dt_nets_make
        dt_params_create dt_state_create dt_state_load dt_ckpt_load_with load_tensors take_values share
        dt_stepper_set_scaler dt_trainer_open_source""",
}
FOLDERS = ("runtime/", "data/", "launch/", "models/")
START = re.compile(r"^(?!typedef|struct|enum|union|#|//|\}|extern)[A-Za-z_].*?\b(\w+)\(")


def functions(lines):
    """(name, static, length) of each function definition"""
    i = 0
    while i < len(lines):
        found = START.match(lines[i])
        end = i
        while found and end < len(lines) and not lines[end].rstrip().endswith(("{", ";")):
            end += 1
        if not found or end >= len(lines) or not lines[end].endswith("{") or "=" in lines[i].split("(")[0]:
            i += 1
            continue
        close = end + 1
        while close < len(lines) and not lines[close].startswith("}"):
            close += 1
        before = lines[i][:found.start(1)] # a macro in capitals stands for static: INLINE, DT_TARGET
        if not found.group(1).isupper() and not re.match(r"[A-Z]+\(", lines[i]):
            yield found.group(1), re.search(r"\bstatic\b|\b[A-Z][A-Z_]{3,}\b|__attribute__", before) is not None, close - i + 1
        i = close + 1


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..")
    listed = subprocess.run(["git", "-C", root, "ls-files"], capture_output=True, text=True, check=True).stdout.split("\n")
    texts = {}
    for path in listed:
        if path.startswith(FOLDERS) and path.endswith((".c", ".h", ".cu", ".def")):
            with open(os.path.join(root, path), encoding="utf-8") as f:
                texts[path] = f.read().split("\n")[:-1]
    source = {p: t for p, t in texts.items() if not p.endswith(".def")}
    lines = sum(map(len, texts.values()))
    blank = sum(not l.strip() for t in texts.values() for l in t)
    alone = sum(l.strip().startswith("//") for t in texts.values() for l in t)
    commented = sum("//" in re.sub(r'"(\\.|[^"\\])*"', "", l) for t in texts.values() for l in t)
    where, lengths, foreign, defined = defaultdict(set), [], set(), {}
    for path, text in source.items():
        if not path.endswith(".c"):
            continue
        for name, static, length in functions(text):
            lengths.append(length)
            where[name].add(path)
            defined[name] = path
            if not static and not name.startswith(("dt_", "mpg123_")) and name != "main": # a library's function, put before it
                foreign.add(name)
    lengths.sort()
    sizes = [len(t) for p, t in source.items() if p.endswith(".c")]
    print(f"files                            {len(source)} (.c {len(sizes)}, .def {len(texts) - len(source)})")
    print(f"lines, of code                   {lines}, {lines - blank - alone}")
    print(f"lines of a .c file, median, most {statistics.median(sizes):.0f}, {max(sizes)}")
    print(f"files under 100 lines            {100 * sum(len(t) < 100 for t in source.values()) / len(source):.0f} %")
    print(f"functions per 1,000 lines        {1000 * len(lengths) / sum(sizes):.0f}")
    print(f"function lines, mean, p90, most  {statistics.mean(lengths):.0f}, {lengths[len(lengths) * 9 // 10]}, {lengths[-1]}")
    print(f"names in more than one file      {sum(len(p) > 1 for p in where.values())}")
    print(f"non-static names without dt_     {len(foreign)} {' '.join(sorted(foreign)[:8])}")
    print(f"lines with a comment             {100 * commented / lines:.0f} %")
    for story, names in WALKS.items():
        missing = [n for n in names.split() if n not in defined]
        if missing:
            sys.exit(f"{story}: no function {', '.join(missing)}")
        files = [defined[n] for n in names.split()]
        climbs = sum(f != files[i] and f in files[:i] for i, f in enumerate(files[1:]))
        print(f"files, climbs: {story + ',':<44}{len(set(files))}, {climbs}")


if __name__ == "__main__":
    main()
