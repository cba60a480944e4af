#!/usr/bin/env bash
# train.ema: what timm's ModelEmaV3 gives of the same weights; it is what is evaluated; training does not see it; and it
# has the same bits after a stop, and on two ranks.
. "${SOURCE:?}/tests/small_run.sh" || exit
small_data "$work" 6 4
config=$(small_config "$work")
# fusion has batch norms, so there are running statistics to average, too
keys=(run.reproducible=elastic train.max_steps=8 eval.every='4 steps' eval.metrics='[loss]')
all=(checkpoint.every='1 step' checkpoint.keep=100)
of() { echo "$work/runs/$1/checkpoints/step-$(printf %08d "$2")/$3.safetensors"; }

train run.name=plain "${keys[@]}" "${all[@]}"
train run.name=ema "${keys[@]}" "${all[@]}" train.ema=0.75
py check "$work/runs" || fail "not the average of the weights"

# -- the validation of the run is that of the average; --raw is the other
"$DTRAIN" eval "$work/runs/ema" --which latest --split val >"$work/average" 2>"$work/log" || fail "eval"
"$DTRAIN" eval "$work/runs/ema" --which latest --split val --raw >"$work/trained" 2>"$work/log" || fail "eval --raw"
"$DTRAIN" eval "$work/runs/plain" --which latest --split val >"$work/plain" 2>"$work/log" || fail "eval"
loss() { sed 's/.*"loss":\([^,}]*\).*/\1/' "$1"; }
[ "$(loss "$work/average")" != "$(loss "$work/trained")" ] || fail "--raw gives the average"
[ "$(loss "$work/trained")" = "$(loss "$work/plain")" ] || fail "--raw is not the trained weights"
grep '"split":"val"' "$work/out" | grep "\"loss\":$(loss "$work/average")" >/dev/null || fail "the run evaluated other weights"
exits 2 train.ema "$DTRAIN" eval "$work/runs/plain" --raw
"$DTRAIN" predict "$work/runs/ema" "$work/small.lmdb" -o "$work/a.csv" 2>"$work/log" || fail "predict"
"$DTRAIN" predict "$work/runs/ema" "$work/small.lmdb" --raw -o "$work/b.csv" 2>"$work/log" || fail "predict --raw"
! cmp -s "$work/a.csv" "$work/b.csv" || fail "predict --raw gives the average"

# -- stopped and resumed, and on two ranks
exits 75 '' "$DTRAIN" "$config" run.name=stopped "${keys[@]}" train.ema=0.75 run.stop_at=5
train run.name=stopped "${keys[@]}" train.ema=0.75
for file in model raw optimizer; do
    cmp "$(of ema 8 $file)" "$(of stopped 8 $file)" || fail "other $file after a resume"
done
if have_mpi; then
    train_on 2 run.name=two "${keys[@]}" train.ema=0.75
    cmp "$(of ema 8 model)" "$(of two 8 model)" || fail "two ranks have another average"
fi
echo passed
