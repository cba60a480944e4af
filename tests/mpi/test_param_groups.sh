#!/usr/bin/env bash
# train.groups over ranks: parts of the network are frozen for good and for some steps. run.reproducible=elastic gives the
# same weights on 1, 2 and 3 ranks, and when a run is stopped in front of, at and behind a change of what is trained and
# goes on with another number of ranks. `resume` gives them on two ranks across a stop. `check` prints the groups, and a
# group without tensors is an error with its place.
. "${SOURCE:?}/tests/small_run.sh" || exit
need_mpi

small_data "$work"
config=$(small_config "$work")
sed -i 's/max_steps: 40/max_steps: 20/; s/^train:/train:\n  groups:\n    - {match: "iris.(conv1|bn1).*", freeze: true}\n    - {match: "iris.*", freeze_until: 6 steps, lr: 0.3}\n    - {match: "fingerprint.*", freeze_until: 50%, decay: 0}/' "$config"

"$DTRAIN" check "$config" >"$work/out" 2>"$work/log" || fail "check"
for line in 'iris.(conv1|bn1).\* * 3 tensors .* parameters, frozen' \
            'iris.\* * [0-9]* tensors .* lr x 0.3, decay x 1, frozen until step 6' \
            'fingerprint.\* .* decay x 0, frozen until step 10' 'all others * 4 tensors'; do
    grep -q "$line" "$work/out" || { cat "$work/out" >&2; fail "no line '$line'"; }
done
exits 2 '' "$DTRAIN" check "$config" 'train.groups=[{match: iris, lr: 2}]'
sed 's/match: "iris.\*"/match: "pupil.*"/' "$config" >"$work/wrong.yaml"
! "$DTRAIN" "$work/wrong.yaml" >"$work/out" 2>"$work/log" || fail "a group without tensors"
grep -q "wrong.yaml:[0-9]*:[0-9]*: train.groups: match 'pupil.\*' matches no tensor" "$work/log" || fail "which group"

run() { # NP NAME WORD …
    local np=$1 name=$2 rc=0
    shift 2
    mpi $np "$DTRAIN" "$config" run.name=$name "$@" >"$work/out" 2>"$work/log" || rc=$?
    [ $rc = 0 ] || [ $rc = 75 ] || fail "exit $rc of $name $*"
}
common=(run.reproducible=elastic)
for np in 1 2 3; do run $np e$np "${common[@]}"; done
for stop in 3:5 1:6 2:7 3:10 1:11; do run ${stop%:*} changing "${common[@]}" run.stop_at=${stop#*:}; done
run 2 changing "${common[@]}"
for name in e2 e3 changing; do
    [ "$(hash "$work/runs/$name")" = "$(hash "$work/runs/e1")" ] || fail "$name differs from one rank"
done
run 2 whole
run 2 stopped run.stop_at=6
run 2 stopped run.stop_at=8
run 2 stopped
[ "$(hash "$work/runs/whole")" = "$(hash "$work/runs/stopped")" ] || fail "a resumed run differs"
run 1 free "${common[@]}" 'train.groups='
[ "$(hash "$work/runs/free")" != "$(hash "$work/runs/e1")" ] || fail "groups change nothing"
