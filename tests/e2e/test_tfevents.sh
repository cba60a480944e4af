#!/usr/bin/env bash
# TensorBoard's own reader reads our event files: versions, tags, values, and a resumed run counts
# each step once. PYTHON names an interpreter that has tensorboard; without one this is skipped.
. "${SOURCE:?}/tests/expect.sh" || exit
if ! "$python" -c 'import tensorboard' 2>/dev/null; then
    echo "skipped: $python has no tensorboard (set PYTHON to one that has)"
    exit 77
fi
"$BUILD/test_metrics" write "$dir"
py check "$dir"
