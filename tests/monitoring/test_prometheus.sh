#!/usr/bin/env bash
# A real Prometheus scrapes a run on two ranks: promtool takes the text, queries answer what metrics.jsonl has, every metric
# that the dashboard and the alert rules name is there, and the rules fire, with thresholds of seconds: none does while all
# is well; no progress, an old checkpoint and low goodput for ranks that are stopped; the reason of the end at last.
# Prometheus finds the runs by metrics.file_sd, whose labels all their metrics have.
. "${SOURCE:?}/tests/small_run.sh" || exit
need_mpi
for program in prometheus promtool curl; do
    command -v $program >/dev/null || { echo "skipped: no $program (Debian: prometheus, curl)"; exit 77; }
done
[ "$(id -u)" = 0 ] && unshare --net true 2>/dev/null || { echo "skipped: a network of its own needs root"; exit 77; }
[ "${IN_NAMESPACE:-}" ] || IN_NAMESPACE=1 exec unshare --net --pid --fork --kill-child --mount-proc bash "$0"
ip link set lo up

small_data "$work"
config=$(small_config "$work")
promtool check rules "$SOURCE/docs/monitoring/alerts.yaml" >/dev/null || fail "alerts.yaml"
sed 's/> 600/> 5/; s/> 300/> 5/; s/> 7200/> 4/; s/< 0.5/< 0.95/; s/for: 30m/for: 1s/; s/for: 5m/for: 15s/' "$SOURCE/docs/monitoring/alerts.yaml" >"$work/alerts.yaml"
mkdir "$work/targets" # for: 15s: Prometheus may take five seconds to forget a target whose file is gone
cat >"$work/prometheus.yml" <<YAML
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [alerts.yaml]
scrape_configs:
  - {job_name: dtrain, file_sd_configs: [{files: ["targets/dtrain-*.json"]}]}
YAML
prometheus --config.file="$work/prometheus.yml" --storage.tsdb.path="$work/tsdb" --web.listen-address=localhost:9090 \
    >"$work/prometheus.log" 2>&1 &
prometheus=$!
SLURM_JOB_ID=4711 DTRAIN_FAILPOINT=step:1:nap "${ranks[@]}" 2 "$DTRAIN" "$config" "metrics.sinks=[jsonl, prometheus]" metrics.linger=60 train.max_steps=100000 \
    train.epochs=100000 "eval.every=5 steps" "checkpoint.every=10 steps" run.name=scraped "metrics.file_sd=$work/targets" >"$work/out" 2>"$work/log" &
pid=$!

query() { curl -sG localhost:9090/api/v1/query --data-urlencode "query=$1"; }
answers() { query "$1" | grep '"value":\[' >/dev/null; }
fires() { answers "ALERTS{alertname=\"$1\", alertstate=\"firing\"}"; }
wait_until answers "dtrain_step{run='scraped', job='dtrain', user='$(id -un)', hpc_job='4711', host='$(hostname)'} > 5"
wait_until answers 'dtrain_eval{split="val", metric="accuracy"}'
wait_until answers 'rate(dtrain_phase_seconds_sum{phase="compute"}[10s]) > 0'
wait_until answers 'dtrain_checkpoint_step >= 10'
query 'dtrain_steps' | grep '"100000"' >/dev/null || fail "$(query dtrain_steps)"
query 'dtrain_world_size' | grep '"2"' >/dev/null || fail "$(query dtrain_world_size)"
curl -s localhost:9464/metrics | promtool check metrics >"$work/promtool" 2>&1 || fail "promtool: $(cat "$work/promtool")"
[ ! -s "$work/promtool" ] || fail "promtool: $(cat "$work/promtool")"
[ "$(curl -s localhost:9464/healthz)" = ok ] || fail "healthz"
curl -sf localhost:9464/readyz >/dev/null || fail "readyz"
# 9464 is 24F8: nothing but loopback listens (state 0A)
addresses=$(awk '$4 == "0A" && $2 ~ /:24F8$/ { print $2 }' /proc/net/tcp /proc/net/tcp6)
[ "$addresses" = 0100007F:24F8 ] || fail "the port listens on $addresses"
for name in $(grep -ohE '\b(dtrain|process)_[a-z_]+' "$SOURCE"/docs/monitoring/*); do
    [ "$name" = dtrain_exit_status ] || answers "$name" || fail "no $name, which docs/monitoring names"
done
! fires DtrainNoProgress && ! fires DtrainLossNotFinite && ! fires DtrainFailed || fail "an alert without a reason: $(query ALERTS)"

file=$work/targets/dtrain-$(id -un)-scraped.json
written=$(stat -c %Y "$file")
# rank 1 is stopped: rank 0 waits for it, and answers
stopped=("$(children $pid | cut -d' ' -f2)")
kill -STOP "${stopped[@]}"
wait_until fires DtrainNoProgress
wait_until fires DtrainCheckpointOld
wait_until fires DtrainGoodputLow
kill -CONT "${stopped[@]}"
no_longer() { ! fires "$1"; }
wait_until no_longer DtrainNoProgress
is_kept() { [ "$(stat -c %Y "$file")" -gt "$written" ]; } # or it would be taken for a killed run's
wait_until is_kept
kill -USR1 $pid
rc=0
wait_until answers 'dtrain_exit_status{reason="preempted"} == 75'
wait $pid || rc=$?
[ $rc = 75 ] || fail "exit $rc"
! curl -s localhost:9464/metrics || fail "somebody answers when the run has ended"
is_forgotten() { ! answers 'up{job="dtrain"}'; }
pid=$prometheus
wait_until is_forgotten

# updates that cannot stay finite
"${ranks[@]}" 2 "$DTRAIN" "$config" "metrics.sinks=[jsonl, prometheus]" metrics.linger=60 train.optimizer.name=sgd \
    train.optimizer.lr=1e30 "checkpoint.every=10 steps" run.name=spoiled "metrics.textfile=$work" \
    "metrics.file_sd=$work/targets" >"$work/out" 2>"$work/log" &
pid=$!
wait_until fires DtrainLossNotFinite
wait_until fires DtrainFailed
rc=0
wait $pid || rc=$?
[ $rc != 0 ] || fail "exit $rc"
grep -q '^dtrain_exit_status{run="spoiled",reason="numeric"} 6$' "$work/dtrain-spoiled.prom" || fail "the file of node_exporter"
promtool check metrics <"$work/dtrain-spoiled.prom" || fail "promtool"
pid=$prometheus
wait_until is_forgotten
! fires DtrainUnreachable || fail "an alert of a run that has ended: $(query ALERTS)"

# a run that is killed does not remove its file
DTRAIN_FAILPOINT=step:1:nap "$DTRAIN" "$config" "metrics.sinks=[jsonl, prometheus]" "metrics.file_sd=$work/targets" \
    run.name=killed train.epochs=100000 train.max_steps=100000 >"$work/out" 2>"$work/log" &
pid=$!
wait_until answers 'dtrain_step{run="killed"} > 1'
kill -KILL $pid
pid=$prometheus
wait_until fires DtrainUnreachable
answers "ALERTS{alertname='DtrainUnreachable', user='$(id -un)', host='$(hostname)'}" || fail "whose run: $(query ALERTS)"
