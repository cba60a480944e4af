#!/usr/bin/env bash
# dtrain data query|export|verify|stat on sets of two formats: answers that agree with each other and with
# what Python's sqlite3, csv and json read; weird names; bad records; exit codes.
# PYTHON names an interpreter with sqlite3; the parts that need one are left out without.
. "${SOURCE:?}/tests/expect.sh" || exit
gives() { # gives WANT COMMAND…
    local want=$1 got
    shift
    got=$("$@" 2>&1) || fail "$* fails: $got"
    [ "$got" = "$want" ] || fail "$*: '$got', not '$want'"
}

"$dtrain" synth biometric raw --n 3 --impressions 4 >/dev/null 2>&1
"$dtrain" pack raw a.lmdb 2>/dev/null
"$dtrain" pack raw 's-{0..2}.tar' 2>/dev/null

# -- counts agree whatever is asked: LMDB, shards, one shard after the other, the raw folder
for expr in "subject = 2" "gender = 'M' and subject in (1, 3)" "n is null or n > 2" "key like 'iris/%'" \
    "not (gender = 'F')" "bytes > 30000"; do
    n=$("$dtrain" data query a.lmdb "$expr" --count)
    [ "$n" -gt 0 ] || fail "'$expr' chooses nothing"
    gives "$n" "$dtrain" data query 's-{0..2}.tar' "$expr" --count
    sum=0
    for i in 0 1 2; do sum=$((sum + $("$dtrain" data query s-$i.tar "$expr" --count))); done
    [ $sum = "$n" ] || fail "'$expr': $sum in the shards, $n in the set"
    lines=$("$dtrain" data query a.lmdb "$expr" | wc -l)
    [ "$lines" = "$n" ] || fail "'$expr': $lines lines, $n counted"
done
gives 8 "$dtrain" data query raw "subject = 2" --count
gives $'finger,subject\t1\t2\t3\ttotal\nindex\t1\t1\t1\t3\nmiddle\t1\t1\t1\t3\nring\t1\t1\t1\t3\nthumb\t1\t1\t1\t3\n(no value)\t4\t4\t4\t12\ntotal\t8\t8\t8\t24' \
    "$dtrain" data stat a.lmdb --counts finger,subject
expect 2 "--counts other: the set has no such metadata column" "$dtrain" data stat a.lmdb --counts finger,other

# -- what packing keeps by an expression is what a query chooses
for expr in "n is null or n > 2" "subject < '10'" "not (gender in ('F', 3))" "finger != 'index' and bytes between 1 and 40000" \
    "subject like '_' and key like 'iris/%'" "subject > gender or gender > 'K'"; do
    n=$("$dtrain" data query a.lmdb "$expr" --count)
    "$dtrain" pack raw where.tar --where "$expr" --overwrite 2>/dev/null || [ "$n" = 0 ] || fail "pack --where '$expr'"
    [ "$n" = 0 ] || gives "$n" "$dtrain" data query where.tar "key like '%'" --count
done

# -- values of a table go before those of the set, where it has one: in the index, in the json member, in --where
printf 'key,subject\niris/1/1_M_L_1,34.5\niris/2/2_M_L_1,\n' >fixed.csv
"$dtrain" pack a.lmdb fixed.tar --join fixed.csv --where "subject != 3" --column "of=subject + 0" 2>/dev/null ||
    fail "a table for a few records"
gives $'iris/1/1_M_L_1\t34.5\t34.5' "$dtrain" data query fixed.tar "subject > 30" --columns key,subject,of
gives 8 "$dtrain" data query fixed.tar "subject = 2 and of = 2" --count
gives 16 "$dtrain" data query fixed.tar "key like '%'" --count
rm fixed.tar.index
gives $'iris/1/1_M_L_1\t34.5\t34.5' "$dtrain" data query fixed.tar "subject > 30" --columns key,subject,of
cp -r "$SOURCE/tests/golden/mds_plain" mds
printf 'key,who,ratio\nshard.00000/000000,new,0.5\n' >new.csv
"$dtrain" pack mds new.tar --join new.csv 2>/dev/null
gives '{"ratio":0.5,"who":"new","code":"100000000000000000000","n":-5,"name":"näme 0","small":0,"half":0.0,"angle":0.0,"price":0.25}' \
    tar xOf new.tar shard.00000/000000.json

# -- what is printed
gives $'iris/1/1_M_L_1\t1' "$dtrain" data query a.lmdb "key = 'iris/1/1_M_L_1'" --columns key,subject
gives '{"key":"iris/1/1_M_L_1","shard":"s-1.tar"}' "$dtrain" data query 's-{0..2}.tar' \
    "key = 'iris/1/1_M_L_1'" --columns key,shard --json
[ "$("$dtrain" data query a.lmdb "subject = 1" --limit 3 | wc -l)" = 3 ] || fail "--limit"

# -- output that goes nowhere
expect_full() { # expect_full COMMAND…: standard output is a full disk
    local code=0
    "$@" >/dev/full 2>full.txt || code=$?
    [ $code = 5 ] && grep -q "No space left on device" full.txt || fail "$* > /dev/full: exit $code: $(cat full.txt)"
}
expect_full "$dtrain" data ls a.lmdb
expect_full "$dtrain" data query a.lmdb "subject = 1"
expect_full "$dtrain" data export a.lmdb -
expect_full "$dtrain" keys

# -- a pipe where a file should be is no wait without end
mkfifo pipe.tar
expect 3 "not a regular file" timeout 60 "$dtrain" data ls pipe.tar

# -- wrong questions
expect 2 "did you mean 'subject'" "$dtrain" data query a.lmdb "subjct = 1"
expect 2 "character 11 (its end)" "$dtrain" data query a.lmdb "subject = "
expect 2 "no column 'nothing'" "$dtrain" data query a.lmdb "subject = 1" --columns key,nothing
expect 2 "columns: key is there twice" "$dtrain" data query a.lmdb "subject = 1" --columns key,subject,key
expect 3 "no such data set" "$dtrain" data query missing.lmdb "a = 1"
expect 2 "SET… EXPR" "$dtrain" data query a.lmdb
expect 2 "did you mean 'query'" "$dtrain" data qury a.lmdb "a = 1"
expect 2 "--n is the number of" "$dtrain" synth pose heads --subjects 3
expect 2 "--n is the number of" "$dtrain" synth lens heads --impressions 3
expect 2 "give one of them" "$dtrain" synth biometric heads --subjects 3 --n 3
[ ! -e heads ] || fail "synth refuses options and makes something"

# -- data.where: a run uses what it leaves, checks it, and does not go on with another
cat >where.yaml <<'END'
run: {name: t}
device: {kind: cpu, threads: 1}
data:
  path: a.lmdb
  where: "subject in (1, 2)"
  view: {pairs: {fields: [fingerprint, iris], within: subject}}
  fields:
    fingerprint: {kind: image, channels: 1, size: [32, 32]}
    iris: {kind: image, channels: 3, size: [32, 32]}
    subject: {kind: class}
  split: {unit: sample, val: 0.1, test: 0.1}
model: {name: fusion}
train: {epochs: 1, max_steps: 1, global_batch: 4, micro_batch: 4, precision: fp32}
END
out=$("$dtrain" where.yaml 2>&1) || fail "a run with data.where: $out"
grep -qF "16 records of 24 (data.where), 32 samples" <<<"$out" || fail "data.where is not in: $out"
expect 2 'data.where was "subject in (1, 2)"' "$dtrain" where.yaml "data.where=subject = 1"
expect 2 "did you mean 'subject'" "$dtrain" check where.yaml "data.where=subjct = 1"
expect 2 "none of the 24 records" "$dtrain" where.yaml run.name=u "data.where=subject > 100"

# -- export
"$dtrain" data export a.lmdb all.csv 2>/dev/null
[ "$(wc -l <all.csv)" = 25 ] || fail "export has $(wc -l <all.csv) lines"
expect 2 "exists" "$dtrain" data export a.lmdb all.csv
"$dtrain" data export a.lmdb all.csv --overwrite --where "subject = 1" 2>/dev/null
[ "$(wc -l <all.csv)" = 9 ] || fail "export --where"
expect 2 ".csv, .json" "$dtrain" data export a.lmdb all.xls
expect 5 "cannot create" "$dtrain" data export a.lmdb nowhere/all.csv
expect 5 "full.csv: cannot write: No space" env DTRAIN_FAILPOINT=io:2:enospc "$dtrain" data export a.lmdb full.csv
! compgen -G "full.csv*" >/dev/null || fail "a failed export leaves something"

# -- an empty caption is none the less whole; an empty picture is not
mkdir blank && : >blank/s.txt && printf 1 >blank/s.cls && tar -C blank -cf blank.tar s.txt s.cls
"$dtrain" data verify blank.tar 2>out.txt || fail "an empty caption: $(cat out.txt)"
: >blank/s.jpg && tar -C blank -cf blank.tar s.txt s.jpg
expect 3 "1 of 1 records" "$dtrain" data verify blank.tar

# -- a json member that is too long for metadata
printf '{"x":"%070000d"}' 0 >blank/s.json && tar -C blank -cf long.tar s.txt s.json
expect 0 "1 records have metadata that cannot be read and are without those columns; the first: long.tar: record s: \
member json has 70008 bytes; above 65536 it is taken for data, not for metadata" "$dtrain" data ls long.tar

# -- numbers that JSON cannot hold cost only themselves: read, verified, packed with more columns, joined from a table
mkdir odd && printf 1 >odd/s.txt
printf '{"id": 18446744073709551615, "q": NaN, "label": "a"}' >odd/s.json
tar -C odd -cf odd.tar s.txt s.json
gives 1 "$dtrain" data query odd.tar "id = 18446744073709551615 and label = 'a'" --count
"$dtrain" data verify odd.tar 2>out.txt || fail "numbers that JSON cannot hold: $(cat out.txt)"
printf '[{"key": "s", "ns": 12345678901234567890, "w": -Infinity, "from": "b"}]' >odd.json
expect 0 "" "$dtrain" pack odd.tar odd2.tar --join odd.json
gives 1 "$dtrain" data query odd2.tar \
    "id = 18446744073709551615 and label = 'a' and ns = 12345678901234567890 and \"from\" = 'b'" --count

# -- of a file without hashes that was changed in its middle the index is not believed
mkdir mid && head -c 20000 /dev/zero | tee mid/a.bin >mid/c.bin
for class in cat dog; do
    printf $class >mid/b.cls && tar -C mid --mtime=@0 -cf mid.tar a.bin b.cls c.bin
    [ $class = cat ] || touch -d 2020-01-01 mid.tar.index
    expect 0 "$([ $class = cat ] || echo mid.tar: written after mid.tar.index: scanned again)" "$dtrain" data ls mid.tar
    gives 1 "$dtrain" data query mid.tar "cls = '$class'" --count
done
touch -d '+1 year' mid.tar
"$dtrain" data ls mid.tar >out.txt 2>&1
! grep -q 'scanned again' out.txt || fail "a time in the future: scanned at each opening"
touch mid.tar && touch -d 2020-01-01 mid.tar.index && chmod a-w .
expect 0 'mid.tar: written after mid.tar.index: read by it' "$dtrain" data ls mid.tar
chmod u+w .

# -- a class whose name the checkpoint could not hold
mkdir -p latin/caf$'\xe9' latin/tea && printf 'P5 2 2 255\nabcd' | tee latin/tea/1.pgm >latin/caf$'\xe9'/1.pgm
cat >latin.yaml <<'END'
run: {name: latin}
device: {kind: cpu, threads: 1}
data: {path: latin, fields: {pgm: {kind: image, channels: 1, size: [8, 8]}, label: {kind: class}}}
model: {name: mlp}
train: {epochs: 1, global_batch: 2, micro_batch: 2}
END
expect 2 "column label has class 'caf\xe9', which is not UTF-8: rename it" "$dtrain" check latin.yaml

# -- data stat of numbers, in columns of either kind, beside Python's
if "$python" -c '' 2>/dev/null; then
    py make_numbers
    "$dtrain" pack a.lmdb numbers.tar --join numbers.csv --join-on key 2>/dev/null
    "$dtrain" data stat numbers.tar >stat.txt
    py check_numbers
fi

# -- weird names: control characters and quotes in keys and values, LMDB and tar made by others
if "$python" -c 'import sqlite3' 2>/dev/null; then
    py make_weird
    "$dtrain" data ls weird.tar >ls.txt
    [ "$(wc -l <ls.txt)" = 5 ] || fail "ls of weird names has $(wc -l <ls.txt) lines"
    ! LC_ALL=C grep -q $'\x1b' ls.txt || fail "ls lets an escape sequence through"
    gives 2 "$dtrain" data query weird.tar "q > 0.4" --count
    gives 'a\nb' "$dtrain" data query weird.tar "say = 'he said \"x, y\"'" --columns key
    gives 1 "$dtrain" data query weird.tar $'key = \'a\nb\'' --count
    gives 1 "$dtrain" data query weird.tar $'key = \'bytes\xff\'' --count
    "$dtrain" data export weird.tar weird.csv 2>/dev/null
    "$dtrain" data export weird.tar weird.json 2>/dev/null
    py check_weird
    # a line break in a key cannot fake a line of verify either
    "$dtrain" data verify weird.tar >/dev/null 2>&1 || fail "verify of weird.tar"
fi

# -- the catalog by sqlite3
if "$python" -c 'import sqlite3' 2>/dev/null; then
    "$dtrain" data query 's-{0..2}.tar' "subject = 2" --columns key >keys.txt
    "$dtrain" data export 's-{0..2}.tar' --sqlite export.sqlite 2>/dev/null
    "$dtrain" data export weird.tar --sqlite weird.sqlite 2>/dev/null
    py check_sqlite
    "$dtrain" pack raw small.tar --resize 20 --encode png --quality 2>/dev/null
    [ "$("$dtrain" data stat small.tar | grep -c "^member .*\.png: 12,")" = 2 ] ||
        fail "pictures have other fields after --encode: $("$dtrain" data stat small.tar)"
    expect 2 "weird.sqlite exists" "$dtrain" data export weird.tar --sqlite weird.sqlite
    expect 2 "--where: --sqlite writes all" "$dtrain" data export weird.tar --sqlite w.sqlite --where "q > 1"
    expect 2 "expects SET…" "$dtrain" data export --sqlite w.sqlite
    expect 5 "nowhere/w.sqlite: cannot create" "$dtrain" data export weird.tar --sqlite nowhere/w.sqlite
fi

# -- verify: all good; then a flipped byte, found with file, record, offset and reason, by any number of threads
"$dtrain" data verify a.lmdb 's-{0..2}.tar' >bad.tsv 2>err.txt || fail "verify of good sets"
grep -qE 'records, .* only read, in [0-9.]+ s \([0-9.]+ [kMG]?B/s\)' err.txt || fail "no closing line: $(cat err.txt)"
[ ! -s bad.tsv ] || fail "verify lists good records: $(cat bad.tsv)"
offset=$(grep -abo BM s-2.tar | head -1 | cut -d: -f1)
printf '\377' | dd of=s-2.tar bs=1 seek=$((offset + 10000)) conv=notrunc 2>/dev/null
for threads in 1 4; do
    code=0
    "$dtrain" data verify 's-{0..2}.tar' --threads $threads >bad$threads.tsv 2>err.txt || code=$?
    [ $code = 3 ] || fail "verify: exit $code"
done
cmp bad1.tsv bad4.tsv || fail "what verify finds depends on threads"
[ "$(wc -l <bad1.tsv)" = 1 ] || fail "verify: $(cat bad1.tsv)"
grep -q $'^s-2.tar\t[a-z/0-9A-Z_]*\t[a-z]*.bmp\t'"$offset"$'\tits bytes are not those' bad1.tsv || fail "verify: $(cat bad1.tsv)"
grep -q "1 of 24 records: bad" err.txt || fail "verify: $(cat err.txt)"

# -- what a folder is read as is said once, whoever opens it how often
mkdir folder
cp s-0.tar s-1.tar folder
for args in "stat folder" "query folder bytes>0" "export folder -" "verify folder"; do
    "$dtrain" data $args 2>err.txt >/dev/null || true
    [ "$(grep -c 'folder: a folder of 2 shards' err.txt)" = 1 ] || fail "data $args: $(cat err.txt)"
done

# -- of a set without hashes the structure is looked at
if [ -e "$SOURCE/../shared/data/trashnet.tar" ]; then
    head -c 9000000 "$SOURCE/../shared/data/trashnet.tar" >cut.tar
    begin=$(grep -abo JFIF cut.tar | sed -n 20p | cut -d: -f1)
    printf '\0\0\0\0' | dd of=cut.tar bs=1 seek=$((begin - 6)) conv=notrunc 2>/dev/null
    expect 3 "the file is cut" "$dtrain" data verify cut.tar
    rc=0
    "$dtrain" data verify cut.tar >bad.tsv 2>/dev/null || rc=$?
    [ $rc = 3 ] || fail "verify of a cut tar gave exit $rc, not 3"
    [ "$(wc -l <bad.tsv)" = 1 ] && grep -q $'\t'$((begin - 6))$'\t' bad.tsv || fail "verify of a cut tar: $(cat bad.tsv)"
fi

# -- a list that is lost is no list of bad records
expect_full "$dtrain" data verify 's-{0..2}.tar'
grep -q "1 of 24 records: bad" full.txt || fail "verify > /dev/full: $(cat full.txt)"
echo "query, export, verify: as they should be"
