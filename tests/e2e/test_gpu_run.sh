#!/usr/bin/env bash
# tests/gpu/run.py without a GPU: it says so and exits 77; its order, its budget and what it drops; with a fake dtrain, a
# fake nvidia-smi and fake op tests its items pass, fail, skip and run out of time as they should, and the report says so.
. "${SOURCE:?}/tests/small_run.sh" || exit
py order || fail "order and budget"
py kernels || fail "sums of kernels"
mkdir "$work/none" "$work/bin" "$work/stage" "$work/stage/dtrain-1"
printf '#!/bin/sh\nexit 9\n' >"$work/none/nvidia-smi" # a driver without a device
printf '#!/bin/sh\necho "Fake GPU, 1.0, 1 MiB, 1 MHz, 1 W"\n' >"$work/bin/nvidia-smi"
cat >"$work/stage/dtrain-1/dtrain" <<'SH'
#!/bin/sh
# a run with the loss of each step, the weights of its precision, and engines
case $1 in info) echo "NCCL 2.28.9"; exit ;; synth | pack) mkdir -p "$3"; exit ;; esac
for word; do
    case $word in
    run.dir=*) dir=${word#*=} ;; run.name=*) run=${word#*=} ;; train.precision=*) precision=${word#*=} ;;
    data.cache_dir=*) mkdir -p "${word#*=}"; echo chosen >"${word#*=}/engines-x.txt" ;; run.stop_at=*) stop=75 ;;
    esac
done
case $run in bits_bf16_2) precision=other ;; bits_fp16_1) exec sleep 100 ;; esac
mkdir -p "$dir/$run/checkpoints/step-00000020"
echo "$precision" >"$dir/$run/checkpoints/step-00000020/model.safetensors"
case $run in loss_gpu) loss=1.0005 ;; loss_bf16) loss=1.02 ;; *) loss=1 ;; esac
echo "{\"kind\":\"step\",\"loss\":$loss}" >"$dir/$run/metrics.jsonl"
[ "$run" != bits_killed ] || [ -e "$dir/killed" ] || { touch "$dir/killed"; exec sleep 100; }
exit ${stop:-0}
SH
printf '#!/bin/sh\necho "real: $DTRAIN_TEST_DEVICE"\n' >"$work/stage/dtrain-1/test_ops_custom_cuda"
printf '#!/bin/sh\nexit 3\n' >"$work/stage/dtrain-1/test_ops_dnnl_cuda"
chmod +x "$work"/none/* "$work"/bin/* "$work"/stage/dtrain-1/*
tar -C "$work/stage" -czf "$work/bundle.tar.gz" dtrain-1
run() { rc=0; PATH=$1:$PATH py quick "${@:2}" --bundle "$work/bundle.tar.gz" 2>"$work/log" || rc=$?; }
run "$work/none" a "$work/none"
[ $rc = 77 ] && grep -q "no GPU on this machine" "$work/none/report.md" || fail "no GPU: exit $rc"
run "$work/bin" a "$work/out" --items ops,losses,bits --seconds 16
[ $rc = 1 ] || fail "part a: exit $rc"
py part_a "$work/out/report.json" || fail "part a: $(cat "$work/out/report.json")"
[ "$(ls "$work/out" | tr '\n' ' ')" = "engines.tar.gz logs.tar.gz report.json report.md " ] || fail "part a left $(ls "$work/out")"
tar -xzOf "$work/out/logs.tar.gz" ops.log | grep -x "real: real" >/dev/null || fail "the op tests took the fake device"
run "$work/bin" c "$work/out2" --items elastic --engines "$work/out/engines.tar.gz"
py part_c "$work/out2/report.json" || fail "part c: $(cat "$work/out2/report.json")"
tar -tzf "$work/out2/engines.tar.gz" | grep -x cache/engines-x.txt >/dev/null || fail "the engines of the part before are lost"
