#!/usr/bin/env bash
# dtrain pack: names of members that other readers find; empty and damaged files; and what it says: where columns come
# from, why OUT is refused, what stays when it is stopped.
. "${SOURCE:?}/tests/expect.sh" || exit
members() { "$dtrain" data ls "$1" | tr '\t' '\n' | sed -n 's/^\([a-z0-9.]*\):[0-9]*$/\1/p' | sort -u | paste -sd' '; }
picture() { mkdir -p "$(dirname "$1")" && printf 'P5 2 2 255\n%s' "${2:-abcd}" >"$1"; }

# -- members: by extension, unless {member} or folders of their own alternatives tell fields apart
for part in train test; do for n in 1 2; do picture raw/$part/cat_$n.pgm $part$n; picture raw/$part/dog_$n.pgm $n$part; done; done
"$dtrain" pack raw a.tar --pattern '{label}_{n}.pgm' 2>/dev/null
[ "$(members a.tar)" = "json pgm" ] || fail "an uncaptured folder names members: $(members a.tar)"
"$dtrain" pack raw b.tar --pattern '{part}/{label}_{n}.pgm' 2>/dev/null
[ "$(members b.tar)" = "json pgm" ] || fail "a captured folder names members: $(members b.tar)"
"$dtrain" pack raw c.tar --pattern 'train/{label}_{n}.pgm|test/{label}_{n}.pgm' 2>/dev/null
[ "$(members c.tar)" = "json test.pgm train.pgm" ] || fail "folders of their own alternatives: $(members c.tar)"
"$dtrain" pack raw d.tar --pattern '{member}/{label}_{n}.pgm' 2>/dev/null
[ "$(members d.tar)" = "json test.pgm train.pgm" ] || fail "{member}: $(members d.tar)"
! "$dtrain" data stat d.tar | grep "^column member" >/dev/null || fail "{member} is a column too"
if "$python" -c 'import webdataset' 2>/dev/null; then
    "$python" -c 'import webdataset as w; assert len(list(w.WebDataset("a.tar", shardshuffle=False).to_tuple("pgm", "json"))) == 8' ||
        fail "webdataset does not find pgm"
fi

# -- a row of several files, as they have one stem
printf 'id,n\ncat_1,5\ncat_2,6\ndog_1,7\ndog_2,8\n' >stems.csv
expect 0 "4 rows went to several files: stems.csv:2: 'cat_1' fits test/cat_1.pgm and train/cat_1.pgm, " \
    "$dtrain" pack raw stems.tar --pattern '{part}/{id}.pgm' --join stems.csv
expect 3 "4 rows went to several files: stems.csv:2: " \
    "$dtrain" pack raw strict.tar --pattern '{part}/{id}.pgm' --join stems.csv --join-strict
expect 0 "by id" "$dtrain" pack raw strict.tar --pattern '{part}/{id}.pgm' --join stems.csv --join-strict --join-on id

# -- classes by folder and a table: its columns stand beside the label of the folder; its own label is the only one
columns() { "$dtrain" data ls "$1" | tr '\t' '\n' | sed -n 's/^\(cls:[0-9]*\|[a-z]*=.*\)$/\1/p' | grep -v '^\(height\|channels\)=' | paste -sd' '; }
cls() { for key in cat/a cow/c dog/b; do tar xOf "$1" $key.cls 2>/dev/null || printf -- -; done; }
picture two/cat/a.pgm && picture two/dog/b.pgm bcde && picture two/cow/c.pgm cdef
printf 'file,age,width\na.pgm,3,\nb.pgm,4,7.5\n' >age.csv
expect 0 "age.csv: replaces column width, which headers give too" "$dtrain" pack two age.tar --join age.csv
grep -q "classes from folders: column label, 3 classes" out.txt || fail "a class by folder and a table: $(cat out.txt)"
[ "$(columns age.tar)" = "cls:1 age=3 label=cat width=2 cls:1 label=cow width=2 cls:1 age=4 label=dog width=7.5" ] ||
    fail "a class by folder and a table: $(columns age.tar)"
[ "$(cls age.tar)" = 012 ] || fail "classes by folder and a table: $(cls age.tar)"
expect 0 "packed 1 records" "$dtrain" pack two wide.tar --join age.csv --where "width > 7"
printf 'file,label\na.pgm,x\nb.pgm,y\n' >label.csv
expect 0 "label.csv: column label is the table's, so folders are not taken as classes" "$dtrain" pack two label.tar --join label.csv
[ "$(columns label.tar)" = "label=x width=2 width=2 label=y width=2" ] || fail "a table's label: $(columns label.tar)"
expect 0 "packed 8 records" "$dtrain" pack raw n.tar --pattern '{part}/{id}.pgm' --join stems.csv
[ "$(members n.tar)" = "json pgm" ] || fail "a pattern leaves no class by folder: $(members n.tar)"
# labels of a set that are corrected: member cls follows, and only then
printf 'key,label\ncat/a,emu\ndog/b,dog\n' >fix.csv
expect 0 "fix.csv: replaces column label in 2 of 3 records" "$dtrain" pack age.tar fixed.tar --join fix.csv
grep -q "fix.csv: member cls is numbered anew, in the order of labels: 3 classes" out.txt || fail "$(cat out.txt)"
[ "$(cls fixed.tar)" = 201 ] || fail "member cls does not follow label: $(cls fixed.tar)"
"$dtrain" pack fixed.tar one.tar --where "label != 'cow'" 2>/dev/null
printf 'key,label\ncat/a,emu\n' >emu.csv
expect 0 "packed 2 records" "$dtrain" pack one.tar same.tar --join emu.csv
[ "$(cls same.tar)" = 2-1 ] || fail "member cls changes though no label does: $(cls same.tar)"
# nothing fits
printf 'file,age\na.png,3\n' >png.csv
expect 3 "column 'file' has png.csv:2 'a.png', files are called cat/a.pgm; --join-on COLUMN takes another column, which must have names (a.jpg), stems or keys" \
    "$dtrain" pack two p.tar --join png.csv
printf 'file,age\na.pgm,3,4\nb.pgm,3,5\n' >more.csv
expect 3 "more.csv: 2 rows do not have 2 fields as the first line: line 2 has 3, line 3 has 3" "$dtrain" pack two p.tar --join more.csv --on-error skip

# -- SRC may be a URL that is read, OUT only in a bucket, and no folder is made that is called like one
expect 2 "https://h/a.tar: dtrain pack writes files, and into buckets" "$dtrain" pack raw https://h/a.tar
expect 2 "ftp://h/a.tar: only files, by their path, and http://" "$dtrain" pack ftp://h/a.tar g.tar
[ ! -e s3: ] || fail "a folder s3:"

# -- empty files: alike in a folder and a list
mkdir -p hole/x && picture hole/x/a.pgm && : >hole/x/b.pgm && picture hole/x/c.pgm abcx
printf 'path,label\nhole/x/a.pgm,1\nhole/x/b.pgm,2\nhole/x/c.pgm,3\n' >list.csv
expect 3 "1 files are empty, the first is x/b.pgm: remove them, or leave them out with --on-error skip" "$dtrain" pack hole e.tar
expect 3 "1 files are empty, the first is hole/x/b.pgm" "$dtrain" pack list.csv e.tar
expect 0 "packed 2 records" "$dtrain" pack hole e.tar --on-error skip
expect 0 "packed 2 records" "$dtrain" pack list.csv f.tar --on-error skip
printf 'path\nno/x.pgm\n' >none.csv
expect 3 "none.csv: no row is left; left out are 1: line 2 'no/x.pgm'" "$dtrain" pack none.csv h.tar --on-error skip
[ "$("$dtrain" data ls f.tar | grep -o 'label=[0-9]' | paste -sd' ')" = "label=1 label=3" ] || fail "rows move: $("$dtrain" data ls f.tar)"
expect 2 "'never' is not one of fail|skip" "$dtrain" pack hole g.tar --on-error never
# what cannot be transformed
printf 'P5 900 900 255\nxx' >hole/x/b.pgm
expect 3 "x/b.pgm" "$dtrain" pack hole g.tar --encode png
expect 0 "1 of 3 files gave no record (--on-error skip), the first is x/b.pgm" "$dtrain" pack hole g.tar --encode png --on-error skip
grep -q "x/b.pgm: .*: left out" out.txt || fail "no reason: $(cat out.txt)"
# what a name promises and the first bytes do not
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n' >hole/x/b.pgm
printf '\xef\xbb\xbf\n  <!DOCTYPE html>\n<title>404</title>' >hole/x/c.pgm
expect 3 "hole/x/b.pgm: begins like kind lfs, not like ppm: \`git lfs pull\` fetches the file that this pointer stands for; --on-error skip leaves" "$dtrain" pack hole lfs.tar
expect 0 "2 of 3 files gave no record (--on-error skip), the first is x/b.pgm" "$dtrain" pack hole lfs.tar --on-error skip
grep -q "x/c.pgm: begins like kind html.*file again: left out" out.txt || fail "no page: $(cat out.txt)"
cp hole/x/b.pgm pointer.tar && cp hole/x/c.pgm page.tar
for verb in "pack pointer.tar lfs2.tar" "data stat pointer.tar"; do
    expect 3 "pointer.tar: one file of kind lfs, which is not read: \`git lfs pull\`" "$dtrain" $verb
done
expect 3 "page.tar: one file of kind html, which is not read" "$dtrain" data ls page.tar
# a tar of links, as tar -c of a folder of links makes it
mkdir -p links/dog links/.git && cp hole/x/a.pgm links/dog && ln -s dog links/cat && ln -s ../no.pgm links/dog/b.pgm
cp hole/x/a.pgm links/.git && cp hole/x/a.pgm links/.git/b.pgm && ln links/dog/a.pgm links/dog/c.pgm && tar -cf links.tar links
expect 0 "packed 4 records" "$dtrain" pack links.tar linked.tar
grep -q "links.tar: left out: 1 hidden (links/.git), 1 links that lead out of the tar, or in circles (links/dog/b.pgm)" out.txt || fail "$(cat out.txt)"
expect 0 "packed 4 records" "$dtrain" pack links linked2.tar
expect 0 "links: left out: 1 hidden (.git), 2 links that lead to no file (cat/b.pgm)" "$dtrain" data ls links
# read without packing, an empty file is a record that cannot be read
: >hole/x/b.pgm
[ "$("$dtrain" data ls hole | wc -l)" = 3 ] || fail "an empty file of a folder is no record"

# -- where columns come from
expect 0 "classes from folders: column label, 2 classes" "$dtrain" pack raw h.tar
grep -qF "names begin with cat, dog: where these are the classes, and folders persons or places, pack with --pattern '{person}/{label}_{n}.pgm'" \
    out.txt || fail "classes in names: $(cat out.txt)"
for name in cat/cat_1 cat/cat_2 dog/dog_1 dog/x-1; do picture alike/$name.pgm $name; done
expect 0 "column label, 2 classes" "$dtrain" pack alike alike.tar
! grep -q "names begin with" out.txt || fail "names of classes: $(cat out.txt)"
# tables: one that is joined is none of the data, and train and test sets hold rows
mkdir series && for i in 1 2 3; do printf 'x,y\n1,2\n3,%s\n' $i >series/$i.csv; done
printf 'id,age\n1,30\n2,40\n3,50\n' >series/ages.csv
expect 0 "packed 3 records" "$dtrain" pack series series.tar --join ./series/../series/ages.csv --join-on id
expect 0 "packed 4 records" "$dtrain" pack series four.tar
expect 0 "1.csv is one record, a series; to make records of its rows, name the column of their label: --rows COLUMN, or --rows -" \
    "$dtrain" pack series/1.csv one1.tar
mkdir kaggle && printf 'x,y\n1,2\n' | tee kaggle/train.csv >kaggle/test.csv
expect 2 ".csv OUT --rows COLUMN\` makes its rows records" "$dtrain" pack kaggle rows.tar
cp series/1.csv kaggle/walk.csv
expect 0 "packed 3 records" "$dtrain" pack kaggle rows.tar
"$dtrain" synth biometric bio --n 1 --impressions 1 2>/dev/null
expect 0 "columns from file names: " "$dtrain" pack bio i.tar
mkdir flat && picture flat/a.pgm && picture flat/b.pgm abce
expect 0 "so records have no label; add columns with --pattern or --join" "$dtrain" pack flat j.tar
# what every record has is no name of a column that is made
for name in key shard bytes source; do
    expect 2 "--column $name: there is a column '$name' already" "$dtrain" pack flat k.tar --column "$name=1"
done

# -- which of the reasons
"$dtrain" pack flat 'k-{0..1}.tar' 2>/dev/null
expect 2 "k-{0..1}.tar exists, and was packed by another command or version of dtrain, or" \
    "$dtrain" pack flat 'k-{0..1}.tar' --pattern '{n}.pgm'
picture flat/c.pgm abcf
expect 2 "the files of flat, or what is joined to them, changed since" "$dtrain" pack flat 'k-{0..1}.tar'
rm flat/c.pgm
printf x | dd of=k-0.tar bs=1 seek=600 conv=notrunc 2>/dev/null
touch -d '2020-01-01' k-0.tar
expect 2 "k-0.tar was changed since it was packed" "$dtrain" pack flat 'k-{0..1}.tar'
rm k-1.tar
expect 2 "exists, and " "$dtrain" pack flat 'k-{0..1}.tar'
rm -f k-0.tar && "$dtrain" pack flat 'k-{0..1}.tar' 2>/dev/null && rm k-1.tar
expect 2 "is not complete: k-1.tar is not there" "$dtrain" pack flat 'k-{0..1}.tar'
rm k-0.tar.index && cp a.tar k-1.tar
expect 2 "k-0.tar has no index that" "$dtrain" pack flat 'k-{0..1}.tar'

# -- stopped
mkdir many && for i in $(seq 60); do picture many/$i.pgm "$((i + 1000))"; done
stop() { # stop SIGNAL OUT CALL PARTIAL: packs until the call that hangs, and stops it there
    local code=0 pid
    DTRAIN_FAILPOINT=io:$3:hang env --default-signal=INT "$dtrain" pack many "$2" --threads 1 >out.txt 2>&1 &
    pid=$!
    until [ -n "$(ls "$4/set" 2>/dev/null)" ]; do kill -0 $pid || fail "ended by itself: $(cat out.txt)"; sleep 0.05; done
    kill -"$1" $pid
    wait $pid || code=$?
    [ $code = 75 ] || fail "stopped by $1: exit $code: $(cat out.txt)"
    [ -d "$4" ] || fail "$4 does not stay"
}
stop INT 'l-{0..9}.tar' 60 l.tar.partial
grep -qxF "dtrain: stopped: l.tar.partial stays; the same command resumes with the shards that are complete; or remove it" out.txt ||
    fail "INT: $(cat out.txt)"
expect 0 "packed 60 records" "$dtrain" pack many 'l-{0..9}.tar'
stop TERM l.lmdb 13 l.lmdb.partial
grep -qF "an LMDB is made as a whole, so the same command begins it again" out.txt || fail "TERM: $(cat out.txt)"
stop USR1 u.lmdb 13 u.lmdb.partial # what Slurm sends ahead of a limit

# -- where the time went, what limits it and what would help
mkdir large && for i in 1 2 3; do { printf 'P5 1500 1500 255\n' && head -c 2250000 /dev/zero; } >large/$i.pgm; done
expect 0 "thread time: read " "$dtrain" pack large large.tar --encode png --threads 1
grep -q 'read [0-9]*%, decode [0-9]*%, encode [1-9][0-9]*%, hash and copy [0-9]*% of 1 threads; write [0-9]*% of one$' out.txt &&
    grep -qE 'limited by (reading|decoding|encoding|hashes and copies|writing): [a-z-]' out.txt || fail "the builder: $(cat out.txt)"
expect 0 "nothing to do" "$dtrain" pack large large.tar --encode png --threads 1
! grep -q "thread time" out.txt || fail "times of nothing: $(cat out.txt)"
echo OK
