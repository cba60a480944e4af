#!/usr/bin/env bash
# Two runs, each with two ranks on every host, read a set by URL: each host fetches each byte once, counted at the server by
# the host's address, and the weights are those of the local set. Minutes, on HOSTS=4 hosts: with FULL=1.
[ "${FULL:-}" = 1 ] || { echo "skipped: takes minutes; FULL=1 does"; exit 77; }
. "${SOURCE:?}/tests/fault/by_url.sh" || exit
. "$SOURCE/tests/cluster/hosts.sh"
need_hosts
n=${HOSTS:-4}
size=$(cat "$work"/bucket/set-*.tar | wc -c)
make_hosts "$n"
on 1 "$python" "$SOURCE/tests/fault/range_server.py" "$work/bucket" "$work/port" --bytes "$work/bytes" --address 10.77.0.1 &
pid=$!
wait_until test -e "$work/port"
url="http://10.77.0.1:$(cat "$work/port")/set-{000000..000001}.tar"
few=(data.cache_dir="$work/own/cache" train.epochs=3 train.global_batch=16 train.micro_batch=2)
job() { hosts_job $((2 * n)) "$DTRAIN" "$config" "${few[@]}" run.name="$1" "${@:2}"; }
for run in "local" "a data.path=$url" "b data.path=$url"; do
    job $run
    ends_within 600
    [ $rc = 0 ] || fail "$run: exit $rc"
    [ "$(hash "$work/runs/${run%% *}")" = "$(hash "$work/runs/local")" ] || fail "other weights of $run"
done
for i in $(seq "$n"); do
    got=$(cat "$work/bytes.10.77.0.$i")
    echo "host$i got $got bytes of $size"
    # beyond the set, the beginnings of both shards in each of four processes, and their ends
    [ "$got" -ge $((size / 2)) ] && [ "$got" -le $((size + 4 * 2 * 8192 + 2 * 12288)) ] || fail "host$i got $got of $size bytes"
done
