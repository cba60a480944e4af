#!/usr/bin/env bash
# Python's safetensors opens our files and finds names, shapes, values and metadata. PYTHON names an
# interpreter that has safetensors and numpy; without one this is skipped.
. "${SOURCE:?}/tests/expect.sh" || exit
if ! "$python" -c 'import safetensors.numpy' 2>/dev/null; then
    echo "skipped: $python has no safetensors with numpy (set PYTHON to one that has)"
    exit 77
fi
"$BUILD/test_safetensors" write "$dir/model.safetensors"
py check "$dir/model.safetensors"
