#!/usr/bin/env bash
# Long campaigns, by hand or at night: tests/campaigns/run.sh kills|cuts|soak [MINUTES]
#
#   kills  SIGKILLs of a training with everything on, resumed each time (tests/fault/test_kill_resume.sh); aim 1,000
#   cuts   power cuts on the simulated disk (tests/sim/test_sim.c); aim 100,000
#   soak   steps of a small network, in rounds of 75,000 with 25 faults (tests/campaigns/soak.sh); aim 1,500,000 and 500
#
# Rounds follow each other until MINUTES (default 60) have gone or the aim is reached. Each that passes adds a line to
# results.csv, and the next call goes on behind the last. A round that fails ends the campaign with its output.
set -euo pipefail
cd "$(dirname "$0")/../.."
campaign=${1:-} until=$((SECONDS + 60 * ${2:-60})) table=tests/campaigns/results.csv log=.cache/campaign.$$.log
TARGETS="dtrain dtrain_mpi dtrain_http test_sim" launch/build.sh build -DDTRAIN_TESTS=ON -DDTRAIN_CUDA=OFF
. launch/mpi_env.sh
export SOURCE=$PWD BUILD=$PWD/build DTRAIN=$PWD/build/dtrain
mkdir -p .cache
trap 'rm -f "$log"' EXIT

in_all() { awk -F, -v c="$campaign" '$1 == c { n += $4 } END { print n + 0 }' "$table"; }
next_seed() { awk -F, -v c="$campaign" '$1 == c { n = $3 } END { print n + 1 }' "$table"; }
case $campaign in
kills)
    aim=1000 n=25 unit=kills
    round() { KILLS=25 STEPS=300 SEED=$1 bash tests/fault/test_kill_resume.sh; }
    ;;
cuts)
    aim=100000 n=1000 unit=cuts
    round() { build/test_sim cuts $(($1 * 100000)) 1000; }
    ;;
soak)
    aim=1500000 n=75000 unit=steps
    round() { SEED=$1 tests/campaigns/soak.sh; }
    ;;
*) sed -n '2s/^# //p' "$0" >&2; exit 2 ;;
esac
while [ "$(in_all)" -lt "$aim" ] && [ "$SECONDS" -lt "$until" ]; do
    seed=$(next_seed)
    round "$seed" >"$log" 2>&1 || { cat "$log"; echo "FAILED: $campaign, seed $seed" >&2; exit 1; }
    echo "$campaign,$(date +%F),$seed,$n,$unit,$(tail -1 "$log" | tr , ' ')" >>"$table"
done
echo "$campaign: $(in_all) of $aim $unit"
