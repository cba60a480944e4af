#!/usr/bin/env bash
# Files of each release of this major version, which make.sh wrote, are read, evaluated, resumed and continued; files of
# a newer version are refused with one line and 2. Equal on the machine that wrote them, else within what another ISA gives.
. "${SOURCE:?}/tests/small_run.sh" || exit
cd "$work"
dtrain=$(realpath "$DTRAIN")
same() { py same "$@" || fail "$1 is not $2"; }
said() { "$dtrain" "$@" 2>"$work/log" || fail "dtrain $*"; }

check_release() { # ARCHIVE
    local name words set ranks_of_it
    rm -rf release && mkdir release && tar -xzf "$1" -C release && cd release
    # -- the index: not made anew
    for set in set.tar set.lmdb/data.mdb; do
        sha256sum <$set.index >before
        said data verify "${set%/data.mdb}" >out
        said data stat "${set%/data.mdb}" >out
        grep -q ': 60 records, 120 members' out || fail "$set: $(cat out)"
        sha256sum <$set.index | cmp - before || fail "$set: another index"
    done
    # -- checkpoints: evaluated, then trained to the end
    for name in adamw sgd adafactor sharded; do
        read -ra words <expected/$name.words
        said ckpt verify runs/$name >out
        said eval runs/$name --which latest >out
        same out expected/$name.eval 1e-3
        ranks_of_it=()
        if [ $name = sharded ]; then
            have_mpi || continue
            ranks_of_it=("${ranks[@]}" 2)
        fi
        exits 0 "step 24" "${ranks_of_it[@]}" "$dtrain" small.yaml "${words[@]}"
        same "$work/out" expected/$name.end 0.02
        grep -q '"from_step":24' runs/$name/metrics.jsonl || fail "$name began anew"
    done
    # -- a finished run: result, split, predictions, temperature, pages; and what was quantized
    exits 0 'is finished' "$dtrain" small.yaml run.name=ended data.path=set.tar 'metrics.sinks=[jsonl, report]'
    same "$work/out" expected/ended.out 0
    for name in csv jsonl npy; do
        said predict runs/ended --split test -o out.$name --logits
        same out.$name expected/ended.$name 1e-3
    done
    said eval runs/int8 >out
    same out expected/int8.eval 0.05
    said ckpt ls runs/ended >out
    said report runs/ended -o out.html >out
    grep -q 'Test split, best weights' out.html || fail "no evaluation in the report"
    said watch runs/ended >out
    exits 0 'is finished' "$dtrain" small.yaml run.name=listed data.split.file=runs/ended/split.csv data.split.val= data.split.test=
    exits 0 '' "$dtrain" small.yaml run.name=anew train.max_steps=1 data.split.file=runs/ended/split.csv data.split.val= data.split.test=
    cmp runs/anew/split.csv runs/listed/split.csv || fail "another split of the list"
    # -- JSON on stdout has the members that scripts read
    said ckpt show runs/ended --json >out
    py members out path step best files state || fail "ckpt show"
    said data query set.tar "subject = '1'" --json >out
    py members out key shard bytes subject width height channels || fail "data query"
    said data bench small.yaml --seconds 1 --json >out
    py members out samples_per_s capacity read_us decode_us augment_us copy_us bytes batch_ms batch_max_ms wait_ms \
        wait_max_ms queue queue_max workers readers slots bound limit what advice || fail "data bench"
    cp set.tar bad.tar && cp set.tar.index bad.tar.index && py set_byte bad.tar 600 '?'
    exits 3 '1 of 60 records' "$dtrain" data verify bad.tar --json
    py members "$work/out" file record member offset reason || fail "data verify"
    # -- a sweep: its runs are finished, and the table is made of their results
    said sweep small.yaml run.name=folds train.max_steps=16 data.split.folds=3 data.split.fold=0..2 data.split.test= >out
    cmp out expected/folds.table || fail "the table of the sweep: $(cat out)"
    ! grep -q 'training 16 steps' "$work/log" || fail "a fold was trained again"
}

newer() { # COMMAND …: refused, in one line that says why
    exits 2 'written by a newer dtrain.* (format 2; this build, [0-9.]*, reads 1 to 1)' "$dtrain" "$@"
    [ "$(grep -c 'written by a newer' "$work/log")" = 1 ] || fail "more than one line: $*"
}
again() { rm -rf "$1" && cp -r "kept/$1" "$(dirname "$1")"; }

check_newer() {
    rm -rf kept && mkdir kept && cp -r runs set.tar.index kept/
    py set_byte set.tar.index 7 2
    newer data stat set.tar
    again set.tar.index
    # only the newest checkpoint is of a newer dtrain: no step is repeated behind the user's back
    ls -d runs/adamw/checkpoints/step-*48 >/dev/null || fail "no last checkpoint"
    sed -i 's/"version":1,"dtrain":"[^"]*"/"version":2,"dtrain":"9.1.0"/' runs/adamw/checkpoints/step-00000048/manifest.json
    newer small.yaml run.name=adamw train.ema=0.9
    grep -qF 'a newer dtrain, 9.1.0 (' "$work/log" || fail "it does not name its dtrain: $(cat "$work/log")"
    newer eval runs/adamw --which latest
    newer predict runs/adamw --split test --which 48
    sed -i 's/"version":1,/"version":2,/' runs/adamw/checkpoints/step-*/manifest.json
    newer eval runs/adamw
    newer export runs/adamw out.onnx
    newer small.yaml run.name=init model.init=runs/adamw
    again runs/adamw
    sed -i 's/"format":1,/"format":2,/' runs/int8/int8.json
    newer eval runs/int8
    again runs/int8
    sed -i 's/"format":1,/"format":2,/' runs/ended/calibration.json
    newer predict runs/ended --split test
    newer eval runs/ended --calibrate
    again runs/ended
    sed -i 's/"schema":1,/"schema":2,/' runs/ended/metrics.jsonl
    newer report runs/ended
    newer report runs/sgd runs/ended
    newer report runs
    newer watch runs/ended
    sed -i 's/"schema":1,/"schema":2,/' runs/adamw/metrics.jsonl
    rm -r runs/adamw/checkpoints/step-00000048
    newer small.yaml run.name=adamw train.ema=0.9
    [ "$(grep -c '"kind":"start"' runs/adamw/metrics.jsonl)" = "$(grep -c '"kind":"start"' kept/runs/adamw/metrics.jsonl)" ] ||
        fail "an attempt is added to metrics.jsonl of a newer dtrain"
    again runs/adamw
    again runs/ended
    sed -i 's/"schema":1,/"schema":2,/' runs/ended/result.json
    newer report runs/ended
    newer small.yaml run.name=ended data.path=set.tar 'metrics.sinks=[jsonl, report]'
    again runs/ended
    sed -i 's/"schema":1,/"schema":2,/' runs/folds/fold=1/result.json
    newer sweep small.yaml run.name=folds train.max_steps=16 data.split.folds=3 data.split.fold=0..2 data.split.test=
    again runs/folds
    # what only a page shows is left out of it
    sed -i 's/"schema":1,/"schema":2,/' runs/ended/evaluation-*.json
    exits 0 'written by a newer dtrain' "$dtrain" report runs/ended -o out.html
    again runs/ended
    # columns that later versions add are passed over, and so are members
    sed -i '1s/$/,weight/; 2,$s/$/,1/' runs/ended/split.csv
    exits 0 '' "$dtrain" small.yaml run.name=wide train.max_steps=1 data.split.file=runs/ended/split.csv data.split.val= data.split.test=
    cmp runs/wide/split.csv runs/listed/split.csv || fail "an added column changes the split"
    sed -i 's/^{"schema":1,/{"schema":1,"more":{"a":[1]},/' runs/ended/result.json
    exits 0 '' "$dtrain" report runs/ended -o out.html
    # choices of kernels are made again
    if [ -e "$XDG_CACHE_HOME"/dtrain ]; then # else nothing is chosen by timing here
        sed -i '1s/^dtrain \([a-z]*\) [0-9]*/dtrain \1 99/' "$XDG_CACHE_HOME"/dtrain/*.txt
        exits 0 'ignored, it is of another version' "$dtrain" small.yaml run.name=choices train.max_steps=1
    fi
}

n=0
for archive in "$SOURCE"/tests/compat/runs-*.tar.gz; do
    check_release "$archive"
    check_newer
    cd "$work"
    n=$((n + 1))
done
[ $n -gt 0 ] || fail "no files of a release"
