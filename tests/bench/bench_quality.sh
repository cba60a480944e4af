#!/usr/bin/env bash
# What the shipped configs reach on real data, and on folds of invented data, against what docs/ states. Of DATA come three
# tars: fsdd.tar (spoken digits of four speakers), mnist_png.tar (10,000 of MNIST as PNG, the last 200 of each digit moved
# to a test folder), sign_digits.tar (photographs of hands). A line for each; fails if one falls short.
#   tests/bench/bench_quality.sh [BUILD [DATA [key=value …]]]
#   ONLY='digits signs' tests/bench/bench_quality.sh      some of: digits, signs, acoustic, speakers, folds
set -euo pipefail
build=$(realpath "${1:-build}") data=$(realpath -m "${2:-../shared/data}")
shift $(($# < 2 ? $# : 2))
configs=$(cd "$(dirname "$0")/../../configs" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
failed=0 few=2000 people=20 n_folds=5 more=("$@")
[ -z "${SHORT:-}" ] || few=100 people=8 n_folds=2 more+=(train.max_steps=2) # see bench_short.h

dtrain() { "$build/dtrain" "$@" 2>>log || { tail -5 log; exit 1; }; }
wanted() { # work, tar that it needs
    [[ " ${ONLY:-digits signs acoustic speakers folds} " = *" $1 "* ]] || return 1
    [ $# = 1 ] || [ -e "$data/$2" ] || { echo "$1: skipped: no $data/$2"; return 1; }
}
train() { # config, set, key=value …
    local config=$1 set=$2
    shift 2
    dtrain "$configs/$config.yaml" data.path="$set" run.dir=runs ${more[@]+"${more[@]}"} "$@" >out
}
judge() { # name, metric, awk condition on it: of the best checkpoint on the test part
    local value
    value=$(grep -o "\"$2\": *[-0-9.e]*" out | tail -1 | sed 's/.*: *//')
    if [ -n "$value" ] && [ -n "${SHORT:-}" ]; then
        echo "$1: $2 $value, not judged"
    elif [ -n "$value" ] && awk -v x="$value" "BEGIN { exit !($3) }"; then
        echo "$1: $2 $value"
    else
        echo "$1: $2 ${value:-missing} falls short of what is stated ($3)"; failed=1
    fi
}
sweep() { # what, config, set, key=value …
    local what=$1 config=$2 set=$3
    shift 3
    echo "$what"
    dtrain sweep "$configs/$config.yaml" data.path="$set" run.dir=runs ${more[@]+"${more[@]}"} "$@" | sed 's/^/    /'
}

if wanted digits mnist_png.tar; then
    tar xf "$data/mnist_png.tar"
    for digit in 0 1 2 3 4 5 6 7 8 9; do
        mkdir -p mnist_png/test/$digit
        find mnist_png/train/$digit -name '*.png' | sort -V | tail -200 | xargs mv -t mnist_png/test/$digit
    done
    for part in train test; do dtrain pack mnist_png/$part mnist-$part.lmdb; done
    train mnist '[mnist-train.lmdb, mnist-test.lmdb]'
    judge "handwritten digits" accuracy 'x >= 0.985'
fi
if wanted signs sign_digits.tar; then
    tar xf "$data/sign_digits.tar"
    dtrain pack sign_digits/Dataset signs.lmdb --resize 64 --encode png
    train photos signs.lmdb run.name=signs train.epochs=30 'data.fields.image={source: png, size: [64, 64]}' data.fields.class.classes=10
    judge "signed digits" accuracy 'x >= 0.95'
fi
if wanted acoustic fsdd.tar || wanted speakers fsdd.tar; then
    dtrain pack "$data/fsdd.tar" fsdd.lmdb --pattern '{digit}_{speaker}_{index}.wav'
fi
spoken=('data.split={unit: record, stratify: digit}' 'data.fields.label={source: digit, classes: 10}'
    'data.fields.sound={rate: 8000, n_fft: 256, hop: 80, n_mels: 40}')
if wanted acoustic fsdd.tar; then
    train acoustic fsdd.lmdb "${spoken[@]}"
    judge "spoken digits, known speakers" accuracy 'x >= 0.95'
fi
if wanted speakers fsdd.tar; then
    sweep "spoken digits, a speaker held out" acoustic fsdd.lmdb "${spoken[@]}" run.name=speakers data.split.test=null data.split.val=0.1 \
        "data.split.test=\"speaker = 'george'\",\"speaker = 'jackson'\",\"speaker = 'nicolas'\",\"speaker = 'theo'\""
fi
if wanted folds; then
    folds=(data.split.test=null data.split.folds=$n_folds data.split.fold=0..$((n_folds - 1)))
    dtrain synth pose heads --n $few
    dtrain pack heads/images heads.tar --join heads/pose.csv
    sweep "head pose of $few heads, $n_folds folds" pose heads.tar run.name=heads 'data.fields.image={size: [64, 64]}' \
        train.epochs=12 train.global_batch=32 "${folds[@]}"
    dtrain synth biometric people --n $people
    dtrain pack people people.lmdb
    small=('data.fields.fingerprint={size: [52, 48]}' 'data.fields.iris={size: [60, 80]}' data.fields.subject.classes=$people)
    sweep "fingerprint and iris of $people known people, $n_folds folds" fusion people.lmdb run.name=known "${small[@]}" train.epochs=5 "${folds[@]}"
    sweep "the same of people whom training never saw, $n_folds folds" fusion people.lmdb run.name=unseen "${small[@]}" \
        'data.split={unit: subject, stratify: null, val: 0.2}' eval.best=auto eval.metrics=null "${folds[@]}"
fi
exit $failed
