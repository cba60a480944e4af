#!/usr/bin/env bash
# Training curves with Winograd and without: ResNet-18 on invented photographs and the fusion network, three seeds
# each. Prints the mean loss of the last quarter of the steps of each run, and for both settings mean and spread (largest
# less smallest) over the seeds. What Winograd rounds away must be less than what another seed changes.
#
#   tests/bench/bench_winograd.sh [build [steps [fp32|bf16]]]
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:-build} steps=${2:-${SHORT:+4}} precision=${3:-fp32}
steps=${steps:-80}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME=$work/cache
"$build/dtrain" synth photos "$work/photos" --n 300 >/dev/null
"$build/dtrain" pack "$work/photos" "$work/photos.lmdb" >/dev/null
"$build/dtrain" synth biometric "$work/biometric" --subjects 20 >/dev/null
"$build/dtrain" pack "$work/biometric" "$work/biometric.lmdb" >/dev/null
seeds=${SHORT:+1}
for net in resnet18 fusion; do
    case $net in
    resnet18) keys=(configs/photos.yaml data.path="$work/photos.lmdb" data.fields.class.classes=10 model.depth=18 model.width=32
                    data.fields.image.size='[64, 64]' train.global_batch=8 train.micro_batch=4 train.optimizer.lr=0.02) ;;
    fusion) keys=(configs/fusion.yaml data.path="$work/biometric.lmdb" data.fields.subject.classes=20
                  data.fields.fingerprint.size='[48, 48]' data.fields.iris.size='[60, 80]' train.global_batch=8 train.micro_batch=4) ;;
    esac
    for seed in ${seeds:-1 2 3}; do
        for winograd in auto off; do
            "$build/dtrain" "${keys[@]}" run.dir="$work/runs" run.name="$net-$seed-$winograd" run.seed="$seed" device.winograd=$winograd \
                train.precision=$precision train.epochs=10000 train.max_steps="$steps" eval.every='1000000 steps' \
                checkpoint.every='1000000 steps' data.cache=ram data.cache_form=decoded >/dev/null 2>"$work/log" || { cat "$work/log"; exit 1; }
        done
    done
done
python3 - "$work/runs" <<'PY'
import collections, glob, json, os, sys

runs = collections.defaultdict(dict)
for path in sorted(glob.glob(sys.argv[1] + "/*/metrics.jsonl")):
    net, seed, winograd = os.path.basename(os.path.dirname(path)).split("-")
    loss = [r["loss"] for r in map(json.loads, open(path)) if r["kind"] == "step"]
    tail = loss[-max(1, len(loss) // 4):]
    runs[net, winograd][seed] = sum(tail) / len(tail)
print("| network | Winograd | loss of each seed | mean | spread |\n|---|---|---|---|---|")
for (net, winograd), by_seed in sorted(runs.items()):
    x = list(by_seed.values())
    print(f"| {net} | {winograd} | {', '.join(f'{v:.4f}' for v in x)} | {sum(x) / len(x):.4f} | {max(x) - min(x):.4f} |")
PY
