#!/usr/bin/env bash
# dtrain quantize: the new run predicts what the run predicts, with scales of each channel; layers above the tolerance stay
# fp32 and are told; eval and predict take it, on CPUs without VNNI too; what is wrong is one line.
. "${SOURCE:?}/tests/small_run.sh" || exit
small_data "$work" 6 6
config=$(small_config "$work" 6 large)
runs=$work/runs
train run.name=a train.max_steps=60
quantize() {
    "$DTRAIN" quantize "$runs/a" "$work/small.lmdb" "$@" >"$work/report" 2>"$work/log" || fail "quantize $*"
    py check_warning "$work/report" "$work/log" || fail "the warning that int8 is slower"
}
value() { sed "s/.*\"$1\":\([^,}]*\).*/\1/"; }

# -- each way to calibrate; all layers are in int8
for how in mse minmax percentile; do
    quantize -o "$runs/$how" --calibrate $how
    grep -q "^14 of 14 layers in int8; scales: $how" "$work/report" || fail "$how: $(cat "$work/report")"
    grep -q '^samples/s .* times' "$work/report" || fail "no speed"
    grep -q '^accuracy' "$work/report" || fail "no accuracy"
    grep -q "runs/$how: a run of 14 layers in [0-9.]* s" "$work/log" || fail "no closing line: $(cat "$work/log")"
done
py check_scales "$runs" || fail "the scales are not those of the weights"

# -- eval and predict, as of any run; and with the ISA of an older CPU
eval_of() { "$DTRAIN" eval "$runs/$1" --set "$work/small.lmdb" "${@:2}" 2>"$work/log" || fail "eval $1"; }
eval_of a >"$work/fp32"
eval_of mse >"$work/int8"
ONEDNN_MAX_CPU_ISA=AVX2 eval_of mse >"$work/avx2"
eval_of mse model.int8=false >"$work/off"
py check_results "$work" || fail "int8 is too far from fp32"
"$DTRAIN" predict "$runs/mse" "$work/small.lmdb" -o "$work/int8.csv" 2>"$work/log" || fail "predict"
"$DTRAIN" predict "$runs/a" "$work/small.lmdb" -o "$work/fp32.csv" 2>"$work/log" || fail "predict"
[ "$(wc -l <"$work/int8.csv")" = "$(wc -l <"$work/fp32.csv")" ] || fail "other rows"
! cmp -s "$work/int8.csv" "$work/fp32.csv" || fail "predict computes in fp32"

# -- the tolerance: below all errors nothing is quantised; the layers are told, with their errors
quantize -o "$runs/none" --tolerance 0
grep -q '^0 of 14 layers in int8' "$work/report" || fail "tolerance 0: $(cat "$work/report")"
[ "$(sed -n '/^kept in fp32/,$p' "$work/report" | grep -c '^  ')" = 14 ] || fail "not each kept layer is told"
eval_of none >"$work/none"
[ "$(value loss <"$work/none")" = "$(value loss <"$work/fp32")" ] || fail "no layer is quantised, and the loss is another"
middle=$(sed -n 's/^  [^ ]* *\([0-9.e-]*\)$/\1/p' "$work/report" | sort -g | sed -n 7p)
quantize -o "$runs/some" --tolerance "$middle"
grep -qE '^([1-9]|1[0-3]) of 14 layers in int8' "$work/report" || fail "tolerance $middle: $(cat "$work/report")"
eval_of some >"$work/some"

"$DTRAIN" predict "$runs/mse" "$work/small.lmdb" --mc 3 -o "$work/mc.csv" 2>"$work/log" || fail "predict --mc: $(cat "$work/log")"

# -- a split of the run's own data instead of a set
"$DTRAIN" quantize "$runs/a" --split val -o "$runs/own" >"$work/report" 2>"$work/log" || fail "quantize --split val"
n=$("$DTRAIN" eval "$runs/a" --split val 2>"$work/log" | value samples)
grep -q "on $n samples" "$work/report" || fail "not the $n samples of val: $(cat "$work/report")"
cmp "$runs/mse/config.yaml" "$runs/own/config.yaml" || fail "quantize --split val: another config"

# -- what is wrong
wrong() { # CODE TEXT WORD …
    local code=0
    "$DTRAIN" "${@:3}" >"$work/out" 2>"$work/err" || code=$?
    [ $code = "$1" ] && grep -qF -- "$2" "$work/err" && [ "$(grep -c . "$work/err")" = 1 ] ||
        fail "${*:3}: exit $code, not $1: $(cat "$work/err")"
}
new=(-o "$runs/new")
wrong 2 "does not exist" quantize "$runs/b" "$work/small.lmdb" "${new[@]}"
wrong 2 "quantised already" quantize "$runs/mse" "$work/small.lmdb" "${new[@]}"
wrong 2 "-o RUN.int8" quantize "$runs/a" "$work/small.lmdb"
wrong 2 "take one of both" quantize "$runs/a" "$work/small.lmdb" --split val "${new[@]}"
wrong 2 "is there already" quantize "$runs/a" "$work/small.lmdb" -o "$runs/mse"
wrong 2 "not one of mse|minmax|percentile" quantize "$runs/a" "$work/small.lmdb" "${new[@]}" --calibrate max
wrong 2 "--tolerance" quantize "$runs/a" "$work/small.lmdb" "${new[@]}" --tolerance much
wrong 2 "--percentile is for" quantize "$runs/a" "$work/small.lmdb" "${new[@]}" --percentile 99
wrong 2 "device.kind" quantize "$runs/a" "$work/small.lmdb" "${new[@]}" device.kind=cuda
if has_bf16 slow; then
    wrong 2 "model.int8" eval "$runs/mse" train.precision=bf16
fi
wrong 2 "dtrain quantize" "$config" run.name=c model.int8=true
"$DTRAIN" synth photos "$work/raw-photos" --n 8 >/dev/null 2>&1
"$DTRAIN" pack "$work/raw-photos" "$work/photos.lmdb" >/dev/null 2>&1
wrong 2 "this run does not know" quantize "$runs/a" "$work/photos.lmdb" "${new[@]}"
[ ! -e "$runs/new" ] || fail "a run that failed is left"
cp -r "$runs/mse" "$runs/damaged"
sed -i 's/"scale":[0-9.e-]*/"scale":0/' "$runs/damaged/int8.json"
wrong 4 "int8.json" eval "$runs/damaged"
rm "$runs/damaged/int8.json"
wrong 4 "int8.json" eval "$runs/damaged"
echo passed
