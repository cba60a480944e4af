#!/usr/bin/env bash
# A real Prometheus scrapes a run on two ranks: promtool takes the text, and a query answers what metrics.jsonl has.
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
cat >"$work/prometheus.yml" <<YAML
scrape_configs:
  - {job_name: dtrain, scrape_interval: 1s, static_configs: [{targets: ["localhost:9464"]}]}
YAML
prometheus --config.file="$work/prometheus.yml" --storage.tsdb.path="$work/tsdb" --web.listen-address=localhost:9090 \
    >"$work/prometheus.log" 2>&1 &
"${ranks[@]}" 2 "$DTRAIN" "$config" "metrics.sinks=[jsonl, prometheus]" train.max_steps=100000 train.epochs=100000 \
    "eval.every=5 steps" run.name=scraped >"$work/out" 2>"$work/log" &
pid=$!

query() { curl -sG localhost:9090/api/v1/query --data-urlencode "query=$1"; }
answers() { query "$1" | grep -q '"value":\['; }
wait_until answers 'dtrain_step{run="scraped", job="dtrain"} > 5'
wait_until answers 'dtrain_eval{split="val", metric="accuracy"}'
wait_until answers 'rate(dtrain_phase_seconds_total{phase="compute"}[10s]) > 0'
query 'dtrain_steps' | grep -q '"100000"' || fail "$(query dtrain_steps)"
curl -s localhost:9464/metrics | promtool check metrics >"$work/promtool" 2>&1 || fail "promtool: $(cat "$work/promtool")"
[ ! -s "$work/promtool" ] || fail "promtool: $(cat "$work/promtool")"
kill -USR1 $pid
rc=0
wait $pid || rc=$?
[ $rc = 75 ] || fail "exit $rc"
! curl -s localhost:9464/metrics || fail "somebody answers when the run has ended"
