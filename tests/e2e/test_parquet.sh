#!/usr/bin/env bash
# Parquet from end to end: 200 files of every type, codec, page and row group that pyarrow writes are packed as pyarrow reads
# them. Needs pyarrow (PYTHON names an interpreter that has it).
. "${SOURCE:?}/tests/expect.sh" || exit
golden=$SOURCE/tests/golden/parquet
# -- without Python: images of Hugging Face, tables to join, tables of numbers
expect 0 "columns that cannot be read are left out: boxes (a list)" "$dtrain" pack "$golden/images.parquet" hf.lmdb
"$dtrain" data ls hf.lmdb >ls.txt
grep $'^0000001\timage.png:[0-9]*\tjson:[0-9]*.*label=dog' ls.txt >/dev/null || fail "images: $(cat ls.txt)"
expect 0 "" "$dtrain" data verify hf.lmdb
mkdir arrow && : >arrow/data-0.arrow
expect 3 "data-0.arrow: Arrow IPC, which is not read: \`to_parquet\`" "$dtrain" pack 'arrow/data-*.arrow' x.lmdb
expect 3 "\`to_parquet\` of datasets or pandas" "$dtrain" pack arrow x.lmdb
cp "$golden/images.parquet" train-0.parquet && cp train-0.parquet train-1.parquet
expect 0 "packed 4 records" "$dtrain" pack 'train-*.parquet' several.tar --duplicates drop --column "part=key like 'train-1%'"
"$dtrain" data ls several.tar | grep $'^train-0/0000003\t.*part=false' >/dev/null || fail "several: $("$dtrain" data ls several.tar)"
mkdir raw && for i in -7 999996; do printf 'P5 1 1 255\nx' >raw/$i.pgm; done
expect 0 "2 of 2 files have a row" "$dtrain" pack raw joined.tar --join "$golden/polars.parquet" --join-on i --duplicates report
"$dtrain" data ls joined.tar | grep $'^999996\t.*day=1969-12-21.*price=-1.75' >/dev/null || fail "joined: $("$dtrain" data ls joined.tar)"
# -- and back: what is exported joins again, with its numbers and words
expect 0 "own.parquet: 2 records" "$dtrain" data export joined.tar own.parquet --columns key,day,price,n
expect 0 "2 of 2 files have a row" "$dtrain" pack raw again.tar --join own.parquet --join-on key
"$dtrain" data ls again.tar | grep $'^999996\t.*day=1969-12-21.*n=1.*price=-1.75' >/dev/null || fail "exported: $("$dtrain" data ls again.tar)"
expect 0 "packed 40 records" "$dtrain" pack "$golden/duckdb.parquet" rows.lmdb --rows n,f,s,c,flag,day,t
expect 3 "is packed with brotli, which is not read" "$dtrain" pack "$golden/refused_brotli.parquet" x.lmdb --rows -
expect 3 "no file matches" "$dtrain" pack 'nothing-*.parquet' x.lmdb
expect 3 "dtrain pack" "$dtrain" data ls "$golden/images.parquet"
mkdir folder && cp train-0.parquet folder
expect 3 "FOLDER/*.parquet" "$dtrain" pack folder x.lmdb

"$python" -c "import pyarrow" 2>/dev/null || { echo "skipped: $python has no pyarrow (set PYTHON to one that has)"; exit 77; }
py generate
expect 0 "packed" "$dtrain" pack "case-*.parquet" cases.lmdb --on-error skip
expect 0 "" "$dtrain" data export cases.lmdb cases.jsonl
expect 0 "packed" "$dtrain" pack "case-*.parquet" cases.tar --on-error skip
py compare
for limit in 1000000 3; do
    expect 0 "" "$dtrain" data export cases.lmdb out.parquet --limit $limit --overwrite
    expect 0 "" "$dtrain" data export cases.lmdb cases.jsonl --limit $limit --overwrite
    py read_export
done
# -- what claims millions of values in a few kilobytes takes little memory
py nulls
limit=2000000
[ "$(nm "$dtrain" 2>/dev/null | grep -cE '__(a|t)san_init')" = 0 ] || limit=unlimited # sanitizers take terabytes
expect 3 "16777216 rows have no bytes" bash -c "ulimit -v $limit; '$dtrain' pack nulls.parquet x.lmdb"
expect 3 "more than 64 values for each byte of the file" bash -c "ulimit -v $limit; '$dtrain' pack same.parquet x.lmdb"
py refused >refused.txt
while IFS=$'\t' read -r file words; do expect 3 "$words" "$dtrain" pack "$file" x.lmdb --rows -; done <refused.txt
echo OK
