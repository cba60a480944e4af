#!/usr/bin/env bash
# Python's safetensors opens our files and finds names, shapes, values and metadata. PYTHON names an
# interpreter that has safetensors and numpy; without one this is skipped.
set -euo pipefail
python=${PYTHON:-python3}
if ! "$python" -c 'import safetensors.numpy' 2>/dev/null; then
    echo "skipped: $python has no safetensors with numpy (set PYTHON to one that has)"
    exit 77
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$BUILD/test_safetensors" write "$dir/model.safetensors"
"$python" - "$dir/model.safetensors" <<'END'
import sys
import numpy as np
from safetensors import safe_open

with safe_open(sys.argv[1], framework="numpy") as f:
    assert f.metadata() == {"format": "pt"}, f.metadata()
    t = {k: f.get_tensor(k) for k in f.keys()}
want = {"layer.weight": np.array([[1, 2, 3], [4, 5, -6.5]], np.float32),
        "layer.bias": np.array([0.25, 1e-30], np.float32),
        "alpha": np.array(7, np.float32), "empty": np.zeros((0, 5), np.float32)}
assert t.keys() == want.keys(), t.keys()
for k, v in want.items():
    assert t[k].shape == v.shape and t[k].dtype == v.dtype and np.array_equal(t[k], v), k
print("safetensors reads", len(t), "tensors")
END
