#!/usr/bin/env bash
# Python's webdataset and lmdb read what `dtrain pack` writes. PYTHON names an interpreter that has one
# of them or both; without any this is skipped (tarfile is tried by e2e/test_photos).
. "${SOURCE:?}/tests/small_run.sh" || exit
found=
for module in webdataset lmdb; do
    "$python" -c "import $module" 2>/dev/null && found+=" $module"
done
[ -n "$found" ] || { echo "skipped: $python has neither webdataset nor lmdb (set PYTHON to one that has)"; exit 77; }

small_data "$work"
"$DTRAIN" pack "$work/raw" "$work/small-{000000..000001}.tar" >/dev/null 2>"$work/log" || fail "pack: exit $?"
py check "$work" $found
