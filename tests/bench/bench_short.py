"""SHORT in the environment makes a bench do little of everything and measure nothing: that it still runs is what
tests/bench/test_benches.sh wants to know. Peers that are not installed are left out of a short run."""
import importlib.util
import os
import re
import subprocess
import sys

SHORT = "SHORT" in os.environ
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def most(n, few):
    """n, or few in a short run where that is less."""
    return min(n, few) if SHORT else n


def runs_peers(*modules):
    """False in a short run that lacks a module, and says so. A run that measures wants its peers: it fails where it imports them."""
    missing = [m for m in modules if importlib.util.find_spec(m) is None]
    if SHORT and missing:
        print(f"skipped: peers ({', '.join(missing)} not installed)", file=sys.stderr)
    return not (SHORT and missing)


def machine(build):
    """The CPU in words, with the ISA that dtrain uses (ONEDNN_MAX_CPU_ISA), and whether that has bf16."""
    info = subprocess.run([os.path.join(ROOT, build, "dtrain"), "info"], check=True, capture_output=True, text=True).stdout
    isa, bf16 = re.search(r"^backend  cpu (\w+),.*; (.*)$", info, re.M).groups()
    model = re.search(r"^model name\s*: (.*)$", open("/proc/cpuinfo").read(), re.M)
    return f"{model.group(1) if model else 'unknown CPU'}, {isa}", bf16 == "bf16 native"
