#!/usr/bin/env bash
# What bad records cost: one record in a hundred of a set of photographs is damaged, and an epoch under
# data.on_error: skip is compared with one of the whole set, in turn. Prints a JSON line: medians of samples/s
# and of CPU time a sample, their ratios, and how many damaged records there are and were listed.
#   tests/bench/bench_skip.sh [BUILD [ROUNDS]]
set -euo pipefail
build=${1:-build} rounds=${2:-8} photos=1000
[ -z "${SHORT:-}" ] || rounds=1 photos=100 # see bench_short.h
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$build/dtrain" synth photos "$work/raw" --n $photos >/dev/null 2>&1
for set in whole bad; do "$build/dtrain" pack "$work/raw" "$work/$set.tar" >/dev/null 2>&1; done
python3 - "$work/bad.tar" <<'PY'
import sys, tarfile
path = sys.argv[1]
images = [m for m in tarfile.open(path) if m.name.endswith(".jpg")]
with open(path, "r+b") as f:
    for m in images[50::100]:
        f.seek(m.offset_data + m.size // 2)
        b = f.read(1)
        f.seek(-1, 1)
        f.write(bytes([b[0] ^ 1]))
PY
for set in whole bad; do
    cat >"$work/$set.yaml" <<YAML
run: {name: bench}
data:
  path: $work/$set.tar
  fields: {image: {kind: image, size: [224, 224]}, label: {kind: class}}
  augment: {image: [random_resized_crop, {flip: horizontal}]}
  on_error: skip
model: {name: resnet}
train: {global_batch: 32, micro_batch: 8}
YAML
done
for ((i = 0; i < rounds; i++)); do
    order=(whole bad whole) # who comes second differs from round to round
    for set in "${order[@]:i % 2:2}"; do "$build/bench_loader" "$work/$set.yaml" 2>"$work/$set.log" >>"$work/$set.out"; done
done
# each one is listed in the directory of a run
sed -e "s|name: bench|name: bench, dir: $work/runs|; s|224, 224|32, 32|; s|resnet}|resnet, depth: 10, width: 8}|; s|micro_batch: 8|micro_batch: 8, epochs: 1|; /augment/d" "$work/bad.yaml" >"$work/run.yaml"
"$build/dtrain" "$work/run.yaml" >/dev/null 2>&1
python3 - "$work" $photos <<'PY'
import json, statistics, sys
photos = int(sys.argv[2])
def median(name, key):
    return statistics.median(json.loads(l)[key] for l in open(f"{sys.argv[1]}/{name}.out"))
r = {k: {n: median(n, k) for n in ("whole", "bad")} for k in ("samples_per_s", "cpu_us_per_sample")}
listed = len({json.loads(l)["record"] for l in open(f"{sys.argv[1]}/runs/bench/skipped.rank0")})
print(json.dumps({**r, "rate_ratio": round(r["samples_per_s"]["bad"] / r["samples_per_s"]["whole"], 4),
                  "cpu_ratio": round(r["cpu_us_per_sample"]["bad"] / r["cpu_us_per_sample"]["whole"], 4),
                  "damaged": photos // 100, "listed": listed}))
PY
