#!/usr/bin/env python3
"""Checks what the compiler does not: python3 tests/check_structure.py [ROOT]

1. Includes never point upward or sideways: train -> eval -> run -> metrics -> {exec, comm, checkpoint, onnx, observe} ->
   backend -> graph -> batch -> config -> store -> base. models/ uses graph and below, and onnx; data/ uses batch and below.
   Within data/: its own files -> {loader, pack, synth} -> {source, augment} -> {raw, order, decode} -> catalog -> file.
   launch/ uses all of them.
2. Source file names are unique in the repository, but for run.sh, which starts the tests of its folder.
3. A registry (*.def) has no second list: no other file spells out a run of its entries, and a file
   that defines its X macro also includes it.
4. No file names a path of somebody's machine, and only launch/ calls exit(). No source calls popen() or system(), which
   hand names to a shell (launch/targets/target.h does without).
5. Nothing waits by the wall clock, which may be set: no pthread_cond_timedwait or its like (base/thread.h has
   dt_thread_wait and dt_thread_lock), and the wall clock itself only where WALL_CLOCK gives a reason.
6. No script under pipefail pipes into grep -q: it ends at the first match, and what writes on is killed or not, as soon
   as it is scheduled.
Prints one line a violation; exit 1 if there is any.
"""
import os
import re
import shutil
import subprocess
import sys

LEVELS = [["base"], ["store"], ["config"], ["batch"], ["graph"], ["backend"],
          ["exec", "comm", "checkpoint", "onnx", "observe"], ["metrics"], ["run"], ["eval"], ["train"], ["data/file"], ["data/catalog"], ["data/raw", "data/order", "data/decode"],
          ["data/source", "data/augment"],
          ["data/loader", "data/pack", "data/synth"], ["models", "data"], ["launch"]]
LEVEL = {name: i for i, names in enumerate(LEVELS) for name in names}
BELOW_GRAPH = {"batch", "config", "store", "base"}
MAY_USE = {"models": BELOW_GRAPH | {"graph", "onnx"}, "data": BELOW_GRAPH}
SOURCE = (".c", ".h", ".cu", ".cuh", ".def")
WALL_CLOCK = {  # files that read it, and why
    "runtime/base/os.c": "gives it", "runtime/base/os.h": "declares it",
    "runtime/store/aws_credentials.c": "credentials expire", "runtime/store/http_curl.c": "certificates, Retry-After",
    "runtime/base/log.c": "time stamps", "runtime/checkpoint/ckpt.c": "time stamp of the lock",
    "runtime/observe/metrics.c": "time stamps", "runtime/observe/sink_mlflow.c": "time stamps",
    "runtime/observe/sink_prometheus.c": "time stamps", "runtime/observe/sink_tensorboard.c": "time stamps",
    "runtime/observe/page.c": "time stamp", "runtime/observe/run_log.c": "age of the newest line",
    "data/source/shard_load.c": "age of a file", "launch/targets/launch_local.c": "age of a file",
    "launch/comm_bench.c": "time stamp"}
SECOND_LIST = 4  # entries in a row, in table order or not, that make a list


def tracked_files(root):
    git = shutil.which("git")
    listed = git and subprocess.run([git, "-C", root, "ls-files", "-z", "--cached", "--others",
                                     "--exclude-standard"], capture_output=True)
    if listed and listed.returncode == 0:
        names = [n for n in listed.stdout.decode().split("\0") if n]
    else:  # an unpacked archive, or no git
        names = [os.path.relpath(os.path.join(d, f), root)
                 for d, _, files in os.walk(root) for f in files
                 if not os.path.relpath(d, root).startswith(("build", ".cache", ".git"))]
    return sorted(n for n in names if os.path.isfile(os.path.join(root, n)))


def module_of(path):
    parts = path.split("/")
    if parts[0] == "runtime" and len(parts) > 2:
        return parts[1]
    if parts[0] == "data" and len(parts) > 2:
        return "/".join(parts[:2])
    return parts[0] if len(parts) > 1 and parts[0] in LEVEL else None


def included_module(path, include):
    """The module an #include of `path` means: beside the file, from runtime/, or from the root."""
    first = include.split("/")[0]
    if "/" in include and first in ("runtime", "data"):
        return module_of(include)
    if "/" in include and first in LEVEL:
        return first
    beside = os.path.normpath(os.path.join(os.path.dirname(path), include))
    return module_of(beside)


def check_includes(path, text):
    mine = module_of(path)
    if mine is None:
        return
    if mine not in LEVEL:
        yield f"{path}: {mine} has no place in LEVELS"
        return
    for n, line in enumerate(text.splitlines(), 1):
        found = re.match(r'\s*#\s*include\s*"([^"]+)"', line)
        theirs = included_module(path, found.group(1)) if found else None
        if theirs not in LEVEL or theirs == mine:  # not ours, or told where it lies
            continue
        where = f"{path}:{n}: {mine} includes {found.group(1)}"
        if LEVEL[theirs] > LEVEL[mine]:
            yield f"{where}: points upward"
        elif LEVEL[theirs] == LEVEL[mine]:
            yield f"{where}: points sideways"
        elif theirs.split("/")[0] not in MAY_USE.get(mine.split("/")[0], set(LEVEL)) | {mine.split("/")[0]}:
            yield f"{where}: not among {', '.join(sorted(MAY_USE[mine.split('/')[0]]))}"


def check_unique_names(paths):
    seen = {}
    for path in paths:
        name = os.path.basename(path)
        if path.endswith(SOURCE + (".sh", ".py")) and name not in ("__init__.py", "run.sh"):
            if name in seen:
                yield f"{path}: the name is taken by {seen[name]}"
            seen[name] = path


def registry_entries(text):
    """macro name -> first arguments of its lines in a .def file"""
    entries = {}
    for macro, name in re.findall(r'^\s*([A-Z][A-Z_]*)\(\s*"?([A-Za-z0-9_.*]+)"?', text, re.M):
        entries.setdefault(macro, []).append(name)
    return entries


def without_comments(text):
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    return re.sub(r"//[^\n]*", " ", text)


# an entry as a string or as a PREFIX_entry constant; a run of them has only commas between
ENTRY = r'(?:"([\w.*]+)"|(?:DT_)?(?:OP|MODEL|CMD|KEY)_(\w+))'
RUN = re.compile(ENTRY + r"(?:\s*,\s*" + ENTRY + "){%d,}" % (SECOND_LIST - 1))


def runs_of(path, text):
    """(path, line, names) of each run of entries in a file"""
    text = without_comments(text)
    for found in RUN.finditer(text):
        names = [string or constant for string, constant in re.findall(ENTRY, found.group(0))]
        yield path, text[:found.start()].count("\n") + 1, names


def check_registry(def_path, def_text, runs):
    lower = {n.lower() for group in registry_entries(def_text).values() for n in group}
    if len(lower) < SECOND_LIST:
        return
    for path, line, names in runs:
        if all(n.lower() in lower for n in names):
            yield f"{path}: near line {line}: a second list of {def_path}: {', '.join(names)}"


def check_text(path, text):
    home = r"/(?:home|Users|root|work|workspace|mnt)/[A-Za-z0-9_]"
    for n, line in enumerate(text.splitlines(), 1):
        if re.search(r"(?<![\w.$}/])" + home, line):
            yield f"{path}:{n}: a path of one machine: {line.strip()[:80]}"
    if path.endswith((".c", ".cu")) and module_of(path) not in (None, "launch"):
        for n, line in enumerate(without_comments(text).splitlines(), 1):
            if re.search(r"(?<![\w.])exit\s*\(", line):
                yield f"{path}: only launch/ calls exit(): {line.strip()[:80]}"
    if path.endswith((".c", ".h", ".cu")) and module_of(path):
        for line in without_comments(text).splitlines():
            if re.search(r"(?<![\w.>])(popen|system)\s*\(", line):
                yield f"{path}: a command line for a shell: {line.strip()[:80]}"
            if re.search(r"(?<!sig)timed(_?wait|_?lock|_?join|rdlock|wrlock)", line):
                yield f"{path}: waits by the wall clock: {line.strip()[:80]}"
            if path not in WALL_CLOCK and re.search(r"CLOCK_REALTIME|TIME_UTC|gettimeofday|dt_clock_wall_s|"
                                                    r"(?<![\w.>])time\s*\((NULL|0|&)", line):
                yield f"{path}: reads the wall clock, and WALL_CLOCK has no reason: {line.strip()[:80]}"


def check_script(path, text):
    if not re.search(r"pipefail|/(expect|small_run)\.sh", text) or not re.match(r"#!.*\bbash", text): # which set it
        return
    for found in re.finditer(r"(?<!\|)\|[\s\\]*grep\s+-\w*q", text):
        n = text.count("\n", 0, found.start()) + 1
        yield f"{path}:{n}: grep -q behind a pipe ends before what writes into it: grep … >/dev/null"


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..")
    paths = tracked_files(root)
    texts = {}
    for path in paths:
        try:
            with open(os.path.join(root, path), encoding="utf-8") as f:
                texts[path] = f.read()
        except UnicodeDecodeError:
            pass  # golden tensors, images, fuzz corpora
    sources = [(p, t) for p, t in texts.items() if p.endswith(SOURCE)]
    wrong = list(check_unique_names(paths))
    for path, text in sources:
        wrong += check_includes(path, text)
    runs = [r for p, t in sources if not p.endswith(".def") and not p.startswith("tests/") for r in runs_of(p, t)]
    for path, text in sources:
        if path.endswith(".def"):
            wrong += check_registry(path, text, runs)
    for path, text in texts.items():
        if "/corpus_" not in path and not path.endswith("check_structure.py"):
            wrong += check_text(path, text)
            wrong += check_script(path, text)
    for line in wrong:
        print(line)
    print(f"{len(paths)} files, {len(sources)} of source, {len(wrong)} violations")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
