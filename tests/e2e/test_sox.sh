#!/usr/bin/env bash
# SoX and dtrain read each other's sounds: what SoX wrote in six containers and codecs is packed into segments,
# and SoX finds in each segment the samples that it cuts out of its own file itself. Skipped without sox.
. "${SOURCE:?}/tests/expect.sh" || exit
command -v sox >/dev/null || { echo "skipped: no sox"; exit 77; }

mkdir raw one
make() { sox -D -R -n "$@"; }
make -r 16000 -b 16 -c 1 raw/wav16.wav synth 1.2 sine 440-3000
make -r 16000 -e float -b 32 -c 1 raw/wavf.wav synth 1.2 sine 200-2000
make -r 44100 -b 16 -c 2 raw/flac.flac synth 1.2 sine 300-9000 sine 500
make -r 22050 -b 24 -c 1 raw/aiff.aiff synth 1.2 square 150
make -r 8000 -e mu-law -c 1 raw/au.au synth 1.2 sine 100-1000
make -r 16000 -c 1 raw/ogg.ogg synth 1.2 sine 700

# -- 0.5 s each; the last is filled with zeros
"$dtrain" pack raw set.tar --segment 0.5 2>log || fail "pack: $(tail -1 log)"
"$dtrain" data verify set.tar --decode >log 2>&1 || fail "verify: $(cat log)"
tar xf set.tar -C one
largest() { # the largest difference, of full scale, between two sounds that SoX reads
    sox -D -R -m -v 1 "$1" -v -1 "$2" -n stat 2>&1 | sed -n 's/^Maximum amplitude: *//p;s/^Minimum amplitude: *-\{0,1\}//p' |
        sort -g | tail -1
}
n=0
for source in raw/*; do
    name=$(basename "${source%.*}")
    within=0 # 16 bits hold these
    case $name in wavf | aiff | ogg) within=0.00004 ;; esac # one of 32768, and half
    for k in 0 1 2; do
        seg=one/$name-0000$k.wav
        rate=$(soxi -r "$source")
        [ "$(soxi -r "$seg") $(soxi -c "$seg") $(soxi -b "$seg") $(soxi -s "$seg")" = "$rate $(soxi -c "$source") 16 $((rate / 2))" ] ||
            fail "$seg is another sound: $(soxi "$seg")"
        sox -V1 -D -R "$source" -b 32 want.wav pad 0 0.5 trim $((k * (rate / 2)))s $((rate / 2))s
        got=$(largest "$seg" want.wav)
        awk -v a="$got" -v b=$within 'BEGIN { exit !(a != "" && a + 0 <= b) }' || fail "$seg: differs by $got from what SoX cuts"
        n=$((n + 1))
    done
done
[ $n = 18 ] || fail "$n segments, not 18"

# -- another rate, one channel: as SoX's own rate converter, but for the filter
"$dtrain" pack raw rated.tar --segment 0.5 --rate 16000 --mono 2>log || fail "pack --rate: $(tail -1 log)"
mkdir two
tar xf rated.tar -C two
for seg in two/*.wav; do
    [ "$(soxi -r "$seg") $(soxi -c "$seg") $(soxi -s "$seg")" = "16000 1 8000" ] || fail "$seg: $(soxi "$seg")"
done
sox -D -R raw/flac.flac -b 32 want.wav remix - rate -h 16000 trim 0.5 0.5
sox -D -R want.wav middle.wav trim 0.1 0.1
sox -D -R two/flac-00001.wav got.wav trim 0.1 0.1
got=$(largest got.wav middle.wav)
awk -v a="$got" 'BEGIN { exit !(a != "" && a + 0 < 0.001) }' || fail "resampled: differs by $got from SoX"
