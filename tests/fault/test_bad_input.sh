#!/usr/bin/env bash
# Bad input of every kind gives one clear line with what, where and what to do, and the right exit code;
# never a crash, never a hang.
. "$SOURCE/tests/small_run.sh"

small_data "$work"
config=$(small_config "$work")
failed=0

expect() { # exit code, words that the message must have ('|' between them), command …
    local want=$1 words=$2 rc=0
    shift 2
    timeout 20 "$@" >"$work/out" 2>"$work/err" || rc=$?
    if [ $rc != "$want" ]; then
        echo "FAILED: exit $rc, not $want: $*"; tail -3 "$work/err"; failed=1
    fi
    local IFS='|'
    for word in $words; do
        grep -qF -- "$word" "$work/err" || { echo "FAILED: no '$word' in the message of: $*"; tail -3 "$work/err"; failed=1; }
    done
}

# -- config
expect 2 "nope.yaml" "$DTRAIN" "$work/nope.yaml"
expect 2 "train.epochs" "$DTRAIN" "$config" train.epochs=minus
expect 2 "global_batch" "$DTRAIN" "$config" train.global_bach=32
printf 'run: {name: x\n' >"$work/a.yaml";        expect 2 "a.yaml:" "$DTRAIN" "$work/a.yaml"
printf 'run: [1, 2]\n' >"$work/b.yaml";           expect 2 "b.yaml:1:" "$DTRAIN" "$work/b.yaml"
head -c 300000 /dev/zero | tr '\0' '[' >"$work/c.yaml"; expect 2 "c.yaml" timeout 1 "$DTRAIN" "$work/c.yaml"
head -c 200000 /dev/urandom >"$work/d.yaml";      expect 2 "d.yaml" timeout 1 "$DTRAIN" "$work/d.yaml"
: >"$work/e.yaml";                                expect 2 "e.yaml" "$DTRAIN" "$work/e.yaml"
expect 2 "cuda" "$DTRAIN" "$config" device.kind=cuda
expect 2 "model" "$DTRAIN" "$config" model.name=fusoin
expect 2 "divisor" "$DTRAIN" "$config" train.micro_batch=3
expect 2 "classes" "$DTRAIN" "$config" data.fields.subject.classes=4
expect 2 "" "$DTRAIN" no-such-verb

# -- data
expect 3 "missing.lmdb" "$DTRAIN" "$config" data.path="$work/missing.lmdb" run.name=d1
cp -r "$work/small.lmdb" "$work/cut.lmdb"
truncate -s 60% "$work/cut.lmdb/data.mdb" 2>/dev/null || truncate -s $(($(stat -c %s "$work/cut.lmdb/data.mdb") * 6 / 10)) "$work/cut.lmdb/data.mdb"
expect 3 "cut.lmdb" "$DTRAIN" "$config" data.path="$work/cut.lmdb" run.name=d2
"$DTRAIN" pack "$work/raw" "$work/small-{000000..000001}.tar" >/dev/null 2>&1
cp "$work"/small-00000* "$work/" 2>/dev/null || true
mkdir "$work/cuttar" && cp "$work"/small-00000* "$work"/small* "$work/cuttar/" 2>/dev/null || true
truncate -s $(($(stat -c %s "$work/cuttar/small-000001.tar") / 2)) "$work/cuttar/small-000001.tar"
expect 3 "small-000001.tar" "$DTRAIN" "$config" "data.path=$work/cuttar/small-{000000..000001}.tar" run.name=d3
# an image that is no image, and an empty one: packing keeps them, training names them
cp -r "$work/raw" "$work/rawbad"
bad=$(find "$work/rawbad/iris/1" -type f | sort | head -1)
head -c 4000 /dev/urandom >"$bad"
"$DTRAIN" pack "$work/rawbad" "$work/bad.lmdb" >/dev/null 2>"$work/err" || true
if [ -e "$work/bad.lmdb" ]; then
    expect 3 "bad.lmdb|iris" "$DTRAIN" "$config" data.path="$work/bad.lmdb" run.name=d4 train.max_steps=40
    expect 0 "" "$DTRAIN" "$config" data.path="$work/bad.lmdb" run.name=d5 train.max_steps=40 data.on_error=skip
fi

# -- storage
: >"$work/file"
expect 5 "$work/file" "$DTRAIN" "$config" run.dir="$work/file/runs"

# -- numbers: a learning rate that breaks the weights
expect 6 "step" "$DTRAIN" "$config" run.name=nan train.optimizer.name=sgd train.optimizer.lr=1.0e+30 train.clip_norm=1.0e+30 train.schedule.warmup=0%

[ $failed = 0 ] && echo "all messages and exit codes are right"
exit $failed
