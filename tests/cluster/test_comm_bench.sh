#!/usr/bin/env bash
# dtrain comm bench on three hosts, one of which has a slow link: rates by size beside MPI's, and the host is in the pair
# that is named as the slowest. A lone process is an error.
. "${SOURCE:?}/tests/small_run.sh" || exit
. "$SOURCE/tests/cluster/hosts.sh"
rc=0
"$DTRAIN" comm bench >/dev/null 2>"$work/log" || rc=$?
[ $rc = 2 ] && grep -q "mpirun -np 2 or more" "$work/log" || fail "alone: exit $rc"
need_hosts
make_hosts 3
slow_links 200mbit 2
hosts_job 4 "$DTRAIN" comm bench --size 1
ends_within 600
[ $rc = 0 ] || fail "exit $rc"
grep -q "of 4 ranks on 3 hosts" "$work/out" || fail "$(cat "$work/out")"
grep -qE "^ +1024( +[0-9.]+){6}$" "$work/out" || fail "no line of 1 MiB: $(cat "$work/out")"
[ "$(grep -cE "^host[123] - host[123] +[0-9.]+ +[0-9.]+$" "$work/out")" = 3 ] || fail "not three pairs: $(cat "$work/out")"
grep -q "^slowest link: .*host2" "$work/out" || fail "$(cat "$work/out")"
cat "$work/out"
