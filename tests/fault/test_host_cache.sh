#!/usr/bin/env bash
# The host's cache of a set by URL: the ranks of a host fetch each byte once, a later run none; a run that was killed while it
# fetched goes on; a cache that is too small, damaged or read-only takes no bits: weights are those of the local set.
. "${SOURCE:?}/tests/fault/by_url.sh" || exit
serve --bytes "$work/bytes" --count "$work/count"
size=$(cat "$work"/bucket/set-*.tar | wc -c)
heads=$((2 * 8192)) ends=$((2 * 12288)) # of both shards: what each process reads when it opens them, and what one does
objects=$work/cache/dtrain/objects

job() { # ranks, run, words: weights
    local np=("${ranks[@]}" "$1")
    [ "$1" -gt 1 ] || np=()
    "${np[@]}" "$DTRAIN" "$config" run.name="$2" "${@:3}" >"$work/log" 2>&1 || fail "$2: exit $?"
    hash "$work/runs/$2"
}
sent() { # bytes since the last call
    local now
    now=$(cat "$work/bytes")
    echo $((now - ${before:-0}))
}
look() { before=$(cat "$work/bytes" 2>/dev/null || echo 0); }
same() { # weights, those expected, what
    [ "$1" = "$2" ] || fail "other weights $3"
}
fetched() { # at least, at most, what
    local n
    n=$(sent)
    echo "$3: $n bytes of $size were sent"
    [ "$n" -ge "$1" ] && [ "$n" -le "$2" ] || fail "$3: $n bytes were sent"
}

n_ranks=1
! have_mpi || n_ranks=2
local=$(job "$n_ranks" local)
look
same "$(job "$n_ranks" once data.path="$url")" "$local" "by URL"
fetched $((size * 9 / 10)) $((size + n_ranks * heads + ends)) "$n_ranks ranks, two epochs"
look
asked=$(cut -d' ' -f1 "$work/count")
same "$(job "$n_ranks" again data.path="$url" data.shuffle=global)" "$(job "$n_ranks" shuffled data.shuffle=global)" "of the next run"
fetched 0 $((n_ranks * heads)) "a later run"
[ $(($(cut -d' ' -f1 "$work/count") - asked)) = $((2 * n_ranks)) ] || fail "a later run asked $asked, $(cat "$work/count")"
look
job "$n_ranks" none data.path="$url" data.cache=none >/dev/null
fetched $((size * 3 / 2)) $((3 * size)) "without a cache"

# killed while it fetches: the run that comes next gets the same weights, and does not fetch what was whole
rm -rf "$objects" # not what kernels were chosen: others have other bits
"$DTRAIN" "$config" run.name=killed data.path="$url" >/dev/null 2>&1 &
killed=$!
kept() { # whole blocks, which have rows in the file's first page, at most a MiB each
    "$python" -c "
import glob, sys
heads = [open(f, 'rb').read(4096) for f in glob.glob(sys.argv[1] + '/????????????????')]
print(sum(any(h[i:i + 16]) for h in heads for i in range(0, 4096, 16)))" "$objects"
}
has_some() { [ "$(kept)" -ge 2 ]; }
wait_until has_some
kill -9 "$killed" 2>/dev/null || true
wait "$killed" 2>/dev/null || true
rm -rf "$work/runs/killed"
whole=$((($(kept) - 2) << 20)) # the last blocks of both shards are smaller
alone=$(job 1 alone)
look
same "$(job 1 killed data.path="$url")" "$alone" "after a kill"
fetched 0 $((size - whole + heads + 100000)) "after a kill that left $whole"

# damaged
for file in "$objects"/????????????????; do
    printf 'xx' | dd of="$file" bs=1 seek=1500000 conv=notrunc 2>/dev/null
done
same "$(job 1 damaged data.path="$url")" "$alone" "of a damaged cache"
grep -q 'bytes of the cache are not those that were fetched' "$work/log" || fail "damage was not noticed"

# too small; not writable: as a file is in its place
rm -rf "$objects" # not what kernels were chosen: others have other bits
same "$(job 1 little data.path="$url" data.cache_size=2MiB)" "$alone" "with a small cache"
grep -q 'the cache is full (data.cache_size)' "$work/log" || fail "a full cache is not said"
[ "$(du -s --block-size=1 "$objects" | cut -f1)" -le 2200000 ] || fail "the cache outgrew its size"
echo >"$work/file"
# the choice of kernels has no place either: none is chosen
direct=$(job 1 direct device.winograd=off)
same "$(job 1 nowhere data.path="$url" data.cache_dir="$work/file" device.winograd=off)" "$direct" "without a place for a cache"
grep -q 'continuing without data.cache' "$work/log" || fail "$(cat "$work/log")"
