#!/usr/bin/env bash
# Bad input of every kind gives one clear line with what, where and what to do, and the right exit code;
# never a crash, never a hang.
. "${SOURCE:?}/tests/small_run.sh" || exit

small_data "$work"
config=$(small_config "$work")
failed=0

expect() { # exit code, words that the message must have ('|' between them), command …
    local want=$1 words=$2 rc=0
    shift 2
    timeout 600 "$@" >"$work/out" 2>"$work/err" || rc=$?
    if [ $rc != "$want" ]; then
        echo "FAILED: exit $rc, not $want: $*"; tail -3 "$work/err"; failed=1
    fi
    local IFS='|'
    for word in $words; do
        grep -qF -- "$word" "$work/err" || { echo "FAILED: no '$word' in the message of: $*"; tail -3 "$work/err"; failed=1; }
    done
}

# of CPU, so that a busy machine does not matter; what grows with the square of the length takes minutes
within_seconds=(bash -c 'ulimit -t 10; exec "$@"' bash)

# -- config
expect 2 "nope.yaml" "$DTRAIN" "$work/nope.yaml"
expect 2 "train.epochs is 'minus'; expected a whole number" "$DTRAIN" "$config" train.epochs=minus
expect 2 "rmse is of numbers" "$DTRAIN" check "$config" 'eval.metrics=[accuracy, rmse]'
expect 2 "mae is of numbers" "$DTRAIN" "$config" eval.best=mae
expect 2 "confusion is no single number" "$DTRAIN" check "$config" eval.best=confusion
expect 2 "which these take: cross_entropy, focal" "$DTRAIN" check "$config" train.loss=mse
expect 2 "train.focal_gamma is a key of focal" "$DTRAIN" check "$config" train.focal_gamma=1
expect 2 "in column hand, the sampling weight: a weight is a number that is not negative" "$DTRAIN" check "$config" data.weight=hand
expect 2 "did you mean 'train.global_batch'?" "$DTRAIN" "$config" train.global_bach=32
printf 'run: {name: x\n' >"$work/a.yaml";        expect 2 "a.yaml:" "$DTRAIN" "$work/a.yaml"
printf 'run: [1, 2]\n' >"$work/b.yaml";           expect 2 "b.yaml:1:" "$DTRAIN" "$work/b.yaml"
head -c 300000 /dev/zero | tr '\0' '[' >"$work/c.yaml"; expect 2 "c.yaml" "${within_seconds[@]}" "$DTRAIN" "$work/c.yaml"
head -c 200000 /dev/urandom >"$work/d.yaml";      expect 2 "d.yaml" "${within_seconds[@]}" "$DTRAIN" "$work/d.yaml"
: >"$work/e.yaml";                                expect 2 "e.yaml" "$DTRAIN" "$work/e.yaml"
expect 2 "device.kind: cuda: " env CUDA_VISIBLE_DEVICES= "$DTRAIN" "$config" device.kind=cuda
expect 2 "model.name is 'fusoin'; expected one of resnet, |did you mean 'fusion'?" "$DTRAIN" "$config" model.name=fusoin
expect 2 "train.micro_batch is 3; expected a divisor" "$DTRAIN" "$config" train.micro_batch=3
expect 2 "the data set has 6 classes (column subject), and \`classes\` is 4" "$DTRAIN" "$config" data.fields.subject.classes=4
expect 2 "train.schedule.min_lr is 1, above train.optimizer.lr" "$DTRAIN" "$config" train.schedule.name=cosine train.schedule.min_lr=1
expect 2 "train.schedule.decay is 0; expected an amount above 0" "$DTRAIN" "$config" train.schedule.name=wsd train.schedule.decay=0%
expect 2 "elastic comm.gradient_dtype must be fp32" "$DTRAIN" "$config" comm.gradient_dtype=bf16 run.reproducible=elastic
expect 2 "unknown key 'device.hold_input'|remove the line" "$DTRAIN" "$config" device.hold_input=true
has_bf16 slow || expect 2 "bf16 needs a CPU with AVX-512" "$DTRAIN" "$config" train.precision=bf16
expect 2 "dtrain --help" "$DTRAIN" no-such-verb
expect 2 "did you mean 'train'?" "$DTRAIN" trian "$config"
expect 2 "key=value" "$DTRAIN" "$config" --epochs 3
expect 2 "--resize is given twice: 8 and 9" "$DTRAIN" pack "$work/raw" "$work/twice.lmdb" --resize 8 --resize=9
expect 2 "auto, cpu, cuda" "$DTRAIN" "$config" device.kind=gpu
if grep -q "did you mean" "$work/err"; then echo "FAILED: 'gpu' is not 'cpu'"; failed=1; fi
expect 2 "'irs' is no image or audio field|did you mean 'iris'?" "$DTRAIN" "$config" 'data.augment={irs: [{rotate: 5}]}'
# names that a map or list takes from another: each says which is the nearest, or which there are
expect 2 "model.encoders.fingerprnt: 'fingerprnt' is no field|did you mean 'fingerprint'?" "$DTRAIN" check "$config" 'model.encoders.fingerprnt={name: cnn}'
expect 2 "'subject' is no field that the network reads; expected one of fingerprint, iris" "$DTRAIN" check "$config" 'model.encoders.subject={name: mlp}'
expect 2 "model.encoders is a key of fusion, but model.name is cnn" "$DTRAIN" check "$config" model.name=cnn model.fusion=
expect 2 "'irs' is no image or audio field|did you mean 'iris'?" "$DTRAIN" check "$config" 'data.mix={mixup: 0.2, fields: [irs]}'
expect 2 "'irs' is no name of data.fields; did you mean 'iris'?" "$DTRAIN" check "$config" 'data.view.pairs.fields=[fingerprint, irs]'
expect 2 "'subjct' is no class, number or vector of data.fields; did you mean 'subject'?" "$DTRAIN" check "$config" train.targets.subjct.loss=cross_entropy
expect 2 "'subjct' is no name of train.targets; did you mean 'subject'?" "$DTRAIN" check "$config" train.targets.subject.loss=cross_entropy eval.target=subjct
expect 2 "'subject' is no image or audio field" "$DTRAIN" "$config" 'data.augment={subject: [{rotate: 5}]}'
mkfifo "$work/p.yaml";                            expect 2 "nobody wrote" "$DTRAIN" "$work/p.yaml"

# -- data
expect 3 "missing.lmdb" "$DTRAIN" "$config" data.path="$work/missing.lmdb" run.name=d1
cp -r "$work/small.lmdb" "$work/cut.lmdb"
truncate -s $(($(stat -c %s "$work/cut.lmdb/data.mdb") * 6 / 10)) "$work/cut.lmdb/data.mdb"
expect 3 "cut.lmdb" "$DTRAIN" "$config" data.path="$work/cut.lmdb" run.name=d2
tars="$work/small-{000000..000001}.tar"
"$DTRAIN" pack "$work/raw" "$tars" >/dev/null 2>&1
expect 0 "" "$DTRAIN" "$config" data.path="$tars" run.name=tar train.max_steps=2
# what training alone cannot do here keeps nobody from evaluating what was trained elsewhere
cp "$work/runs/tar/config.yaml" "$work/here.yaml"
sed -i 's/reproducible: resume/reproducible: elastic/; s/gradient_dtype: fp32/gradient_dtype: bf16/' "$work/runs/tar/config.yaml"
cmp -s "$work/here.yaml" "$work/runs/tar/config.yaml" && { echo "FAILED: the run's config.yaml lacks keys to change"; failed=1; }
expect 0 "" "$DTRAIN" eval "$work/runs/tar"
truncate -s $(($(stat -c %s "$work/small-000001.tar") / 2)) "$work/small-000001.tar"
expect 3 "small-000001.tar" "$DTRAIN" "$config" data.path="$tars" run.name=d3
# check says of data that is there what training would; of data that is not, that it is not
expect 0 "missing.lmdb: no such data set|without the data" "$DTRAIN" check "$config" data.path="$work/missing.lmdb"
expect 0 "missing-*.tar: no file matches|without the data" "$DTRAIN" check "$config" data.path="$work/missing-*.tar"
# a part that is there is data, whichever it is, and a part that is not is missed
expect 3 "missing-*.tar (of|: no file matches" "$DTRAIN" check "$config" data.path="$work/{missing,small}-*.tar"
expect 3 "missing-*.tar (of|: no file matches" "$DTRAIN" check "$config" data.path="$work/{small,missing}-*.tar"
expect 3 "missing-*.tar (of|: no file matches" "$DTRAIN" check "$config" data.path="$work/missing-*.tar::$work/small-*.tar"
expect 3 "cut.lmdb" "$DTRAIN" check "$config" data.path="$work/cut.lmdb"
expect 3 "small-000001.tar" "$DTRAIN" check "$config" data.path="$tars"
expect 3 "missing.tar: no such data set" "$DTRAIN" check "$config" data.path="[$work/small-000000.tar, $work/missing.tar]"
expect 3 "small.lmdb/data.mdb: record iris/" "$DTRAIN" check "$config" data.fields.iris.source=json
expect 2 "lower it" "$DTRAIN" check "$config" train.global_batch=100000

# images that are none (random bytes, a PNG by name only) and one that is cut: file, record and reason; or
# skipped, counted and listed
bad_record() { # data set, path of the record's file, the record's file and field as messages name them, run's suffix
    local path=$1 record
    record=$(basename "$2" | sed 's/\..*$//; s/_[0-9]*$//')
    expect 3 "$3|$record" "$DTRAIN" "$config" data.path="$path" run.name="bad$4"
    expect 0 "skipped|record iris/|$record" "$DTRAIN" "$config" data.path="$path" run.name="skip$4" data.on_error=skip train.max_steps=20
    grep -qs "$record" "$work/runs/skip$4"/skipped* || { echo "FAILED: the skipped record is not listed in the run"; failed=1; }
}
images=($(find "$work/raw/iris" -type f | sort | head -4))
for i in 0 1 2; do
    rm -rf "$work/rawbad" "$work/bad.lmdb"
    cp -r "$work/raw" "$work/rawbad"
    bad=$work/rawbad/${images[$i]#"$work/raw/"}
    case $i in
    0) head -c 4000 /dev/urandom >"$bad" ;;
    1) printf '\211PNG\r\n\032\nand then nothing that PNG knows' >"$bad" ;;
    2) truncate -s 5000 "$bad" ;;
    esac
    expect 0 "" "$DTRAIN" pack "$work/rawbad" "$work/bad.lmdb"
    bad_record "$work/bad.lmdb" "$bad" "bad.lmdb/data.mdb: record iris/" $i
done
# a file of no bytes: pack says so, and leaves it out when told to; where another tool packed it, it is a bad record
bad=$work/rawbad/${images[3]#"$work/raw/"}
: >"$bad"
expect 3 "empty|$(basename "$bad")|--on-error skip" "$DTRAIN" pack "$work/rawbad" "$work/bad2.lmdb"
expect 0 "empty|$(basename "$bad")" "$DTRAIN" pack "$work/rawbad" "$work/bad2.lmdb" --on-error skip
"$DTRAIN" pack "$work/raw" "$work/whole.tar" >/dev/null 2>&1 || { echo "FAILED: pack to tar"; failed=1; }
mkdir "$work/members"
tar -C "$work/members" -xf "$work/whole.tar"
member=$(cd "$work/members" && find iris -type f ! -name '*.json' | sort | head -1)
: >"$work/members/$member"
(cd "$work/members" && tar --sort=name -cf "$work/empty.tar" *)
bad_record "$work/empty.tar" "$member" "empty.tar: record iris/" 3

# what has no columns of quality are reported
mkdir "$work/numbers"
echo "1 2 3" >"$work/numbers/a.txt"
expect 0 "1 of 1 records have no columns|a.txt" "$DTRAIN" pack "$work/numbers" "$work/numbers.tar" --quality
expect 0 "" "$DTRAIN" pack "$work/raw/iris" "$work/figures.tar" --quality
if grep -q "no columns of" "$work/err"; then echo "FAILED: images have columns"; failed=1; fi

# -- storage: before any step
: >"$work/file"
expect 5 "$work/file" "$DTRAIN" "$config" run.dir="$work/file/runs"
expect 5 "/proc/runs" "$DTRAIN" "$config" run.dir=/proc/runs
if [ "$(id -u)" != 0 ]; then
    mkdir -m 555 "$work/readonly"
    expect 5 "$work/readonly" "$DTRAIN" "$config" run.dir="$work/readonly"
fi

# -- standard streams that are closed or end early: no file of the run takes their place, and the run goes on
rc=0
"$DTRAIN" "$config" run.name=closed train.max_steps=2 <&- >&- 2>&- || rc=$?
[ $rc = 5 ] && [ -e "$work/runs/closed/result.json" ] && ! grep -qs split "$work/runs/closed/lock" ||
    { echo "FAILED: closed streams gave exit $rc"; cat "$work/runs/closed/lock"; failed=1; }
"$DTRAIN" "$config" run.name=pipe train.max_steps=12 2>&1 >/dev/null | head -1 >"$work/out" || true
[ -e "$work/runs/pipe/result.json" ] || { echo "FAILED: a run ended with the one who read its log"; failed=1; }
# -- fewer descriptors than shards; longer files than allowed
"$DTRAIN" pack "$work/raw" "$work/many-{00..59}.tar" 2>/dev/null
expect 0 "120 checked by hash" bash -c "ulimit -n 40; '$DTRAIN' data verify '$work/many-{00..59}.tar'"
expect 5 "File too large" bash -c "ulimit -f 100; '$DTRAIN' pack '$work/raw' '$work/large.tar'"

# -- less address space than a run needs, at whatever place it ends: one line, and no crash in a library
for limit in 120000 224000 227000 352000 357000; do
    sanitized && break # they take terabytes of it
    rc=0
    (ulimit -v $limit; exec "$DTRAIN" "$config" device.threads=2 run.name=v$limit train.max_steps=2) >"$work/out" 2>"$work/err" || rc=$?
    [ $rc = 0 ] || { [ $rc = 70 ] && [ "$(tail -1 "$work/err" | grep -c '^dtrain: error: ')" = 1 ]; } ||
        { echo "FAILED: exit $rc with ulimit -v $limit"; tail -3 "$work/err"; failed=1; }
done

# -- storage that goes away while training: after three failed saves in a row the run ends
"$DTRAIN" "$config" run.name=gone checkpoint.every="1 steps" train.max_steps=100000 >"$work/out" 2>"$work/err" &
pid=$!
wait_for_step gone
mv "$work/runs/gone/checkpoints" "$work/runs/gone/kept"
: >"$work/runs/gone/checkpoints"
rc=0
wait $pid || rc=$?
[ $rc = 5 ] && grep -q "3 saves in a row" "$work/err" || { echo "FAILED: lost storage gave exit $rc"; tail -3 "$work/err"; failed=1; }

# -- links to folders inside a run are not followed; a link to the run is
mkdir "$work/away" "$work/runs/linked"
ln -s "$work/away" "$work/runs/linked/checkpoints"
expect 5 "linked/checkpoints: a symbolic link" "$DTRAIN" "$config" run.name=linked train.max_steps=2
expect 4 "linked/checkpoints: a symbolic link" "$DTRAIN" ckpt verify "$work/runs/linked"
[ -z "$(ls "$work/away")" ] || { echo "FAILED: written through a link"; failed=1; }
rm "$work/runs/linked/checkpoints"
rmdir "$work/runs/linked"
mv "$work/away" "$work/real"
ln -s "$work/real" "$work/runs/linked"
job=(run.name=linked train.max_steps=4 checkpoint.every="2 steps")
expect 75 "" "$DTRAIN" "$config" "${job[@]}" run.stop_at=3
mv "$work/real/checkpoints/step-00000003" "$work/kept"
ln -s "$work/kept" "$work/real/checkpoints/step-00000003"
expect 0 "step 3 is skipped|step-00000003: a symbolic link" "$DTRAIN" eval "$work/runs/linked" --which latest
touch -r "$work/kept" "$work/stamp"
expect 0 "step 3 is skipped|step-00000003: a symbolic link" "$DTRAIN" "$config" "${job[@]}" checkpoint.every="1 steps"
[ ! -L "$work/real/checkpoints/step-00000003" ] && [ -f "$work/kept/manifest.json" ] && [ ! "$work/kept" -nt "$work/stamp" ] ||
    { echo "FAILED: step 3 is a link still, or was written through it"; failed=1; }

# -- numbers: a learning rate that breaks the weights
expect 6 "is not finite|the first tensor" "$DTRAIN" "$config" run.name=nan train.optimizer.name=sgd train.optimizer.lr=1.0e+30 train.clip_norm=1.0e+30 train.schedule.warmup=0%

# -- names of others in messages: none of their control characters reaches the terminal or the log
name='"e\e[2J\nx"'
mkdir "$work/named" && printf 'no picture' >"$work/named/a"$'\e[2J\n'"b.png"
{
    "$DTRAIN" "$config" run.dir="$work/names" run.name="$name" train.max_steps=2 2>&1
    "$DTRAIN" ckpt ls "$work/names/"*
    "$DTRAIN" ckpt show "$work/names/"*
    "$DTRAIN" "$config" data.path="$name" 2>&1
    "$DTRAIN" pack "$work/named" "$work/named.lmdb" --resize 8 2>&1
    cp -r "$work/small.lmdb" "$work/set"$'\e[2J\n'
    "$DTRAIN" check "$config" data.path="\"$work/set\e[2J\n\"" 2>&1
    cat "$work/names/"*/log
} >"$work/out" || true
[ "$(grep -c 'e\\x1b\[2J\\nx' "$work/out")" -ge 6 ] && grep -qF 'a\x1b[2J\nb.png' "$work/out" &&
    grep -qF 'set\x1b[2J\n' "$work/out" ||
    { echo "FAILED: names are not shown"; cat -v "$work/out"; failed=1; }
if LC_ALL=C grep -n $'\e' "$work/out"; then echo "FAILED: an escape sequence gets through"; failed=1; fi
if grep -vE '^20[0-9-]{8}T' "$work/names/"*/log; then echo "FAILED: a name splits a line of the log"; failed=1; fi

[ $failed = 0 ] && echo "all messages and exit codes are right"
exit $failed
