#!/usr/bin/env bash
# Every file of configs/ trains: two steps, small, on data made for it here, evaluation and test included. A new file
# needs a line below.
. "${SOURCE:?}/tests/small_run.sh" || exit
make_set() { # KIND N OUT [WORD of pack …]
    local kind=$1 n=$2 out=$3
    shift 3
    "$DTRAIN" synth "$kind" "$work/$kind" --n "$n" >/dev/null 2>"$work/log" || fail "synth $kind"
    "$DTRAIN" pack "$work/$kind$sub" "$work/$out" "$@" >/dev/null 2>"$work/log" || fail "pack $kind"
}
sub='' make_set lens 80 'lens-{000000..000003}.tar' --pattern '{label}/{id}.fits' --join "$work/lens/lens.csv"
sub='' make_set acoustic 80 acoustic.lmdb --pattern 'leak{leak}_pipe{pipe}_{hz}_{n}.wav'
sub='' make_set photos 100 'photos-{000000..000003}.tar' --resize 40
sub=/images make_set pose 60 'pose-{000000..000003}.tar' --join "$work/pose/pose.csv"
sub='' make_set biometric 6 biometric.lmdb
for part in train test; do # MNIST's form: a folder for each digit
    "$DTRAIN" pack "$work/photos" "$work/mnist-$part.lmdb" --resize 28 --encode png >/dev/null 2>"$work/log" || fail "pack $part"
done

for config in "$SOURCE"/configs/*.yaml; do
    name=$(basename "$config" .yaml)
    words=() again=()
    case $name in
    lens_multiscale) words=(model.width=8 data.path="$work/lens-{000000..000003}.tar") again=('model.scales=[24, 33, 40]') ;;
    lens_vit) words=(data.path="$work/lens-{000000..000003}.tar") ;;
    lens_*) words=(model.width=8 data.path="$work/lens-{000000..000003}.tar") ;;
    acoustic) words=(data.path="$work/acoustic.lmdb") again=(model.name=cnn1d model.depth= model.width=8
        data.fields.sound.features=waveform 'data.augment.sound=[{noise: [10, 50]}, {gain: 6}]') ;;
    photos) words=(model.width=8 data.path="$work/photos-{000000..000003}.tar" 'data.fields.image.size=[24, 32]') ;;
    pose) words=(model.width=8 data.path="$work/pose-{000000..000003}.tar" data.fields.image.size=32) ;;
    mnist) words=(data.path="[$work/mnist-train.lmdb, $work/mnist-test.lmdb]") ;;
    fusion) words=(data.path="$work/biometric.lmdb" data.fields.subject.classes=6 'data.fields.fingerprint.size=[26, 24]'
        'data.fields.iris.size=[24, 32]') again=(model.fusion=cross_attention) ;;
    resnet50 | vit) words=(data.path="$work/photos-{000000..000003}.tar" 'data.fields.image={size: [32, 32], short_side: 36}'
        data.fields.class.classes=10 data.split.val=0.2)
        [ $name = vit ] && words+=('model={patch: 8, dim: 48, heads: 3, blocks: 2}') || words+=(model.width=8) ;;
    *) fail "$name.yaml has no line in this test" ;;
    esac
    [[ $name == lens_accelerated ]] || words+=(train.micro_batch=4)
    for round in 1 2; do
        [ $round = 2 ] && [ ${#again[@]} = 0 ] && continue
        [ $round = 2 ] && words+=("${again[@]}" run.name="$name-2")
        train "${words[@]}" run.dir="$work/runs" train.global_batch=8 train.max_steps=2 device.threads=1 train.precision=fp32 \
            'metrics.sinks=[jsonl]'
        grep -q '"split": *"\(test\|val\)"' "$work/out" || fail "$name: no evaluation: $(cat "$work/out")"
    done
done
echo passed
