#!/usr/bin/env bash
# dtrain watch: the same once in a pipe; in a terminal it follows what a run writes, and q leaves; names give the terminal
# no sequences; a long run takes little memory.
. "${SOURCE:?}/tests/expect.sh" || exit
command -v "$python" >/dev/null || { echo "skipped: no python3"; exit 77; }

py write_run runs/photos 400 photos cat 100 1 0.001 ''
sed -i '/"eval"/s/"accuracy":/"accuracy.cat":0.5,&/' runs/photos/metrics.jsonl
echo '{"kind":"slow_rank","step":400,"rank":3,"host":"n7","phase":"data","times":1.9}' >>runs/photos/metrics.jsonl
echo '{"kind":"ranks","step":400,"imbalance":1.6,"slowest":1,"data_s":[0.001,0.001],"compute_s":[0.003,0.015],"rss_bytes":[3e8,4e8]}' >>runs/photos/metrics.jsonl
"$dtrain" watch runs/photos >plain.txt
for text in 'photos  Training' 'step 400 of 400 (100 %), epoch 4.00' 'val accuracy' 'samples/s' 'data 14 % compute 66 %' \
    'rank 3 on n7 is slow: 1.9 times' '2  ▂█  slowest 1, 1.60 times the mean'; do
    grep -qF -- "$text" plain.txt || fail "no '$text': $(cat plain.txt)"
done
! grep -q 'accuracy\.cat' plain.txt || fail "a class by itself: $(cat plain.txt)"
[ "$(grep -oE '^(loss|time of a step) +[0-9.]+( ms)?' plain.txt | awk '{ print length }' | uniq | wc -l)" = 1 ] || fail "numbers end in two columns: $(cat plain.txt)"
! grep -q $'\x1b' plain.txt || fail "a pipe gets colours"
py write_run runs/old 400 old cat 100
sed 's/"step":400/"step":200/;$a{"kind":"ranks","step":400,"imbalance":1.1}' <<<'{"kind":"slow_rank","step":400,"rank":3,"host":"n7","phase":"data","times":1.9}' >>runs/old/metrics.jsonl
"$dtrain" watch runs/old >plain.txt
! grep -q 'is slow' plain.txt || fail "a rank that was slow is so for ever: $(cat plain.txt)"
py check_narrow "$dtrain" runs/photos

# -- several runs: those that go on first, a line each in a table, then each; the best so far, memory, queue, GPU
py add_machine runs/photos
"$dtrain" watch runs/old runs/photos >plain.txt
grep -qE '^run +state +step +loss +best +left$' plain.txt || fail "no table: $(cat plain.txt)"
[ "$(sed -n '2,3s/^\([a-z]*\) *\([a-z]*\) .*/\1 \2/p' plain.txt | paste -sd,)" = "photos training,old finished" ] || fail "order of the table: $(cat plain.txt)"
[ "$(grep -n '^photos  Training\|^old  Finished' plain.txt | cut -d: -f2 | paste -sd,)" = "photos  Training,old  Finished" ] || fail "order: $(cat plain.txt)"
for text in '^best so far +0\.[0-9]+  val accuracy at step [1-4]00$' '^memory +402\.0 MB  queue 3 of 4 batches$' \
    '^GPU +70\.9 GB  97 % busy 612 W 71 °C 1980 MHz$'; do
    grep -qE "$text" plain.txt || fail "no '$text': $(cat plain.txt)"
done
mkdir sweep && mv runs/old sweep/b && cp -r runs/photos sweep/a && mkdir sweep/empty
"$dtrain" watch sweep/ >plain.txt
[ "$(sed -n '2,3s/ .*//p' plain.txt | paste -sd,)" = a,b ] || fail "the runs of a folder: $(cat plain.txt)"
py check_new_run "$dtrain" sweep
mv sweep/b runs/old
py check_scroll "$dtrain" runs/old runs/photos
# a run without an end is stopped where nobody holds its lock, as after a SIGKILL
: >runs/photos/lock
"$dtrain" watch runs/photos | grep 'photos  Training' >/dev/null || fail "stopped a moment after its last line"
touch -d '20 seconds ago' runs/photos/metrics.jsonl
"$dtrain" watch runs/photos | grep 'photos  Stopped; the same command resumes' >/dev/null || fail "not stopped"
py hold runs/photos/lock "$dtrain" watch runs/photos | grep 'photos  Training' >/dev/null || fail "stopped with its lock held"
py follow "$dtrain" runs/photos
py write_hostile_run runs/hostile
"$dtrain" watch runs/hostile runs/photos >plain.txt
! grep -q $'[\x1b\x07\r]' plain.txt || fail "a sequence reaches the terminal"
[ "$(wc -L <plain.txt)" -le 1100 ] || fail "lines of $(wc -L <plain.txt) columns"
py write_odd_run runs/odd
"$dtrain" watch runs/odd >plain.txt || fail "steps that go back, and huge values: exit $?"
for text in 'step 9 of 1000' 'val twins' 'slowest 1'; do grep -qF -- "$text" plain.txt || fail "no '$text': $(cat plain.txt)"; done
timeout 60 "$dtrain" report runs/odd -o odd.html >report.txt 2>&1 || fail "report of odd values: exit $?: $(tail -3 report.txt)"
grep -q '3 lines of metrics.jsonl are damaged' odd.html || fail "steps out of range are no damaged lines"
expect 2 'metrics.jsonl does not exist: give the directory of a run' "$dtrain" watch nowhere
expect 0 'step 50 of 50' "$dtrain" watch runs/hostile plain.txt
why="$(printf 'w%.0s' {1..300}) try a lower rate"
echo '{"kind":"end","step":400,"status":6,"message":"'"$why"'"}' >>runs/old/metrics.jsonl
rm runs/old/result.json
"$dtrain" watch runs/old | grep -F "$why" >/dev/null || fail "what a failure advises is cut"
py write_run runs/long 100000 long cat 10000
py check_memory "$dtrain" watch runs/long
