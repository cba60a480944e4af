#!/usr/bin/env bash
# dtrain report: the page of a run and the comparison of several have what the files say, whatever names hold, also of a
# run that is being written, is damaged, or has 10^6 steps (FULL=1; else 10^5).
. "${SOURCE:?}/tests/expect.sh" || exit
command -v "$python" >/dev/null || { echo "skipped: no python3"; exit 77; }

# -- one run, finished
py write_run runs/photos 400
expect 0 runs/photos/report.html "$dtrain" report runs/photos/
py check_page runs/photos/report.html Finished '0.9100' 'validation accuracy, step 400' 'Limited by data' 'confusion' \
    'a checkpoint could not be written' 'train.optimizer.lr' 'Changed from the defaults' '2, the first on node1' 'By class' 'Gradient norm'

# -- while it is written: no result, half a line, a kind of record from tomorrow, a line of zeros; then all of it again
py write_run runs/now 250 now cat 50 1 0.002 ''
printf '%s\n' '{"kind":"aurora","step":250,"x":[1]}' '{"kind":"ranks","step":200,"imbalance":1.6,"slowest":1,"data_s":[0.001,0.001],"compute_s":[0.003,0.015],"rss_bytes":[3e8,4e8]}' \
    '{"kind":"slow_rank","step":200,"rank":3,"host":"n7","phase":"data","times":1.9}' \
    '{"kind":"step","step":251,"loss":' 'zeros' '{"kind":"step","step":9' >>runs/now/metrics.jsonl
truncate -s -1 runs/now/metrics.jsonl
rm runs/now/config.yaml runs/now/log
expect 0 report.html "$dtrain" report runs/now
py check_absent runs/now/report.html '>time</th>'
py check_page runs/now/report.html Training 'rank 3 on n7' '1.900 times' '>16.0 ms<' '1.600 times as long' '2 lines of metrics.jsonl are damaged' '>250<'
touch -d '10 minutes ago' runs/now/metrics.jsonl
expect 0 report.html "$dtrain" report runs/now
py check_page runs/now/report.html 'No metrics for 10 min'
echo '{"kind":"end","step":250,"status":6,"message":"loss is <b>NaN</b>"}' >runs/now/metrics.jsonl
expect 0 report.html "$dtrain" report runs/now
py check_page runs/now/report.html 'Failed: loss is &lt;b&gt;NaN' 'The run failed at step 250: loss is &lt;b&gt;NaN'
py check_absent runs/now/report.html 'None: no warning'
echo '2026-11-25T22:25:27Z E loss is <b>NaN</b>' >runs/now/log
expect 0 report.html "$dtrain" report runs/now
[ "$(grep -c 'loss is &lt;b&gt;NaN' runs/now/report.html)" = 2 ] || fail "the error is there twice"
: >runs/now/metrics.jsonl
expect 0 report.html "$dtrain" report runs/now
py check_page runs/now/report.html Training

# -- intervals and groups are dots with whiskers; the matrix has totals
py write_groups runs/groups
expect 0 report.html "$dtrain" report runs/groups
py check_groups runs/groups/report.html

# -- what a person set, the machine, the warnings of this attempt, GPUs
py write_setup runs/setup
expect 0 report.html "$dtrain" report runs/setup
py check_setup runs/setup/report.html
py check_absent runs/photos/report.html 'GPU utilization'

# -- hostile names; many classes; an evaluation's file that is not what it should be
py write_hostile runs
for run in runs/hostile*; do expect 0 report.html "$dtrain" report "$run"; done
for run in runs/hostile*; do py check_hostile "$run/report.html"; done
expect 0 hostile.html "$dtrain" report runs/hostile* -o hostile.html
py check_hostile hostile.html

py write_run runs/short 20 short cat 5
expect 0 report.html "$dtrain" report runs/short
py check_dots runs/short/report.html

# -- what is left out is said; values are whole
py write_run runs/ten 100 ten abcdefghij
py write_ten_curves runs/ten 100
expect 0 report.html "$dtrain" report runs/ten
py check_page runs/ten/report.html 'Curves of the 8 of 10 classes that have the least recall' 'h · AUC 0.998' 'h · AP 0.900' \
    'data-x="false positive rate" data-axes="50 474 10 182 0 0.05 0.8 1"' 'data-x="recall" data-axes="50 474 10 182 0 1 0.8 1"'
sed -i 's/"given"/"other"/' runs/ten/metrics.jsonl # of an earlier version: every difference is listed
sed -i "s|photos.lmdb|$(printf 'v%.0s' {1..600}).end|" runs/ten/config.yaml
expect 0 report.html "$dtrain" report runs/ten
[ "$(grep -c 'vvv.end' runs/ten/report.html)" = 2 ] || fail "a long value is cut"
mkdir thirty
for i in {01..30}; do cp -r runs/ten thirty/$i; done
expect 0 thirty.html "$dtrain" report thirty/* -o thirty.html
py check_page thirty.html 'The charts have the first 24 of 30 runs'
for i in {01..06}; do sed -i '/"eval"/d' thirty/$i/metrics.jsonl; done # none in their place, whose steps the axes lack
expect 0 thirty.html "$dtrain" report thirty/* -o thirty.html
py check_absent thirty.html 'data-run="24"'

# -- several: configurations, mean and deviation, what differs
for seed in 1 2 3; do for lr in 0.001 0.004; do py write_run "runs/s$seed-$lr" 100 "s$seed" cat 10 "$seed" "$lr"; done; done
expect 0 compare.html "$dtrain" report runs/s[123]-*
py check_page compare.html '6 runs' 'lr=0.001' 'lr=0.004' '0.9200 ± 0.0100' 'run.seed' 'best val accuracy' 'test loss'
py check_page compare.html 'lr=0.004 · seed=2' 's2-0.004'
py check_absent compare.html 'run.name' 'data.path'
py check_compared compare.html 2
expect 0 seeds.html "$dtrain" report runs/s[123]-0.001 -o seeds.html
py check_compared seeds.html 3 # one configuration: a colour each
py check_page seeds.html 'seed=3'
py check_absent seeds.html 'lr='

# a run that chose by another number, and has no test result
py write_run runs/chose 100 chose cat 10 1
py write_goes_on runs/lost
expect 0 mixed.html "$dtrain" report runs/chose runs/lost -o mixed.html
py check_mixed mixed.html

# what machines answered, and how a number is written, is no other configuration
for i in 1 2 3 4; do
    py write_run runs/m$i 100 m$i cat 10 $i 0.003
    echo "device: {threads: $i, replicas: $i}" >>runs/m$i/config.yaml
done
sed -i 's/lr: 0.003/lr: 3.0e-3/' runs/m2/config.yaml
printf '%s\n' 'metrics: {listen: "127.0.0.1:9999"}' >>runs/m3/config.yaml
expect 0 m.html "$dtrain" report runs/m? -o m.html
py check_page m.html '0.9250 ± 0.0129' 'device.threads' 'metrics.listen'
py check_absent m.html 'lr=' 'threads=' 'train.optimizer.lr'

# a rate that is far above the others' is in the chart; numbers of any size fit beside an axis
py write_run runs/a-fast 100 fast cat 10 1 1e30
sed -i 's/"samples_per_s":3200/"samples_per_s":98000/' runs/a-fast/metrics.jsonl
expect 0 fast.html "$dtrain" report runs/a-fast runs/m1 -o fast.html
py check_page fast.html '>80k</text>' '>2e+29</text>'

# -- a sweep's directory: its tables and a run that has not begun are no runs
mkdir -p sweep/waits
for seed in 1 2; do py write_run "sweep/seed=$seed" 50 "seed=$seed" cat 10 "$seed"; done
touch sweep/runs.csv
expect 0 sweep.html "$dtrain" report sweep/* -o sweep.html
py check_page sweep.html '2 runs' seed=2
expect 0 x.html "$dtrain" report runs/photos -o x.html
expect 2 "-o x.pdf: a report is an HTML page: -o FILE.html" "$dtrain" report runs/photos -o x.pdf
py check_page x.html Finished 'began 2023-11-14 22:13 UTC' 'Made by dtrain on 20' ' UTC from the files' '>step</text>'

mkdir -p a b
cp -r sweep/seed=1 a/x
cp -r sweep/seed=2 b/x
expect 0 two.html "$dtrain" report a/x/ b/x -o two.html
py check_page two.html 'data-label="seed=1"' 'title="a/x"' 'title="b/x"'
(cd a/x && expect 0 ./report.html "$dtrain" report .)
py check_page a/x/report.html '<h1>x</h1>'

# -- mistakes
mkdir none && expect 2 'metrics.jsonl does not exist: give the directory of a run' "$dtrain" report none
expect 0 'compare.html' "$dtrain" report runs && rm -f compare.html
expect 2 'metrics.jsonl does not exist: give the directory of a run' "$dtrain" report sweep/runs.csv sweep/waits
expect 2 'sweep/sed/metrics.jsonl does not exist' "$dtrain" report sweep/seed=1 sweep/sed
expect 2 'expects a run' "$dtrain" report
expect 2 '--trace is for one run' "$dtrain" report sweep/seed=* --trace
sed -i 's/"schema":1/"schema":99/' sweep/seed=1/metrics.jsonl
expect 2 'written by a newer dtrain, 0.1.0 (format 99;' "$dtrain" report sweep/seed=1

# -- a long run
n=100000
[ -z "${FULL:-}" ] || n=1000000
py write_run runs/long $n long cat 10000
py check_cost "$dtrain" report runs/long
