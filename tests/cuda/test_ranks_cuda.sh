#!/usr/bin/env bash
# The program on several fake GPUs, one process each, with a fake NCCL between them (fake_module.c,
# fake_nccl.c). Ranks meet through MPI, take the device of their local rank, test their sums and train.
# run.reproducible=elastic gives one rank's weights on 3 and 4 ranks; with LAMB, a ViT and a MobileNetV3 on 2. Resuming
# gives the same on every run, also with bf16 gradients in transfer, with uneven shares, and if one rank's NCCL cannot be
# captured. Batch norms over ranks have the losses of one rank with the whole batch, and of the CPU's ranks. train.shard
# gives what a run without it gives, and a start whose device lacks memory at first what others give. These end in time with one clear line: more ranks than devices, two ranks on one
# device, a missing NCCL, wrong sums, a sum that fails, a rank that stops.
. "${SOURCE:?}/tests/small_run.sh" || exit
need_mpi
! sanitized || { echo "skipped: the module takes no sanitizer along"; exit 77; }

small_data "$work" 3 4
mkdir "$work/bin"
cp "$DTRAIN" "$BUILD/libdtrain_openmp.so" "$BUILD/dtrain_mpi.so" "$BUILD/fake/dtrain_cuda.so" "$work/bin"
export LD_LIBRARY_PATH="$BUILD/fake${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" FAKE_NCCL_DIR=$work FAKE_NCCL_SWITCH=1
cat >"$work/ranks.yaml" <<YAML
run: {name: ranks, dir: $work/runs, seed: 5}
device: {kind: cuda, time_engines: false}
data:
  path: $work/small.lmdb
  cache_dir: $work/cache
  fields:
    iris: {kind: image, channels: 3, size: [16, 16], normalize: imagenet}
    subject: {kind: class, classes: 3}
  augment: {iris: [{rotate: 10}, {color_jitter: {brightness: 0.3, contrast: 0.3, hue: 0.1}}, {erase: {fill: random}}]}
  split: {unit: record, stratify: subject, val: 0.2, test: 0.2}
model: {name: resnet, depth: 10, width: 4}
train: {epochs: 100, max_steps: 4, global_batch: 8, micro_batch: 2, precision: fp32, clip_norm: 1.0}
eval: {every: 1000000 steps}
checkpoint: {every: 1000000 steps}
metrics: {every: 1 steps, sinks: [jsonl]}
comm: {timeout: 600, bucket: 1024}
YAML

ranks_of() { # NP RUN WORD …: exit code in rc
    local np=$1 run=$2
    shift 2
    rc=0
    mkdir "$work/tmp.$run" # several run at once (small_run.sh)
    TMPDIR=$work/tmp.$run "${ranks[@]}" "$np" "$work/bin/dtrain" "$work/ranks.yaml" run.name="$run" "$@" >"$work/$run.out" 2>"$work/$run.log" || rc=$?
}
show() { # RUN WORD …
    cp "$work/$1.log" "$work/log"
    fail "$@"
}
good() {
    ranks_of "$@"
    [ $rc = 0 ] || show "$2" "exit $rc"
}
same() { # RUN RUN
    [ "$(hash "$work/runs/$1")" = "$(hash "$work/runs/$2")" ] || fail "$1 and $2 have other weights"
    echo "$1 = $2"
}
near() { # RUN RUN: the first three losses
    paste <(grep -o '"loss":[0-9.]*' "$work/runs/$1/metrics.jsonl") <(grep -o '"loss":[0-9.]*' "$work/runs/$2/metrics.jsonl") |
        tr ':' ' ' | awk 'NR <= 3 { d = $2 - $4; if (d > 1e-4 || d < -1e-4) exit 1 } END { if (NR < 3) exit 1 }' ||
        fail "$1 and $2 have other losses"
    echo "$1 ~ $2"
}
refused() { # RUN CODE TEXT: of one that ran in the background
    rc=0
    wait "$4" || rc=$?
    [ $rc = "$2" ] && grep -q "$3" "$work/$1.log" || show "$1" "exit $rc"
    echo "$1: exit $rc: $(grep -m1 "$3" "$work/$1.log")"
}

# train.shard: of a network of which each rank owns parts
shard=(model.width=16 train.ema=0.9 "eval.every=2 steps")
alike() { # RUN RUN STEP: all of their last checkpoints and results
    local f
    cmp "$work/runs/$1/result.json" "$work/runs/$2/result.json" || fail "$1 and $2 have other results"
    for f in "$work/runs/$1/checkpoints/step-$3"/*.safetensors; do
        cmp "$f" "$work/runs/$2/checkpoints/step-$3/${f##*/}" || fail "$1 and $2 differ in ${f##*/}"
    done
    echo "$1 = $2 in all"
}

# a failing job sleeps while its launcher ends it: the others run meanwhile
(FAKE_CUDA_DEVICES=2 ranks_of 3 crowd && exit $rc) & crowd=$!
(FAKE_NCCL_WRONG=1 ranks_of 2 wrong && exit $rc) & wrong=$!
(FAKE_CUDA_DEVICES=1 CUDA_VISIBLE_DEVICES=0 ranks_of 2 twice && exit $rc) & twice=$!
(FAKE_NCCL_MISSING=1 ranks_of 2 without && exit $rc) & without=$!
(FAKE_NCCL_REFUSES=1 ranks_of 2 refusing && exit $rc) & refusing=$!
(FAKE_CUDA_NO_DNN=conv_wgrad ranks_of 2 engineless && exit $rc) & engineless=$!
lost=(device.capture=false checkpoint.every="1 steps")
(FAKE_CUDA_FAILS="1 all_reduce 8 6" ranks_of 2 lost "${lost[@]}" && exit $rc) & lost_pid=$!
# a tensor of rank 1's: rank 0 hears that its update is not finite from the next step, or behind the last
spoils=("${shard[@]}" train.shard=optimizer train.optimizer.lr=1e30 train.optimizer.weight_decay=1000 "train.groups=[{match: 'layer4.0.conv1.*', lr: 1e6}]")
(ranks_of 2 spoiled "${spoils[@]}" && exit $rc) & spoiled=$!
(ranks_of 2 spoiledlast "${spoils[@]}" train.max_steps=1 && exit $rc) & spoiledlast=$!
(FAKE_CUDA_BYTES=8900000 ranks_of 2 large "${shard[@]}" && exit $rc) & large=$!
(FAKE_CUDA_FAILS="1 alloc 8 2 2" ranks_of 2 taken && exit $rc) & taken=$!

for np in 1 3 4; do
    good $np elastic$np run.reproducible=elastic
    [ $np = 1 ] || same elastic1 elastic$np
done
# the tree's pairs connect in the first step, behind the plan
good 4 late4 run.reproducible=elastic train.max_steps=2
! grep -q "more than was planned" "$work/late4.log" || show late4 "the plan is off"
grep -q "GPU memory: [0-9.]* MiB taken, [0-9.]* planned, 20.5 kept back" "$work/late4.log" || show late4 "no word on memory"
FAKE_NCCL_LINK=24000000 good 4 later4 run.reproducible=elastic train.max_steps=2
grep -q "rank .: the first steps took [0-9.]* MiB of the GPU's memory more than was planned" "$work/later4.log" || show later4 "no warning"
for np in 1 2; do good $np anew$np run.reproducible=elastic train.max_steps=2 eval.recalibrate_bn=2; done
same anew1 anew2
for np in 1 2; do good $np lamb$np run.reproducible=elastic train.optimizer.name=lamb; done # norms of each tensor
same lamb1 lamb2
# transformers and depthwise convolutions with squeeze-and-excitation, averages, activations that are made again
net=(run.reproducible=elastic train.ema=0.9 train.recompute=auto train.max_steps=3)
for np in 1 2; do
    good $np vit$np "${net[@]}" train.precision=fp16 "model={name: vit, depth: , width: , dim: 24, heads: 3, blocks: 2, patch: 8, drop_path: 0.2}"
    good $np mobile$np "${net[@]}" train.precision=bf16 data.fields.iris.size='[32, 32]' "model={name: mobilenet_v3, depth: , width: , size: s, drop_path: 0.2}"
done
same vit1 vit2
same mobile1 mobile2
# three heads, and parts that are frozen for good and for two steps: any number of ranks, resumed in front of the
# change; and the CPU's losses, until batch norms over two samples blow rounding up
several=(run.reproducible=elastic train.max_steps=5 data.augment= train.optimizer.name=sgd train.optimizer.lr=0.01
         'data.fields.eye={kind: class, classes: 2}' 'data.fields.n={kind: real}'
         'train.targets={subject: {weight: 2}, eye: {loss: focal, weight: 0.5}, n: {loss: mse, weight: 0.25}}'
         "train.groups=[{match: '(conv1|bn1).*', freeze: true}, {match: 'layer1.*', freeze_until: 2 steps, lr: 0.5}]")
good 1 heads1 "${several[@]}"
good 3 heads3 "${several[@]}"
same heads1 heads3
ranks_of 2 headsstop "${several[@]}" run.stop_at=1
[ $rc = 75 ] || show headsstop "exit $rc"
rm -r "$work/tmp.headsstop"
good 3 headsstop "${several[@]}"
same heads1 headsstop
good 1 headscpu "${several[@]}" device.kind=cpu device.threads=1
near heads1 headscpu
# batch norms over ranks
sync=(model.sync_bn=true data.augment= train.optimizer.name=sgd train.optimizer.lr=0.01 train.max_steps=3)
good 1 whole "${sync[@]}" train.micro_batch=8
good 2 synced "${sync[@]}" train.micro_batch=4
near whole synced
good 2 apart "${sync[@]}" train.micro_batch=4 model.sync_bn=false
! (near whole apart) 2>/dev/null || fail "the test sees no difference"
good 2 syncs "${sync[@]}"
good 2 syncsplain "${sync[@]}" device.capture=false
same syncs syncsplain
good 2 syncscpu "${sync[@]}" device.kind=cpu device.threads=1
near syncs syncscpu
# moments and averages divided: on 4 ranks, going on with one and with two, behind steps that overflow; norms of tensors,
# gradients in bf16, uncaptured
chain() { # RUN WORD …
    local np
    for np in 4 1; do
        ranks_of $np "$@" run.stop_at=$((np == 4 ? 8 : 10))
        [ $rc = 75 ] || show "$1" "exit $rc on $np ranks"
        rm -r "$work/tmp.$1"
    done
    good 2 "$@"
}
words=("${shard[@]}" train.precision=fp16 train.max_steps=12 train.optimizer.lr=1e-5 "run.verify_every=1 steps")
chain undivided "${words[@]}" & undivided=$!
chain divided "${words[@]}" train.shard=optimizer
wait $undivided
alike undivided divided 00000012
grep -q '"grad_norm":[0-9]' "$work/runs/divided/metrics.jsonl" || show divided "all steps overflow"
# in bf16 an owner alone has the masters: through evaluations of folded weights and of averages, files of weights, parts that
# are frozen for good and for a while, a teacher, and other numbers of ranks
freezes="train.groups=[{match: '(conv1|bn1).*', freeze: true}, {match: 'layer3.*', freeze_until: 9 steps, lr: 0.5}]"
words=("${shard[@]}" train.precision=bf16 train.max_steps=12 "eval.every=2 steps" "run.verify_every=1 steps" "$freezes")
chain unowned "${words[@]}" & undivided=$!
chain owned "${words[@]}" train.shard=optimizer
wait $undivided
alike unowned owned 00000012
words=(train.precision=bf16 model.width=16 "eval.every=2 steps" eval.recalibrate_bn=2 "train.teacher=$work/runs/unowned@12"
       "model.init=$work/runs/unowned/checkpoints/step-00000012/model.safetensors" train.optimizer.name=lamb)
good 4 unownedinit "${words[@]}" & undivided=$!
good 4 ownedinit "${words[@]}" train.shard=optimizer
wait $undivided
alike unownedinit ownedinit 00000004
words=(train.precision=bf16 data.augment= "model={name: vit, depth: , width: , dim: 64, heads: 4, blocks: 4, patch: 8, drop_path: 0.2}")
good 2 unownedvit "${words[@]}" & undivided=$!
good 2 ownedvit "${words[@]}" train.shard=optimizer device.capture=false
wait $undivided
alike unownedvit ownedvit 00000004
(rc=0 && "${ranks[@]}" 2 sh -c '[ $OMPI_COMM_WORLD_RANK = 0 ] || export DTRAIN_FAILPOINT=flip:2:eio; exec "$@"' - "$work/bin/dtrain" \
    "$work/ranks.yaml" run.name=flipped "${words[@]}" train.shard=optimizer "run.verify_every=1 steps" >"$work/flipped.out" 2>"$work/flipped.log" || exit $?) & flipped=$!
gathered() { # PRECISION: bytes that four more steps gather
    local n bytes=()
    for n in 1 5; do
        FAKE_NCCL_BYTES=1 good 2 "gather$1$n" "${words[@]}" train.shard=optimizer train.precision="$1" train.max_steps=$n data.split.val=0 "eval.every=0"
        bytes+=("$(grep -o -m1 'gathered [0-9]*' "$work/gather$1$n.log" | cut -d' ' -f2)")
    done
    echo $((bytes[1] - bytes[0]))
}
fp32=$(gathered fp32) bf16=$(gathered bf16)
[ "$fp32" -gt 1000000 ] && [ $((2 * bf16)) = "$fp32" ] || fail "four steps gather $fp32 bytes in fp32, $bf16 in bf16"
echo "gathered: $fp32 bytes in fp32, $bf16 in bf16"
shard+=(train.optimizer.name=lamb comm.gradient_dtype=bf16)
good 2 lambundivided "${shard[@]}" & undivided=$!
good 2 lambplain "${shard[@]}" train.shard=optimizer device.capture=false & plain=$!
FAKE_CUDA_BYTES=8900000 good 2 lambdivided "${shard[@]}" train.shard=optimizer # too little for all moments
wait $undivided
wait $plain
alike lambundivided lambdivided 00000004
alike lambundivided lambplain 00000004
# alone it needs no NCCL
FAKE_NCCL_MISSING=0 FAKE_CUDA_CORE=0 good 1 near train.max_steps=1
grep -q "workers: 1" "$work/runs/near/config.yaml" || show near "threads were counted before the device had bound the rank"
# what engines want of workspace does not keep a network from a device on which others fit
FAKE_CUDA_WORKSPACE=900000000 FAKE_CUDA_BYTES=400000000 good 2 squeezed train.max_steps=1
good 2 resume2
grep -q '"gpu":{"util":0.97,"power_w":412.5,' "$work"/runs/*/metrics.jsonl || fail "no run has the numbers of its GPU" # short ones may not
FAKE_NVML=hang good 2 again2
! grep -q '"gpu"' "$work/runs/again2/metrics.jsonl" || show again2 "a driver that hangs has numbers"
same resume2 again2
# sums of three: NVSwitches would add in another order each time
good 3 resume3
grep -q 'NCCL_ALGO=^NVLS,NVLSTree: sums in NVSwitches do not repeat' "$work/resume3.log" || show resume3 "no word on NCCL_ALGO"
for at in 1 2; do # two starts more, so that one of them would have other bits
    ranks_of 3 again3 run.stop_at=$at
    [ $rc = 75 ] || show again3 "exit $rc"
    rm -r "$work/tmp.again3"
done
good 3 again3
same resume3 again3
for set in Tree NVLS,Tree 'allreduce:^NVLS,NVLSTree;broadcast:ring'; do
    NCCL_ALGO=$set good 3 "algo$set" train.max_steps=1
    [[ $set == *,Tree ]] && warns=1 || warns=0
    [ "$(grep -c 'lets NCCL add in NVSwitches' "$work/algo$set.log")" = $warns ] || show "algo$set" "not $warns warnings"
done
ranks_of 3 other3 run.stop_at=1
rm -r "$work/tmp.other3"
NCCL_ALGO=NVLS good 3 other3
grep -q "began with NCCL_ALGO='^NVLS,NVLSTree' and continues with 'NVLS'" "$work/other3.log" || show other3 "no word on the change"
NCCL_MULTI_RANK_GPU_ENABLE=1 FAKE_CUDA_DEVICES=1 CUDA_VISIBLE_DEVICES=0 good 2 shared2 # the same GPU
same resume2 shared2
good 3 free3 run.reproducible=off train.max_steps=1
! grep -q NCCL_ALGO "$work/free3.log" || show free3 "NVLS is ruled out"
# another process takes the memory of one rank's device: all begin once more, for the same bits
for at in "0 alloc 8" "1 alloc 7" "1 alloc 10" "1 alloc 12"; do
    run=taken${at// /}
    FAKE_CUDA_FAILS="$at 2" good 2 "$run"
    grep -q "rank ${at%% *}: out of memory on cuda device .*: once more with train.recompute=auto" "$work/$run.log" || show "$run" "no word on memory"
    same resume2 "$run"
done
good 2 bf16 comm.gradient_dtype=bf16
good 2 bf16again comm.gradient_dtype=bf16
same bf16 bf16again
[ "$(hash "$work/runs/bf16")" != "$(hash "$work/runs/resume2")" ] || fail "comm.gradient_dtype=bf16 does nothing"
good 2 plain2 device.capture=false data.augment_on=host # nor does it matter who changes the pixels
same resume2 plain2
# 3 micro-batches on 2 ranks
good 2 uneven train.global_batch=6
good 2 unevenplain train.global_batch=6 device.capture=false
same uneven unevenplain
refused crowd 2 "3 ranks on this host, but 2 GPUs: start one rank per GPU" $crowd
refused refusing 240 "a captured sum (device.capture: false goes without): rank 1: NCCL all-reduce failed: invalid argument" $refusing
refused engineless 70 "cuDNN has no engine for conv_wgrad .* window .* (.*fake device)" $engineless
refused wrong 240 "sum gave .* NCCL or a link between GPUs is broken" $wrong
refused flipped 70 "after step 2: run.verify_every: rank 1 on .* holds other values in 'heads" $flipped
refused spoiled 6 "step 0: its gradients were finite, but its update is not: 'layer4.0.conv1.weight'" $spoiled
refused spoiledlast 6 "step 0: its gradients were finite, but its update is not: 'layer4.0.conv1.weight'" $spoiledlast
refused large 2 "9.0 MiB in all (.* optimizer state 2.4, EMA of the weights 1.2, .* of 8.5 MiB" $large
refused taken 70 "error: rank 1: out of memory on cuda device 1: .* train.recompute: auto takes less .* lower train.micro_batch" $taken
refused twice 2 "ranks 0 and 1 on .* have the same GPU (PCI 0000:10:00.0); CUDA_VISIBLE_DEVICES=0: start one rank per GPU, .*NCCL_MULTI_RANK_GPU_ENABLE=1" $twice
refused lost 240 "rank 1: NCCL all-reduce failed: remote process exited" $lost_pid
[ -d "$work/runs/lost/checkpoints/step-00000001" ] || show lost "nothing was saved"
rm -r "$work/tmp.lost"
good 2 lost "${lost[@]}"
same resume2 lost
refused without 2 "libnccl.so.2 does not load for rank 1 on" $without

# both ranks stop themselves, one goes on and waits for the other: not for ever
mkdir "$work/tmp.stopped"
TMPDIR=$work/tmp.stopped DTRAIN_FAILPOINT=step:2:stop "${ranks[@]}" 2 "$work/bin/dtrain" "$work/ranks.yaml" run.name=stopped train.epochs=1000000 train.max_steps=1000000 \
    comm.timeout=5 >"$work/stopped.out" 2>"$work/stopped.log" &
pid=$!
wait_until have_stopped 2
halted=$pid begin=$SECONDS victim=${stopped[1]}
kill -CONT "${stopped[0]}"

# meanwhile: one rank gives a step up: all drop it, and sum it in the same way
"${ranks[@]}" 2 "$work/bin/dtrain" "$work/ranks.yaml" run.name=dropped train.epochs=1000000 train.max_steps=1000000 run.grace=0 \
    >"$work/dropped.out" 2>"$work/dropped.log" &
pid=$!
wait_for_step dropped
kill -TERM "$(children $pid | cut -d' ' -f2)"
rc=0
wait $pid || rc=$?
[ $rc = 75 ] || show dropped "exit $rc"
echo "dropped: exit $rc"

rc=0
while kill -0 $halted 2>/dev/null && [ $((SECONDS - begin)) -le 120 ]; do sleep 0.1; done
took=$((SECONDS - begin))
kill -KILL "$victim" 2>/dev/null || true
wait $halted || rc=$?
[ $rc = 240 ] && [ $took -le 120 ] || show stopped "exit $rc after $took s"
grep -qE "no heartbeat from rank 1 on .* for 5 s" "$work/stopped.log" || show stopped "no line names the rank"
echo "stopped: exit $rc: $(grep -m1 "no heartbeat" "$work/stopped.log")"
