#!/usr/bin/env bash
# A full disk: a start with a lower checkpoint.keep removes what is spare before its first save, and goes on.
. "${SOURCE:?}/tests/small_run.sh" || exit
disk=$work/disk
if [ "${1:-}" != in ]; then
    unshare -rm true 2>/dev/null || { echo "skipped: no mount namespaces here"; exit 77; }
    unshare -rm bash "$0" in # its mounts end with it
    exit
fi
mkdir "$disk"
mount -t tmpfs -o size=64m none "$disk" || { echo "skipped: no tmpfs here"; exit 77; }
trap 'umount -l "$disk"; clean_up' EXIT
small_data "$work"
config=$(small_config "$work")
job=(run.dir="$disk" train.max_steps=12 checkpoint.every="2 steps" checkpoint.keep=4)
exits 75 '' "$DTRAIN" "$config" "${job[@]}" run.stop_at=9
cp -r "$disk/small" "$work/before"
# what the start would cut off, so that no page becomes free by it
truncate -s "$(sed 's/.*"metrics_offset":\([0-9]*\).*/\1/' "$work"/before/checkpoints/step-00000009/state.json)" "$work/before/metrics.jsonl"
for split in kept lost; do
    rm -rf "${disk:?}/"*
    cp -r "$work/before" "$disk/small"
    [ $split = kept ] || rm "$disk/small/split.csv"
    dd if=/dev/zero of="$disk/filling" bs=4k status=none 2>/dev/null || true
    train "${job[@]}" checkpoint.keep=1
    grep -q "config.yaml: cannot .*No space left.*continues without it" "$work/log" || fail "$split: the disk was not full"
    [ $split = kept ] || grep -q "split.csv: cannot .*No space left.*continues without it" "$work/log" ||
        fail "split.csv is lost without a word"
    [ "$(ls "$disk/small/checkpoints" | grep -c '^step-')" = 1 ] || fail "$split: $(ls "$disk/small/checkpoints")"
    "$DTRAIN" ckpt verify "$disk/small" >"$work/out" 2>"$work/log" || fail "$split: a checkpoint is bad"
done
echo "a full disk is freed by a lower checkpoint.keep"
