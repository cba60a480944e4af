#!/usr/bin/env bash
# data.split: parts that are given (expressions, sets, a file) or shares of the rest; what is told of mistakes; split.csv
# and `dtrain data order --split`.
. "${SOURCE:?}/tests/expect.sh" || exit
order() { "$dtrain" data order c.yaml "$@" 2>/dev/null | sed '/^#/d; 1,/^sample/{/^sample/d}' | cut -f2; }

# 3 classes, 20 pictures each in train, 5 in test; the names repeat. n = speaker of the file
mkdir raw
for part in train:20 test:5; do
    for class in a b c; do
        mkdir -p "raw/${part%:*}/$class"
        for i in $(seq "${part#*:}"); do printf 'P5 2 2 255\n%c%c%c%c' 1 2 3 4 >"raw/${part%:*}/$class/${i}_s$((i % 4)).pgm"; done
    done
done
cat >c.yaml <<'END'
run: {name: r}
device: {kind: cpu, threads: 1}
data:
  path: [raw/train, raw/test]
  fields:
    image: {kind: image, channels: 1, size: [32, 32]}
    label: {kind: class}
  split:
    test: "set = 'test'"
    val: 0.1
model: {name: resnet, depth: 18, width: 4}
train: {epochs: 1, max_steps: 1, global_batch: 4, micro_batch: 4, precision: fp32}
END

# -- an official test set, and a share of the rest; names that repeat in both sets do not matter
"$dtrain" check c.yaml >out.txt 2>&1 || fail "check: $(cat out.txt)"
grep -qF "train 54, val 6, test 15" out.txt || fail "an official test set: $(cat out.txt)"

# -- a list of its samples with counts of classes
"$dtrain" data order c.yaml --split test data.split.stratify=label >list.txt 2>err.txt || fail "--split: $(cat err.txt)"
grep -qxF "# test: 15 of 75 samples" list.txt || fail "--split: $(head -5 list.txt)"
for class in a b c; do grep -qxF $'# label\t'$class$'\t5' list.txt || fail "counts: $(head list.txt)"; done
[ "$(grep -c "^[0-9]" list.txt)" = 15 ] || fail "--split lists $(grep -c "^[0-9]" list.txt)"
[ "$(order --split test data.split.test="set = 'test' and key like 'b/%'" | sort -u | cut -c1)" = $'b\nb\nb\nb\nb' ] || fail "b only"
expect 2 "'dev' is not one of train|val|test" "$dtrain" data order c.yaml --split dev

# -- strata
"$dtrain" data order c.yaml --split val data.split.stratify=label 2>/dev/null | grep '^# label' | cut -f3 | sort -u >n.txt
[ "$(cat n.txt)" = 2 ] || fail "a stratified share of the rest: $(cat n.txt)"

# -- the split does not follow run.seed, but its own; and not the number of ranks
order --split val >one.txt
order --split val run.seed=7 | cmp - one.txt || fail "run.seed changes the split"
! order --split val data.split.seed=7 | cmp -s - one.txt || fail "data.split.seed changes nothing"

# -- units of two columns: no speaker of a class in two parts, though each speaker and class is in all of them
pattern() { "$dtrain" pack raw p.lmdb --pattern '{part}/{label}/{n}_s{speaker}.pgm' 2>/dev/null; }
pattern || fail "pack"
sed 's/path: .*/path: p.lmdb/; /^  split:/,/val:/d' c.yaml >p.yaml
both=(data.split.val=0.2 data.split.test=0.2 "data.split.unit=[label, speaker]")
for part in train val test; do
    "$dtrain" data order p.yaml --split $part "${both[@]}" 2>/dev/null | grep '^[0-9]' | cut -f2 |
        sed 's,.*\(test\|train\)/\(.\)/.*_s,\2,' | sort -u >$part.txt
    [ -s $part.txt ] || fail "no $part"
done
[ "$(sort train.txt val.txt test.txt | uniq -d)" = "" ] || fail "a unit is in two parts"
[ "$(cat train.txt val.txt test.txt | wc -l)" = 12 ] || fail "units: $(cat train.txt val.txt test.txt)"
for fold in 0 1 2; do
    "$dtrain" data order p.yaml --split test data.split.folds=3 data.split.fold=$fold "data.split.unit=[label, speaker]" 2>/dev/null |
        grep '^[0-9]' | cut -f2 | tee fold$fold.txt
done | sort >folds.txt
[ "$(uniq folds.txt | wc -l)" = 75 ] && [ "$(wc -l <folds.txt)" = 75 ] || fail "folds do not cover all once"
# as in scikit-learn's GroupKFold no group is in two folds
for fold in 0 1 2; do sed 's,.*\(test\|train\)/\(.\)/.*_s,\2,' fold$fold.txt | sort -u; done | sort >groups.txt
[ "$(uniq -d groups.txt)" = "" ] && [ "$(wc -l <groups.txt)" = 12 ] || fail "groups of folds: $(cat groups.txt)"

# -- folds that came with the data: the value is the fold's name; one without a value always trains
official=(data.split.val=0.1 data.split.folds_by=speaker)
for fold in 0 1 2 3; do
    "$dtrain" data order p.yaml --split test "${official[@]}" data.split.fold=$fold 2>/dev/null | grep '^[0-9]' | cut -f2 >fold.txt
    [ "$(sed 's/.*_s//; s/[^0-9].*//' fold.txt | sort -u)" = $fold ] || fail "fold $fold: $(cat fold.txt)"
    cat fold.txt >>official.txt
done
sort official.txt >folds.txt
[ "$(uniq folds.txt | wc -l)" = 75 ] && [ "$(wc -l <folds.txt)" = 75 ] || fail "official folds do not cover all once"
"$dtrain" data order p.yaml --split test "${official[@]}" 2>/dev/null | grep '_s0' >/dev/null || fail "the first fold is the default"
expect 2 "data.split.fold: column speaker has no 4; it has 0, 1, 2, 3" "$dtrain" check p.yaml "${official[@]}" data.split.fold=4
expect 2 "one of both" "$dtrain" check p.yaml "${official[@]}" data.split.folds=3
expect 2 "data.split.folds_by: column 'half' holds numbers, which name no groups" "$dtrain" check p.yaml data.split.folds_by=half data.columns.half=speaker/2
expect 2 "data.split.folds_by: no record has a value of column w" "$dtrain" check p.yaml data.split.folds_by=w data.columns.w=speaker/0
for key in folds_by unit stratify; do
    expect 2 "data.split.$key: no record that data.where keeps has a value of column w" "$dtrain" check p.yaml data.split.val=0.1 data.split.$key=w \
        data.where='speaker > 0' "data.columns.w=case when speaker = 0 then 'a' end"
done
expect 2 "data.split.test: none of the 75 records fits w = 'b'" "$dtrain" check p.yaml "data.split.test=w = 'b'" data.columns.w=speaker/0
expect 2 "has no value in column w, the sampling weight" "$dtrain" check p.yaml data.weight=w data.columns.w=speaker/0
expect 2 "has '-1' in column w, the sampling weight: a weight is a number that is not negative" "$dtrain" check p.yaml data.weight=w data.columns.w=0-1
expect 2 "has '-0.5' in column w" "$dtrain" check p.yaml data.weight=w "data.columns.w='0 - 0.5'"
expect 2 "has all fields; none has a value of w" "$dtrain" check p.yaml data.columns.w=speaker/0 data.fields.w='{kind: real}'
# -1 is no fold, as in scikit-learn's PredefinedSplit: it always trains
minus=(data.split.folds_by=f "data.columns.f=case when speaker = 0 then '-1' when speaker < 3 then '5' else '6' end")
"$dtrain" data order p.yaml --split test "${minus[@]}" 2>/dev/null | grep '^[0-9]' | cut -f2 | sed 's/.*_s//' | sort -u | paste -sd' ' >fold.txt
[ "$(cat fold.txt)" = "1 2" ] || fail "the first fold but -1: $(cat fold.txt)"
expect 2 "data.split.fold: column f has no -1; it has 5, 6" "$dtrain" check p.yaml "${minus[@]}" data.split.fold=-1
expect 2 "column f has no fold; it has only -1, whose records always train" "$dtrain" check p.yaml data.split.folds_by=f "data.columns.f='-1'"
expect 2 "a fold is the test split" "$dtrain" check p.yaml "${official[@]}" data.split.test="part = 'test'"
expect 2 "holds records of fold 1" "$dtrain" check p.yaml "${official[@]}" data.split.fold=1 data.split.val="speaker < 2"
derive='data.columns.half="case when speaker > 1 then upper(label) || speaker end"'
"$dtrain" data order p.yaml --split test data.split.folds_by=half data.split.fold=B3 "$derive" 2>/dev/null | grep '^[0-9]' |
    cut -f2 >fold.txt
[ "$(sed 's,.*\(test\|train\)/,,; s,/.*_s\([0-9]\).*,\1,' fold.txt | sort -u)" = b3 ] || fail "derived folds: $(cat fold.txt)"
"$dtrain" data order p.yaml --split train data.split.folds_by=half data.split.fold=B3 "$derive" 2>/dev/null | grep '_s1' >/dev/null ||
    fail "records without a fold do not train"

# -- derived columns as target, stratum, unit, weight and in data.where
cat >d.yaml <<'END'
run: {name: d}
device: {kind: cpu, threads: 1}
data:
  path: p.lmdb
  columns:
    is_a: "label = 'a'"
    pair: "floor(number(speaker) / 2)"
    share: "case when is_a = 'true' then 1.5 else 0.5 end"
    name: "substr(key, 1, 2)"
  where: "name = 'tr'"
  weight: share
  fields:
    image: {kind: image, channels: 1, size: [32, 32]}
    is_a: {kind: class}
  split: {unit: pair, val: 0.5}
model: {name: resnet, depth: 18, width: 4}
train: {epochs: 1, max_steps: 1, global_batch: 4, micro_batch: 4, precision: fp32}
END
"$dtrain" data order d.yaml --split val data.split.stratify=is_a 2>/dev/null >list.txt || fail "derived columns: $(cat list.txt)"
[ "$(grep '^[0-9]' list.txt | sed 's/.*_s\([0-9]\).*/\1/' | sort -u | tr -d '\n')" = 01 ] ||
    [ "$(grep '^[0-9]' list.txt | sed 's/.*_s\([0-9]\).*/\1/' | sort -u | tr -d '\n')" = 23 ] || fail "a derived unit: $(cat list.txt)"
grep -qxF $'# is_a\ttrue\t10' list.txt || fail "a derived target: $(head list.txt)"
"$dtrain" d.yaml >/dev/null 2>err.txt || fail "a run with derived columns: $(cat err.txt)"
"$dtrain" eval runs/d --split val >/dev/null 2>err.txt || fail "eval with derived columns: $(cat err.txt)"
"$dtrain" predict runs/d p.lmdb -o d.csv 2>err.txt || fail "predict with derived columns: $(cat err.txt)"
"$dtrain" predict runs/d raw -o d.csv 2>err.txt || fail "predict on a set without their columns: $(cat err.txt)"
expect 2 'command line: data.columns.is_a: expression, character 1: the set has no column' "$dtrain" check d.yaml data.columns.is_a="lable = 'a'"
expect 2 "data.columns.label: the set has a column 'label' already" "$dtrain" check d.yaml data.columns.label=1
expect 2 "data.columns was" "$dtrain" d.yaml data.columns.is_a="label = 'b'"

# -- held-out speakers by an expression; a unit that it divides is told
held=("data.split.unit=speaker" "data.split.test=speaker in (1, 2)" data.split.val=0.5)
for part in train val test; do order_of=$("$dtrain" data order p.yaml --split $part "${held[@]}" 2>/dev/null | grep '^[0-9]' |
    sed 's/.*_s\([0-9]\).*/\1/' | sort -u | tr -d '\n'); printf '%s\n' "$order_of"; done >speakers.txt
[ "$(sed -n 3p speakers.txt)" = 12 ] || fail "held-out speakers: $(cat speakers.txt)"
[ "$(head -2 speakers.txt | sort | tr -d '\n')" = 03 ] || fail "the rest of the speakers: $(cat speakers.txt)"
expect 2 "data.split.unit: the records with speaker = " "$dtrain" check p.yaml data.split.test="part = 'test'" \
    data.split.unit=speaker

# -- empty members of a foreign tar do not make one bad picture another file
mkdir empty
for i in $(seq 10 29); do
    : >empty/$i.a.txt
    printf "$((i % 2))" >empty/$i.cls
    { printf 'P5 2 2 255\nabcd'; } >empty/$i.pgm
done
printf 'P5 2 2 255\n' >empty/20.pgm
tar -C empty --sort=name -cf empty.tar .
"$dtrain" p.yaml run.name=empty data.path=empty.tar data.fields.label="{kind: class, source: cls}" train.max_steps=10 \
    data.on_error=skip >out.txt 2>&1 || fail "empty members: $(cat out.txt)"
grep -q '20.*pgm' runs/empty/skipped.rank0 || fail "empty members: $(cat out.txt)"

# -- mistakes, with the key's place
with() { { sed '/^  split:/,/val:/d; /^model:/,$d' c.yaml && printf '  split:\n    val: %s\n    test: %s\n' "$1" "$2" && sed -n '/^model:/,$p' c.yaml; } >m.yaml; }
with 0.1 '"set = '"'tset'"'"'
expect 2 "m.yaml:10:11: data.split.test: none of the 75 records fits set = 'tset'" "$dtrain" check m.yaml
with '"label = '"'a'"'"' '"set = '"'test'"'"'
expect 2 "m.yaml:10:11: data.split.test: 5 of its 15 records are in data.split.val too, such as a/" "$dtrain" check m.yaml
with 0.1 '"st = '"'test'"'"'
expect 2 "m.yaml:10:11: data.split.test: expression, character 1: the set has no column 'st'; did you mean 'set'?" "$dtrain" check m.yaml
with 0.1 1.5
expect 2 "m.yaml:10:11: data.split.test is '1.5'; expected a share in 0..1, or an expression" "$dtrain" check m.yaml
expect 2 "a fold is the test split" "$dtrain" check c.yaml data.split.folds=3
"$dtrain" check c.yaml data.split.folds=3 data.split.test=0.2 >out.txt 2>&1 || fail "folds and a share: $(cat out.txt)"
grep -qF "data.split.folds: the fold is the test split, so the share of data.split.test is not used" out.txt || fail "folds and a share: $(cat out.txt)"
"$dtrain" check p.yaml data.split.val=0.2 data.split.unit=u "data.columns.u=case when speaker > 0 then speaker end" >out.txt 2>&1 || fail "units: $(cat out.txt)"
grep -qF "; 18 have no value of data.split.unit and are left out" out.txt || fail "units: $(cat out.txt)"
expect 2 "data.split.val is '20%'; expected a share in 0..1" "$dtrain" check p.yaml data.split.val=20%
expect 2 "data.split.fold: of no folds: add data.split.folds, or folds_by" "$dtrain" check p.yaml data.split.fold=0
expect 2 "falls into the test split: lower data.split.folds" "$dtrain" check p.yaml data.split.folds=100 data.split.fold=99
expect 2 "field label has only the class 'a' in the records of data.where: there is nothing to learn" "$dtrain" check p.yaml data.where="label = 'a'"
"$dtrain" data order p.yaml data.where="label = 'a'" >out.txt 2>&1 || fail "one class is no mistake of data order: $(cat out.txt)"
expect 2 "column 'half' holds numbers with a point, which are no classes; data.columns makes some, such as {half_class: floor(half)}" \
    "$dtrain" check p.yaml data.columns.half=speaker/2 data.fields.label="{kind: class, source: half}"
expect 2 "no metadata column 'speakr'" "$dtrain" check p.yaml "data.split.unit=[label, speakr]"

# -- folders train and test that nobody told apart
expect_say() { # expect_say TEXT COMMAND…
    local text=$1
    shift
    "$@" >out.txt 2>&1 || fail "$*: $(cat out.txt)"
    grep -qF -- "$text" out.txt || fail "$*: '$(cat out.txt)' does not say '$text'"
}
sed '/^  split:/,/val:/d' c.yaml >none.yaml
expect_say "split: {val: 0.1, test: \"set = 'test'\"}" "$dtrain" check none.yaml
expect_say "split: {val: 0.1, test: \"key like 'test/%'\"}" "$dtrain" check none.yaml data.path=raw
expect_say "train 54, val 6, test 15" "$dtrain" check none.yaml data.path=raw \
    data.split="{val: 0.1, test: \"key like 'test/%'\"}"
! grep -q "at its top" out.txt || fail "a split is given: $(cat out.txt)"

# -- split.csv: what a run had, and what data.split.file takes
"$dtrain" c.yaml >/dev/null 2>&1 || fail "train"
[ "$(head -1 runs/r/split.csv)" = key,set,part ] || fail "split.csv: $(head -3 runs/r/split.csv)"
[ "$(cut -d, -f3 runs/r/split.csv | sort | uniq -c | awk '{printf "%s %s ", $1, $2}')" = "1 part 15 test 54 train 6 val " ] ||
    fail "split.csv: $(cut -d, -f3 runs/r/split.csv | sort | uniq -c)"
cp runs/r/split.csv list.csv
sed 's/^  split:/  split: {file: list.csv}/; /    test:/d; /    val: 0/d' c.yaml >f.yaml
order --split val >one.txt
"$dtrain" data order f.yaml --split val 2>/dev/null | grep '^[0-9]' | cut -f2 | cmp - one.txt || fail "data.split.file gives another split"
# what the file does not list is in no part, also where data.where leaves out what it lists
grep -v '^c/' list.csv >few.csv
expect_say "train 36, val 4, test 10; 25 are not in data.split.file" "$dtrain" check f.yaml data.split.file=few.csv
expect_say "train" "$dtrain" check f.yaml "data.where=label != 'c'"
! grep -q "not in data.split.file" out.txt || fail "data.where: $(cat out.txt)"
sed '3s/,[a-z]*$/,tran/' list.csv >bad.csv
expect 2 "data.split.file: bad.csv:3: part 'tran' of " "$dtrain" check f.yaml data.split.file=bad.csv
sed '5s,^,x/,' list.csv >bad.csv
expect 2 "bad.csv:5: the data set has no record 'x/" "$dtrain" check f.yaml data.split.file=bad.csv
{ cat list.csv && sed -n 2p list.csv | sed 's/,[a-z]*$/,test/'; } >bad.csv
expect 2 "bad.csv:77: '" "$dtrain" check f.yaml data.split.file=bad.csv
sed -i 1s/key/name/ list.csv
expect 2 "f.yaml:8:17: data.split.file: list.csv: has no column \`key\`" "$dtrain" check f.yaml

# -- records that repeat others: seen by stored hashes and by column duplicate_of, kept together by unit: content
mkdir twins
for i in $(seq 40); do # 30 pictures, 10 of them twice, in another class
    mkdir -p "twins/$((i % 2))"
    printf 'P5 2 2 255\n%04d' $(((i - 1) % 30)) >"twins/$((i % 2))/$i.pgm"
done
for i in 31 32 33 34 35; do mv "twins/$((i % 2))/$i.pgm" "twins/$(((i + 1) % 2))/"; done
"$dtrain" pack twins twins.lmdb 2>/dev/null || fail "pack twins"
sed '/^  split:/,/val:/d; s/path: .*/path: twins.lmdb\n  split: {val: 0.3, test: 0.2}/' c.yaml >t.yaml
copies() { "$dtrain" check "$@" 2>&1 | grep "of val and test repeat records of training"; }
copies t.yaml | grep -E "[1-9][0-9]* records of val and test repeat records of training, such as .* \(of .*\): data.split.unit: content" >/dev/null || fail "no copies: $(copies t.yaml)"
! copies t.yaml data.split.unit=content || fail "copies: $(copies t.yaml data.split.unit=content)"
"$dtrain" check t.yaml data.split.unit=content 2>&1 | grep -E "40 samples: train (1[6-9]|2[0-4]), val" >/dev/null || fail "shares: $("$dtrain" check t.yaml data.split.unit=content 2>&1 | grep samples)"
# by the column alone, where nothing has a hash
find twins -name '*.pgm' | sort -V | awk -F/ 'BEGIN { print "path,label,duplicate_of" }
    { n = $3 + 0; print $0 "," $2 "," (n > 30 ? key[n - 30] : ""); sub(/\.pgm$/, ""); key[n] = $0 }' >twins.csv
sed 's/path: .*/path: twins.csv/' t.yaml >u.yaml
cut -d, -f1,2 twins.csv >plain.csv
sed 's/path: .*/path: plain.csv/' t.yaml >v.yaml
expect 0 "" "$dtrain" check v.yaml
! copies v.yaml || fail "copies without a hash"
expect 2 "data.split.unit: content: the set has no hashes" "$dtrain" check v.yaml data.split.unit=content
copies u.yaml >/dev/null || fail "no copies by duplicate_of: $("$dtrain" check u.yaml 2>&1; head -3 twins.csv; tail -3 twins.csv; "$dtrain" data ls u.yaml)"
! copies u.yaml data.split.unit=content || fail "copies by duplicate_of"
echo OK
