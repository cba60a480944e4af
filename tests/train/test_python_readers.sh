#!/usr/bin/env bash
# Python's webdataset and lmdb read what `dtrain pack` writes. PYTHON names an interpreter that has one
# of them or both; without any this is skipped (tarfile is tried by train/test_photos).
. "${SOURCE:?}/tests/small_run.sh" || exit
python=${PYTHON:-python3}
found=
for module in webdataset lmdb; do
    "$python" -c "import $module" 2>/dev/null && found+=" $module"
done
[ -n "$found" ] || { echo "skipped: $python has neither webdataset nor lmdb (set PYTHON to one that has)"; exit 77; }

small_data "$work"
"$DTRAIN" pack "$work/raw" "$work/small-{000000..000001}.tar" >/dev/null 2>"$work/log" || fail "pack: exit $?"
"$python" - "$work" $found <<'PY'
import glob, sys
work, found = sys.argv[1], sys.argv[2:]
files = len(glob.glob(work + "/raw/**/*.[bB][mM][pP]", recursive=True))
if "webdataset" in found:
    import webdataset
    samples = list(webdataset.WebDataset(sorted(glob.glob(work + "/small-*.tar")), shardshuffle=False))
    assert len(samples) == files, f"webdataset: {len(samples)} samples of {files} files"
    for s in samples:
        images = [k for k in s if k.endswith("bmp")]
        assert len(images) == 1 and s[images[0]][:2] == b"BM", s.keys()
    print("webdataset reads", len(samples), "samples")
if "lmdb" in found:
    import lmdb
    with lmdb.open(work + "/small.lmdb", readonly=True, lock=False) as env, env.begin() as txn:
        images = sum(bytes(v[:2]) == b"BM" for _, v in txn.cursor())
    assert images == files, f"lmdb: {images} images of {files} files"
    print("lmdb reads", images, "images")
PY
