"""Functions of test_benches.sh: what it trains on, and checks of what it wrote."""
import re


def commands(page):
    text = open(page).read()
    blocks = re.findall(r"^```[a-z]*\n(.*?)^```", text, re.M | re.S)
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))
    lines = [line for block in blocks for line in block.splitlines()] + spans
    command = re.compile(r"((?:[A-Z_]+=\S+ )*(?:python3 )?(?:build/bench_\w+|build/dtrain data bench|"
                         r"tests/bench/bench_\w+\.(?:py|sh))(?: \S+)*)")
    seen = {}
    for line in lines:
        line = re.split(r"  |\s#", line.strip())[0]
        m = command.fullmatch(line)
        if m:
            # other numbers are the same short run
            seen.setdefault(re.sub(r"^(?:[A-Z_]+=\S+ )+|python3 |--[a-z]+ \d+|\d+", "", m.group(1)).rstrip(), m.group(1))
    print("\n".join(seen.values()))
