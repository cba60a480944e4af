# Source this for ResNet-18 on hosts of network namespaces: $work/net.yaml on 96 photographs, $steps steps of $batch
# samples of $side pixels, $micro at a time.
. "$SOURCE/tests/small_run.sh" || exit
. "$SOURCE/tests/cluster/hosts.sh"
side=${SIDE:-224}
"$DTRAIN" synth photos "$work/raw" --n 96 2>/dev/null
"$DTRAIN" pack "$work/raw" "$work/photos.lmdb" >/dev/null 2>&1
cat >"$work/net.yaml" <<YAML
run: {name: bench, dir: $work/own}
device: {kind: cpu}
data:
  path: $work/photos.lmdb
  fields:
    image: {kind: image, channels: 3, size: [$side, $side], normalize: imagenet, source: jpg}
    label: {kind: class, source: label}
  split: {val: 0}
model: {name: resnet, depth: 18}
train: {epochs: 1000, max_steps: $steps, global_batch: $batch, micro_batch: $micro, precision: fp32,
        optimizer: {name: sgd, lr: 0.01}}
checkpoint: {every: 1000 steps}
metrics: {sinks: [jsonl]}
YAML
median() { sort -g | awk '{v[NR] = $1} END {printf "%.3f", v[int((NR + 1) / 2)]}'; }
