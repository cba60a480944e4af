#!/usr/bin/env bash
# dtrain pack on 1, 2 and 3 ranks and on several threads: the same bytes; so after ranks were killed, and
# an error of one rank is an error of all with one line.
. "${SOURCE:?}/tests/small_run.sh" || exit
need_mpi
cd "$work"

py make

sum_of() { # everything a set has
    cat "$@" | sha256sum | cut -c1-16
}
lmdb_sum() { sum_of "$1"/data.mdb "$1"/data.mdb.index; }
tar_sum() { sum_of "$1"/s-?.tar "$1"/s-?.tar.index; }

pack() { # output, options
    "$DTRAIN" pack raw "$@" >out 2>log || fail "pack $*: exit $?"
}
pack_on() { # ranks, output, options
    local np=$1
    shift
    "${ranks[@]}" "$np" "$DTRAIN" pack raw "$@" >out 2>log || fail "pack $* on $np ranks: exit $?"
    ! grep -q "reachable pairing" log || fail "Open MPI (5) compares families of addresses on one host"
}

mkdir one
pack one.lmdb --threads 1
pack 'one/s-{0..4}.tar' --threads 1
lmdb=$(lmdb_sum one.lmdb) tar=$(tar_sum one)
for name in np1-2 np2-1 np3-2; do # ranks, threads
    mkdir "$name"
    pack_on ${name:2:1} "$name.lmdb" --threads ${name#*-}
    [ "$(lmdb_sum "$name.lmdb")" = "$lmdb" ] || fail "the LMDB of $name has other bytes"
    pack_on ${name:2:1} "$name/s-{0..4}.tar" --threads ${name#*-}
    [ "$(tar_sum "$name")" = "$tar" ] || fail "shards of $name have other bytes"
    [ -z "$(ls -d ./*.partial "$name"/*.partial 2>/dev/null)" ] || fail "something is left over"
done
echo "1, 2 and 3 ranks write the same bytes"

# done already: nobody waits for anybody
pack_on 2 np2-1.lmdb
grep -q "already packed" log || fail "not found to be done"
# keys by the names of shards that repeat them
cp -r one again
for np in 1 3; do
    "${ranks[@]}" $np "$DTRAIN" pack '{one,again}/s-{0..1}.tar' keys$np.lmdb --key-by-shard >out 2>log || fail "--key-by-shard on $np ranks"
done
[ "$(lmdb_sum keys1.lmdb)" = "$(lmdb_sum keys3.lmdb)" ] || fail "--key-by-shard depends on the ranks"
# without twins
pack one-drop.lmdb --duplicates drop
pack_on 3 np3-drop.lmdb --duplicates drop
[ "$(lmdb_sum one-drop.lmdb)" = "$(lmdb_sum np3-drop.lmdb)" ] || fail "--duplicates drop depends on the ranks"
[ "$(lmdb_sum one-drop.lmdb)" != "$lmdb" ] || fail "--duplicates drop dropped nothing"

# ranks killed at some of their write calls, then another number of ranks goes on
for n in 9 31 36 42 ${FULL:+30 33 39 45}; do
    rc=0
    DTRAIN_FAILPOINT=io:$n:kill "${ranks[@]}" 2 "$DTRAIN" pack raw killed.lmdb >out 2>log || rc=$?
    [ ! -e killed.lmdb ] || [ "$(lmdb_sum killed.lmdb)" = "$lmdb" ] || fail "half a set after a kill at call $n"
done
pack_on $((RANDOM % 3 + 1)) killed.lmdb
[ "$(lmdb_sum killed.lmdb)" = "$lmdb" ] || fail "after kills the bytes differ"
mkdir killed
for n in 12 40 44 ${FULL:+25 41 47}; do
    rc=0
    DTRAIN_FAILPOINT=io:$n:kill "${ranks[@]}" 3 "$DTRAIN" pack raw 'killed/s-{0..4}.tar' >out 2>log || rc=$?
    [ $rc != 0 ] || [ "$(tar_sum killed)" = "$tar" ] || fail "a pack that was killed at call $n says it is done"
done
pack_on 2 'killed/s-{0..4}.tar'
[ "$(tar_sum killed)" = "$tar" ] || fail "after kills the bytes of shards differ"

# what is wrong with the command line or the data is one line, from rank 0, and the right exit code
wrong() { # exit code, text, arguments
    local want=$1 text=$2 rc=0
    shift 2
    timeout 60 "${ranks[@]}" 3 "$DTRAIN" pack "$@" >out 2>log || rc=$?
    [ $rc = "$want" ] || fail "exit $rc, not $want: pack $*"
    [ "$(grep -c "$text" log)" = 1 ] || fail "not one line of '$text': pack $*"
}
wrong 2 "exists, and was packed by another command" raw np2-1.lmdb --duplicates drop
wrong 3 "no such folder" nowhere x.lmdb
wrong 2 "the output ends in" raw x.zip
mkdir cut && printf 'RIFF\044\0\0\0WAVE' >cut/a.wav
wrong 3 "cut/a.wav" cut cut.lmdb --segment 1
chmod 000 raw/c1/f103.npy
[ "$(id -u)" = 0 ] || wrong 3 "f103.npy: cannot open" raw unreadable.lmdb
chmod 644 raw/c1/f103.npy
# a rank that cannot write ends the job, and says why
rc=0
DTRAIN_FAILPOINT=io:14:enospc timeout 60 "${ranks[@]}" 2 "$DTRAIN" pack raw full.lmdb >out 2>log || rc=$?
[ $rc = 5 ] || [ $rc = 0 ] || fail "a full disk: exit $rc"
[ $rc = 0 ] || grep -q "No space left on device" log || fail "a full disk is not named: $(cat log)"
pack_on 2 full.lmdb
[ "$(lmdb_sum full.lmdb)" = "$lmdb" ] || fail "after a full disk the bytes differ"
echo "kills, full disks and wrong words: one line, the same bytes in the end"
