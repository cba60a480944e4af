# Source this in script tests: a small fusion job that trains in seconds. Gives $work (a temporary
# directory, removed at exit), small_data DIR (makes the data set), small_config DIR (prints the path of
# a config on it), mpi NP COMMAND … and hash RUN (of the last checkpoint's weights).
set -euo pipefail
. "$SOURCE/launch/mpi_env.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_WAIT_POLICY=passive

small_data() {
    "$DTRAIN" synth biometric "$1/raw" --subjects 6 --impressions 5 2>/dev/null
    "$DTRAIN" pack "$1/raw" "$1/small.lmdb" >/dev/null 2>&1
}

small_config() {
    cat >"$1/small.yaml" <<YAML
run: {name: small, dir: $1/runs, seed: 5}
device: {kind: cpu, threads: 1}
data:
  path: $1/small.lmdb
  view: {pairs: {fields: [fingerprint, iris], within: subject}}
  fields:
    fingerprint: {kind: image, channels: 1, size: [26, 24], normalize: {mean: [0.5], std: [0.25]}}
    iris:        {kind: image, channels: 3, size: [24, 32], normalize: imagenet}
    subject:     {kind: class, classes: 6}
  split: {unit: record, stratify: subject, val: 0.2, test: 0.2}
  augment: {fingerprint: [{shift: 0.05}], iris: [{flip: horizontal}]}
model: {name: fusion, width: 16}
train:
  epochs: 100
  max_steps: 40
  global_batch: 16
  micro_batch: 2
  precision: fp32
  optimizer: {name: adamw, lr: 1.0e-3, weight_decay: 0.01}
  schedule: {name: cosine, warmup: 5%}
  clip_norm: 1.0
eval: {every: 1000000 steps}
checkpoint: {every: 1000000 steps, keep: 3}
metrics: {every: 10 steps, sinks: [terminal, jsonl]}
YAML
    echo "$1/small.yaml"
}

hash() { # RUN directory: hash of the newest checkpoint's weights
    local newest
    newest=$(ls -d "$1"/checkpoints/step-* | sort | tail -1)
    sha256sum <"$newest/model.safetensors" | cut -c1-16
}
