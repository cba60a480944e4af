#!/usr/bin/env bash
# train.optimizer.name: adafactor: trains, keeps rows and columns instead of elements, and has the same bits after a stop,
# on two threads and on two ranks. Its steps are those of torch in tests/golden.
. "${SOURCE:?}/tests/small_run.sh" || exit
small_data "$work" 6 4
config=$(small_config "$work")
keys=(run.reproducible=elastic train.max_steps=12 train.optimizer.name=adafactor train.optimizer.lr=0.02 train.clip_norm=null
      train.clip_value=1 train.ema=0.9)
optimizer() { wc -c <"$work/runs/$1/checkpoints/step-00000012/optimizer.safetensors"; }

train run.name=whole "${keys[@]}"
python3 - "$work/runs/whole/metrics.jsonl" <<'PY' || fail "the loss did not fall"
import json, sys
loss = [r["loss"] for r in map(json.loads, open(sys.argv[1])) if r["kind"] == "step"]
sys.exit(not loss[-1] < 0.8 * loss[0])
PY
grep -aq 'variance_column' "$work"/runs/whole/checkpoints/step-00000012/optimizer.safetensors || fail "no columns in the checkpoint"
train run.name=adamw run.reproducible=elastic train.max_steps=12 train.optimizer.lr=1e-30
[ $((10 * $(optimizer whole))) -lt "$(optimizer adamw)" ] || fail "$(optimizer whole) bytes beside AdamW's $(optimizer adamw)"
code=0
"$DTRAIN" "$config" run.name=stopped "${keys[@]}" run.stop_at=5 >/dev/null 2>"$work/log" || code=$?
[ $code = 75 ] || fail "run.stop_at: exit $code"
train run.name=stopped "${keys[@]}"
train run.name=threads "${keys[@]}" device.threads=2
if command -v mpirun >/dev/null && [ -e "$BUILD/dtrain_mpi.so" ]; then
    "${ranks[@]}" 2 "$DTRAIN" "$config" run.name=two "${keys[@]}" >/dev/null 2>"$work/log" || fail "2 ranks"
fi
for run in stopped threads two; do
    [ ! -d "$work/runs/$run" ] || [ "$(hash "$work/runs/$run")" = "$(hash "$work/runs/whole")" ] || fail "$run: other weights"
done
code=0
"$DTRAIN" "$config" run.name=bad "${keys[@]}" train.optimizer.beta1=0.9 >/dev/null 2>"$work/log" || code=$?
[ $code = 2 ] && grep -q 'beta1' "$work/log" || fail "a key of others: exit $code"
echo passed
