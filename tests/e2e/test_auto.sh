#!/usr/bin/env bash
# Every key that takes `auto`, as dtrain keys lists them, given as `auto` to every verb and target that reads a config:
# all of them at once, as what reads one before its answer ends the program and names it.
. "${SOURCE:?}/tests/small_run.sh" || exit
cd "$work"
small_data "$work"
config=$(small_config "$work")
sed -i 's|\(small.lmdb\|runs\)|./\1|; s|'"$work/./"'||' "$config" # --data of launch cloud wants a folder below this one
few=(device.kind=cpu device.time_engines=false train.max_steps=1 train.epochs=1)

# "    TYPE, default X, RANGE": X or a word of the range is auto. A key that means nothing here is refused, by its name.
autos=()
while read -r key; do
    key=${key/data.fields.\*/data.fields.iris}
    rc=0
    "$DTRAIN" check "$config" "${few[@]}" "$key=auto" >out 2>log || rc=$?
    case $rc in
        0) autos+=("$key=auto") ;;
        2) [ "$(grep -c "error: .*$key" log)" = 1 ] || fail "check $key=auto: exit 2, and no word about it" ;;
        *) fail "check $key=auto: exit $rc" ;;
    esac
done < <("$DTRAIN" keys | awk '/^[a-z]/ {key = $1} /^    [A-Z_]+, default / && /[ |]auto/ {print key}')
[[ " ${autos[*]} " = *" train.micro_batch=auto "* ]] && [ ${#autos[@]} -gt 15 ] || fail "only these take auto: ${autos[*]}"

works() { exits 0 "" "$DTRAIN" "$@" "${few[@]}" "${autos[@]}"; }
works check small.yaml
works train small.yaml run.name=trained
works eval runs/trained
works sweep small.yaml run.seed=1,2
for verb in order bench; do works data $verb small.yaml; done
works data show small.yaml out.png
works launch local -n 2 --print small.yaml
works launch hosts --hosts a:1,b:1 --net eth0 --print small.yaml
works launch slurm --nodes 2 --print small.yaml
works launch slurm --sweep --print small.yaml run.seed=1,2
works launch cloud --nodes 2 --data s3://a --runs s3://b --print small.yaml
if kubectl version --client >/dev/null 2>&1; then works launch k8s --namespace a --image b --workers 2 --print small.yaml; fi
exits 2 "9 ranks cannot share the 8 .*raise train.global_batch" "$DTRAIN" launch local -n 9 small.yaml train.global_batch=8 train.micro_batch=auto

# -- a run whose precision: auto was bf16 moves to a CPU that computes no bf16
if "$DTRAIN" "$config" train.precision=auto run.name=moved run.stop_at=2 >out 2>log; [ $? = 75 ] && grep -q 'precision: bf16' runs/moved/config.yaml; then
    old=(env ONEDNN_MAX_CPU_ISA=AVX2 "$DTRAIN")
    exits 0 'computed in bf16, which needs' "${old[@]}" eval runs/moved
    exits 0 'computed in bf16, which needs' "${old[@]}" "$config" train.precision=auto run.name=moved
    grep -q 'precision: fp32' runs/moved/config.yaml || fail "the run did not go on in fp32"
    exits 2 'bf16 needs a CPU' "${old[@]}" "$config" train.precision=bf16 run.name=asked
else
    echo "the move to a CPU without bf16 left out: this one chose fp32"
fi
echo "${#autos[@]} keys: passed"
