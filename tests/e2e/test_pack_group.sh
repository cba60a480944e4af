#!/usr/bin/env bash
# Records that are not one file each: several files by common captures (--group), rows of a table (--rows).
. "${SOURCE:?}/tests/expect.sh" || exit
picture() { mkdir -p "$(dirname "$1")" && printf 'P5 2 2 255\n%s' "$2" >"$1"; }

# -- bands in folders: one sample with four members; the label of all of them stays a column, the band does not
for id in 001 002 003; do for band in 1 2 3 4; do picture raw/Band$band/sky_lens-$id.pgm $band$id; done; done
pattern='Band{band}/sky_{label}-{id}.pgm'
for out in 'a-{0..1}.tar' a.lmdb; do
    expect 0 "packed 3 records" "$dtrain" pack raw "$out" --pattern "$pattern" --group id
    "$dtrain" data ls "$out" >ls.txt 2>/dev/null
    [ "$(cut -f1-6 ls.txt | head -1)" = $'001\tband1.pgm:15\tband2.pgm:15\tband3.pgm:15\tband4.pgm:15\tjson:27' ] || fail "$out: $(cat ls.txt)"
    grep -q "label=lens" ls.txt && ! grep -q "band=" ls.txt || fail "$out: columns: $(cat ls.txt)"
    expect 0 "" "$dtrain" data verify "$out"
done
tar xf a-0.tar && [ "$(tail -c 4 001.band3.pgm)" = 3001 ] || fail "bytes: $(tail -c 4 001.band3.pgm)"
expect 0 "nothing to do" "$dtrain" pack raw a.lmdb --pattern "$pattern" --group id
# without folders the other captures name the members
mkdir flat && for id in 7 8; do for kind in rgb depth; do picture flat/${id}_$kind.pgm $id$kind; done; done
expect 0 "packed 2 records" "$dtrain" pack flat b.tar --pattern '{id}_{kind}.pgm' --group id
"$dtrain" data ls b.tar | grep $'^7\tdepth.pgm:17\tjson:8\trgb.pgm:15' >/dev/null || fail "names by captures: $("$dtrain" data ls b.tar)"
# a file more makes it another source; one less is told
picture flat/9_rgb.pgm 9rgb
expect 2 "changed since" "$dtrain" pack flat b.tar --pattern '{id}_{kind}.pgm' --group id
expect 0 "1 of 3 records have fewer than 2 files, the first is 9" "$dtrain" pack flat c.tar --pattern '{id}_{kind}.pgm' --group id
# mistakes
expect 2 "the pattern captures no {ident}" "$dtrain" pack flat d.tar --pattern '{id}_{kind}.pgm' --group ident
expect 2 "--group is for files with captures of --pattern" "$dtrain" pack flat d.tar --group id
picture flat/more/9_rgb.pgm 9more
expect 3 "flat: 9_rgb.pgm and more/9_rgb.pgm would both be member" "$dtrain" pack flat d.tar --pattern '{id}_{member}.pgm' --group id
rm -r flat/more
# transforms see every member, and training reads them
expect 0 "packed 3 records" "$dtrain" pack raw e.lmdb --pattern "$pattern" --group id --encode png
cat >c.yaml <<'END'
run: {name: r}
device: {kind: cpu, threads: 1}
data:
  path: e.lmdb
  fields:
    first: {kind: image, source: band1, channels: 1, size: 32}
    last: {kind: image, source: band4, channels: 1, size: 32}
    label: {kind: class, classes: 2}
model: {name: fusion}
train: {epochs: 1, max_steps: 1, global_batch: 2, micro_batch: 2, precision: fp32}
END
expect 0 "3 samples" "$dtrain" check c.yaml

# -- rows of a table are vectors; the columns that are named are metadata
printf 'a,b,species,c\n1.5,2,setosa,-3e-2\n4,5.25,"virginica, wild",6\n7,8,setosa,9\n' >iris.csv
expect 0 "packed 3 records, 489 B, into rows.lmdb in " "$dtrain" pack iris.csv rows.lmdb --rows species
"$dtrain" data ls rows.lmdb >ls.txt
grep -q $'^0000001\tjson:[0-9]*\tnpy:140\tspecies=virginica, wild' ls.txt || fail "rows: $(cat ls.txt)"
expect 0 "packed 3 records" "$dtrain" pack iris.csv rows.tar --rows species
tar xf rows.tar && [ "$(tail -c 12 0000000.npy | od -An -tf4 | tr -s ' ')" = " 1.5 2 -0.03" ] ||
    fail "values: $(tail -c 12 0000000.npy | od -An -tf4)"
[ "$(head -c 6 0000000.npy | tail -c 5)" = NUMPY ] || fail "no NPY"
expect 3 "iris.csv: 3 rows have a value that is not a number: line 2 column 'species' 'setosa', line 3 column 'species' 'virginica, wild', line 4 column 'species' 'setosa'; name columns that are not of the vector: --rows species; --on-error skip" \
    "$dtrain" pack iris.csv x.tar --rows -
expect 2 "--rows kind: iris.csv has no column 'kind'" "$dtrain" pack iris.csv x.tar --rows kind
printf 'a,b\n1,\n' >hole.csv
expect 3 "hole.csv: 1 rows have a value that is not a number: line 2 column 'b' ''" "$dtrain" pack hole.csv x.tar --rows -
# as tables are: a mark of UTF-8, a comma at the end of lines, a missing number, a row that is shorter
printf '\xef\xbb\xbf1,2,u,\r\n3,NA,v,\r\n5,6,u,\r\n7,8\r\n' >marked.csv
sed 's/1,2,u,/a,b,y,/' marked.csv >named.csv
expect 0 "named.csv: 2 rows were left out: line 4 has 2, line 2 column 'b' 'NA'" "$dtrain" pack named.csv n.lmdb --rows y --on-error skip
"$dtrain" data ls n.lmdb >ls.txt
[ "$(cat ls.txt)" = $'0000000\tjson:9\tnpy:136\ty=u' ] || fail "rows that were left out: $(cat ls.txt)"
printf '\xef\xbb\xbf1,2\n3,4\n' >marked.csv
expect 0 "packed 2 records" "$dtrain" pack marked.csv m.lmdb --rows -

# -- without names, separated by blanks, labels in a second file (UCI HAR, UCR)
printf '  1.0  2.5e+00 -3\n 4 5 6\r\n7 8 9  \n10 11 12\n' >X_train.txt
printf '5\n6\n5\n6\n' >y_train.txt
expect 0 "y_train.txt: 4 of 4 files have a row, by row" "$dtrain" pack X_train.txt har.lmdb --rows - --join y_train.txt
"$dtrain" data ls har.lmdb | cut -f4 | paste -sd' ' >ls.txt
[ "$(cat ls.txt)" = "label=5 label=6 label=5 label=6" ] || fail "labels of a second file: $("$dtrain" data ls har.lmdb)"
printf '5\n6\n' >short.txt
expect 3 "short.txt: has 2 rows, and X_train.txt has 4" "$dtrain" pack X_train.txt x.tar --rows - --join short.txt
# a label in the first column (UCR)
expect 0 "packed 4 records" "$dtrain" pack X_train.txt ucr.tar --rows 0
"$dtrain" data ls ucr.tar | grep $'npy:136\t0=' >/dev/null || fail "a column by number: $("$dtrain" data ls ucr.tar)"
# the vectors are delivered
cat >v.yaml <<'END'
run: {name: v}
data:
  path: har.lmdb
  fields:
    x: {kind: vector, source: npy, size: 3, normalize: {mean: [6], std: [4]}}
    label: {kind: class}
  split: {val: "label is not null"}
model: {name: mlp, hidden: 16}
train: {global_batch: 4, micro_batch: 4, epochs: 200, optimizer: {name: adamw, lr: 0.01}, schedule: {name: constant}}
device: {kind: cpu, threads: 1}
END
expect 0 "0000000" "$dtrain" data order v.yaml data.split=
# and learned from
py make
"$dtrain" pack X.txt xor.lmdb --rows - --join y.txt 2>/dev/null
expect 0 "" "$dtrain" v.yaml run.name=xor data.path=xor.lmdb data.fields.x.size=4 data.fields.x.normalize= data.split.val=0.2 \
    train.global_batch=32 train.micro_batch=32 train.epochs=60 "eval.metrics=[accuracy]"
accuracy=$(grep -o '"accuracy":[0-9.]*' runs/xor/metrics.jsonl | tail -1 | cut -d: -f2)
"$python" -c "import sys; sys.exit(not float('${accuracy:-0}') > 0.8)" || fail "the vectors teach nothing: accuracy ${accuracy:-none}"
# what is missing is told
grep -v '^    label:' v.yaml >plain.yaml
expect 2 "wants fields of numbers (kind: vector or real) in data.fields beside its target, x; there are none. To predict a class" "$dtrain" check plain.yaml data.split=
sed 's/{kind: vector, source: npy, size: 3, normalize: {mean: \[6\], std: \[4\]}}/{kind: real, source: label}/' plain.yaml >real.yaml
expect 2 "field x is a number, which these take: bce, mse, l1, smooth_l1, huber, poisson. To predict a class, add it to data.fields" "$dtrain" check real.yaml data.split=
expect 2 "train.targets: {label: {loss: cross_entropy}, …}" "$dtrain" check v.yaml data.split= "data.fields.y={kind: vector, source: npy, size: 3}"
expect 2 "wants fields of numbers (kind: vector or real)" "$dtrain" check c.yaml model.name=mlp
echo OK
