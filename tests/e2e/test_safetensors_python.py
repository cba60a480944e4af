"""Functions of test_safetensors_python.sh: what it trains on, and checks of what it wrote."""
import numpy as np
from safetensors import safe_open


def check(path):
    with safe_open(path, framework="numpy") as f:
        assert f.metadata() == {"format": "pt"}, f.metadata()
        t = {k: f.get_tensor(k) for k in f.keys()}
    want = {"layer.weight": np.array([[1, 2, 3], [4, 5, -6.5]], np.float32),
            "layer.bias": np.array([0.25, 1e-30], np.float32),
            "alpha": np.array(7, np.float32), "empty": np.zeros((0, 5), np.float32)}
    assert t.keys() == want.keys(), t.keys()
    for k, v in want.items():
        assert t[k].shape == v.shape and t[k].dtype == v.dtype and np.array_equal(t[k], v), k
    print("safetensors reads", len(t), "tensors")
