#!/usr/bin/env bash
# launch/docker/dtrain-launch, the launcher's command in Kubernetes: a real mpirun, and a dtrain that ends as it is told.
. "${SOURCE:?}/tests/small_run.sh" || exit
need_mpi
mkdir "$work/bin"
# the worker's /tmp is a folder here
cat >"$work/bin/ssh" <<SH
#!/bin/sh
while :; do case \$1 in -o) shift 2 ;; -*) shift ;; *) break ;; esac; done
shift
sh -c "\$(echo "\$*" | sed "s#/tmp/#\$WORKER/#g")"
SH
# ends as the lines of codes say, one each start, then with 0; what it was given goes to given
cat >"$work/bin/dtrain" <<'SH'
#!/bin/sh
code=$(sed -n 1p "$WORKER/codes")
sed -i 1d "$WORKER/codes"
echo "start ${NCCL_DEBUG:-} ${LD_LIBRARY_PATH:-} ${MINE:-} $*" >>"$WORKER/given"
case $code in
'') exit 0 ;;
137) kill -KILL $$ ;;
long) trap 'exit 75' USR1; touch "$WORKER/up"; while :; do sleep 0.1; done ;;
*) exit "$code" ;;
esac
SH
chmod +x "$work"/bin/*
echo 'localhost slots=1' >"$work/hostfile"
DTRAIN_FINAL=$(sed -n 's/.*DTRAIN_FINAL, value: "\(.*\)".*/\1/p' "$SOURCE/k8s/base/mpijob.yaml")
export DTRAIN_FINAL PATH=$work/bin:$PATH OMPI_MCA_orte_default_hostfile=$work/hostfile PRTE_MCA_prte_default_hostfile=$work/hostfile
launch() { # folder, word …
    local folder=$1
    shift
    # a TMPDIR of its own: two mpiruns that make the folder of their sessions at once fail with "File exists"
    TMPDIR=$folder WORKER=$folder "$SOURCE/launch/docker/dtrain-launch" "$@" dtrain train c.yaml >"$folder/log" 2>&1
}
prepare() { # name, code …
    mkdir "$work/$1"
    printf '%s\n' "${@:2}" >"$work/$1/codes"
    : >"$work/$1/log"
}
judge() { # name, starts, exit code, text
    local name=$1 starts=$2 want=$3 text=$4 rc=0
    wait "${of[$name]}" || rc=$?
    cp "$work/$name/log" "$work/log"
    [ $rc = "$want" ] || fail "$name: exit $rc, not $want"
    [ "$(grep -c ^start "$work/$name/given")" = "$starts" ] || fail "$name: $(grep -c ^start "$work/$name/given") starts, not $starts"
    grep -q -- "$text" "$work/$name/log" || fail "$name: no '$text'"
}
declare -A of
begin() { # name
    launch "$work/$@" &
    of[${1}]=$!
}

# what another start would not mend ends for good, in this launcher and in the next one
for code in 2 4 6; do
    prepare "e$code" $code
    begin "e$code"
done
for code in 2 4 6; do
    judge "e$code" 1 $code 'another start would not help'
    begin "e$code"
done
for code in 2 4 6; do judge "e$code" 1 $code "before this one ended with $code: not started again"; done

# what may end otherwise is started again
for code in 1 75 137 240; do
    prepare "e$code" $code
    begin "e$code"
done
for code in 1 75 137 240; do judge "e$code" 2 0 'start 1 of 20 again'; done
prepare few 240 240 240
DTRAIN_RESTARTS=1 begin few
prepare stop_at 75
DTRAIN_RESTARTS=0 begin stop_at
judge few 2 240 'is used up'
judge stop_at 1 75 'is used up'
begin few # Kubernetes' next launcher
judge few 2 240 'before this one ended with 240: not started again'

# told to end: the ranks save, and nothing follows
prepare told long
launch_pid() { TMPDIR=$work/told WORKER=$work/told exec "$SOURCE/launch/docker/dtrain-launch" dtrain train c.yaml >"$work/told/log" 2>&1; }
launch_pid &
pid=$! of[told]=$!
wait_until test -e "$work/told/up"
kill -TERM $pid
judge told 1 75 ''

# a worker that goes is waited for; what mpirun and the environment give reaches the ranks
prepare gone 75
touch "$work/gone/dtrain-stopping"
NCCL_DEBUG=WARN LD_LIBRARY_PATH=/none begin gone -x 'MINE=a b;c'
pid=${of[gone]}
wait_until grep -q 'waiting for localhost' "$work/gone/log"
[ "$(wc -l <"$work/gone/given")" = 1 ] || fail "started without its worker"
rm "$work/gone/dtrain-stopping"
judge gone 2 0 'waiting for localhost'
grep -qx 'start WARN /none a b;c train c.yaml' "$work/gone/given" || fail "the ranks got: $(cat "$work/gone/given")"
# what --secret gives the launcher: under its own name, and no value in mpirun's command line
prepare secret 75
mkdir "$work/wrapped"
printf '#!/bin/sh\necho "$@" >>"$WORKER/words"\nexec %s "$@"\n' "$(command -v mpirun)" >"$work/wrapped/mpirun"
chmod +x "$work/wrapped/mpirun"
PATH=$work/wrapped:$PATH DTRAIN_SECRET_MINE='s "e" $c' begin secret
judge secret 2 0 'start 1 of 20 again'
[ "$(grep -c ' s "e" $c train c.yaml$' "$work/secret/given")" = 2 ] || fail "a secret comes as: $(cat "$work/secret/given")"
grep -q -- ' -x MINE ' "$work/secret/words" && ! grep -q '"e"\|DTRAIN_SECRET_MINE' "$work/secret/words" ||
    fail "mpirun of a secret: $(cat "$work/secret/words")"
prepare never 75
touch "$work/never/dtrain-stopping"
DTRAIN_WAIT=0 begin never
judge never 1 240 'did not come back'
echo "2 to 6 end for good; 1, 75, 137, 240 start again; a signal ends with 75"
