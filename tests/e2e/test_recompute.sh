#!/usr/bin/env bash
# train.recompute: the bits of a run are those without, dropout, stochastic depth, batch statistics and several ranks
# included; ResNet-18 takes 30 % less for its activations and ViT-B/16 half, at 1.35 times the work at most.
. "${SOURCE:?}/tests/small_run.sh" || exit
small_data "$work" 6 4
config=$(small_config "$work")
same() { # NAME WORD…: the weights of the run without and of those with
    local name=$1 how
    shift
    train run.name="$name" train.max_steps=4 "$@"
    for how in auto 1MiB "[.*]"; do
        train run.name="$name-$how" train.max_steps=4 "$@" "train.recompute=$how"
        [ "$(hash "$work/runs/$name")" = "$(hash "$work/runs/$name-$how")" ] || fail "$name: other bits with $how"
    done
}
same fusion model.fusion=cross_attention
one=(train.global_batch=8 data.view=null data.fields.iris=null data.fields.fingerprint.size=32 data.augment=null model.fusion= model.encoders=)
same resnet "${one[@]}" model.name=resnet model.depth=18 model.width=8 model.drop_path=0.3
same vit "${one[@]}" model.name=vit model.dim=32 model.heads=4 model.blocks=4 model.patch=8 model.drop_path=0.3
# what they are the same as is not everything: fewer bytes, more kernels
plan() { "$DTRAIN" check "$config" "$@" 2>"$work/log" | sed -n 's/^plan: \([0-9]*\) kernels.*/\1/p'; }
vit=("${one[@]}" model.name=vit model.dim=32 model.heads=4 model.blocks=4 model.patch=8)
none=$(plan "${vit[@]}") auto=$(plan "${vit[@]}" train.recompute=auto)
named=$(plan "${vit[@]}" 'train.recompute=encoder.layers.encoder_layer_[0-2].*')
[ "$none" -lt "$named" ] && [ "$none" -lt "$auto" ] || fail "kernels: $none, named $named, auto $auto"

# -- the figures that docs/reference/training.md gives
check() { # LEAST-SAVED WORD…
    local least=$1 before after compute
    shift
    cat >"$work/large.yaml" <<YAML
run: {name: large}
device: {kind: cpu, threads: 1}
data: {path: none, fields: {image: {kind: image, size: 224}, label: {kind: class, classes: 1000}}}
model: {name: resnet}
train: {global_batch: 2, micro_batch: 2, precision: fp32}
YAML
    of() { sed -n 's/^  activations *\([0-9.]*\) MiB/\1/p' "$1"; }
    "$DTRAIN" check "$work/large.yaml" "$@" >"$work/before" 2>"$work/log" || fail "check $*"
    "$DTRAIN" check "$work/large.yaml" "$@" train.recompute=auto >"$work/after" 2>"$work/log" || fail "check $*"
    before=$(of "$work/before") after=$(of "$work/after")
    compute=$(sed -n 's/^recompute: .* \([0-9.]*\) times the work/\1/p' "$work/after")
    awk "BEGIN { exit !($after <= (1 - $least) * $before && $compute <= 1.35) }" ||
        fail "$*: $after MiB instead of $before, $compute times the work"
}
check 0.3 model.depth=18
check 0.5 model.name=vit

# -- what cannot be
exits 0 'train.recompute: 10KiB: the activations of a micro-batch take about .* at least' "$DTRAIN" check "$config" train.recompute=10KiB
exits 0 '' "$DTRAIN" check "$config" train.recompute=1GiB
! grep "train.recompute" "$work/log" || fail "a budget that is met is warned of"
refused "no layer of the network is called 'nothing'" 'train.recompute=[nothing]'
refused 'small.yaml\|command line' 'train.recompute=[a(]'
if have_mpi; then
    train_on 2 run.name=two train.max_steps=4 model.fusion=cross_attention \
        run.reproducible=elastic train.recompute=auto
    train run.name=one train.max_steps=4 model.fusion=cross_attention run.reproducible=elastic
    [ "$(hash "$work/runs/one")" = "$(hash "$work/runs/two")" ] || fail "other bits on two ranks"
fi
echo passed
