#!/usr/bin/env bash
# report.html as runs write it: the evaluation report of classes and of numbers is what their metrics are of, with
# pictures of the worst samples; a run that stops and goes on; weights are those of a run without it.
. "${SOURCE:?}/tests/small_run.sh" || exit
"$python" -c 'import PIL' 2>/dev/null || { echo "skipped: no Pillow"; exit 77; }

small_data "$work"
config=$(small_config "$work")
train train.max_steps=20 eval.every="10 steps" metrics.sinks=[jsonl] run.name=plain
refused 'metrics.sinks needs prometheus too' "metrics.textfile=$work"
exits 75 '' "$DTRAIN" "$config" train.max_steps=20 eval.every="10 steps" metrics.sinks=[jsonl,report] run.stop_at=12
grep -q 'Stopped; the same command resumes' "$work/runs/small/report.html" || fail "the page does not say that it stopped"
train train.max_steps=20 eval.every="10 steps" metrics.sinks=[jsonl,report] 'eval.metrics=[accuracy,roc_auc,loss]'
[ "$(hash "$work/runs/plain")" = "$(hash "$work/runs/small")" ] || fail "a report changes weights"
py check_classes "$work/runs/small"
py check_given "$work/runs/small"
share=$(sed -n 's/.*goodput \([0-9.]*\)%: .*/\1 %/p' "$work/runs/small/log" | tail -1)
grep -qF "<b>$share</b><small>goodput" "$work/runs/small/report.html" || fail "the page's goodput is not the summary's, $share"

# where the time of a step goes, without a trace: in metrics.jsonl, the summary and the page
summary=$(sed -n 's/.*time in a step: \(data .*(forward .*, backward .*), communication .*(optimizer .*)\)$/\1/p' "$work/runs/small/log" | tail -1)
[ -n "$summary" ] || fail "no shares of forward, backward and optimizer: $(grep 'time in a step' "$work/runs/small/log")"
py check_shares "$work/runs/small"
"$DTRAIN" data bench "$config" --seconds 1 >"$work/out" 2>"$work/log" && "$DTRAIN" data bench "$config" --seconds 1 --json >"$work/bench" 2>"$work/log" ||
    fail "data bench: exit $?"
grep -qE '^batch +[0-9]+ samples every [0-9.]+ ms, max [0-9.]+ ms; waited for [0-9.]+ ms, max [0-9.]+ ms$' "$work/out" &&
    grep -qE '^batches +\|.*\| mean [0-9]+ %, max [0-9]+ % of [0-9]+$' "$work/out" || fail "data bench: $(cat "$work/out")"
awk '/^pipeline/ { rate = $2 }
    match($0, /predicted [0-9]+/) { r = substr($0, RSTART + 10) / rate - $(NF - 1); if (r < -0.01 || r > 0.01) exit 1 }' "$work/out" ||
    fail "the change is of another rate: $(tail -4 "$work/out")"
py check_bench "$work/bench"

# beside other programs on its only core
core=$(taskset -cp $$ | sed 's/.*: \([0-9]*\).*/\1/')
for i in 1 2; do taskset -c "$core" "$python" -c 'while True: pass' & done
exits 0 'the machine is busy: this process got 0.[0-9] of 1 core; limited by' \
    taskset -c "$core" "$DTRAIN" "$config" train.max_steps=100 metrics.sinks=[jsonl,report] run.name=beside
kill $(jobs -p)
grep -q 'the machine is busy: this process got 0.[0-9] of 1 core' "$work/runs/beside/report.html" || fail "the page does not say so"

py make_squares "$work/set.tar"
new_config numbers <<YAML
    image: {kind: image, source: bmp, channels: 3, size: [24, 24]}
    where: {kind: vector, size: [2], normalize: {mean: [10], std: [5]}}
  split: {unit: record, val: 0.2, test: 0.2}
model: {name: resnet, depth: 10, width: 4}
train: {max_steps: 8, epochs: 9, global_batch: 8, micro_batch: 4, precision: fp32, loss: mse}
eval: {metrics: [mae]}
YAML
train 'metrics.sinks=[jsonl,report]'
py check_numbers "$work/runs/numbers"

py make_signals "$work/set.tar"
new_config signals <<YAML
    series: {kind: vector, source: txt, size: [24]}
    sound: {kind: audio, source: wav, rate: 8000, seconds: 0.25, n_fft: 256, hop: 80, n_mels: 24}
    wave: {kind: audio, source: wav, rate: 8000, seconds: 0.25, features: waveform}
    sky: {kind: image, source: npy, channels: 4, dtype: f32, size: [16, 16]}
    label: {kind: class, source: cls, classes: 2}
  split: {unit: record, val: 0.2, test: 0.2}
model: {name: fusion, encoders: {wave: {name: cnn1d}}}
train: {max_steps: 2, epochs: 9, global_batch: 8, micro_batch: 8, precision: fp32, targets: {label: {loss: cross_entropy}}}
YAML
train 'metrics.sinks=[jsonl,report]'
py check_signals "$work/runs/signals"

# of many classes the curves are those of the worst
py make_classes "$work/set.tar" 40
new_config classes <<YAML
    image: {kind: image, source: bmp, channels: 3, size: [24, 24]}
    label: {kind: class, source: cls, classes: 40}
  split: {unit: record, stratify: label, val: 0.5, test: 0}
model: {name: resnet, depth: 10, width: 4}
train: {max_steps: 12, epochs: 9, global_batch: 16, micro_batch: 16, precision: fp32, optimizer: {lr: 0.01}}
YAML
train 'metrics.sinks=[jsonl,report]'
py check_many "$work/runs/classes"
