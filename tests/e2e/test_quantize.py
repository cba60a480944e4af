"""Functions of test_quantize.sh: what it trains on, and checks of what it wrote."""
import json
from small_set import read_safetensors


def check_scales(runs):
    tensors, shapes, _ = read_safetensors(f"{runs}/mse/checkpoints/step-00000060/model.safetensors")
    int8 = {how: json.load(open(f"{runs}/{how}/int8.json")) for how in ("mse", "minmax", "percentile")}
    layers = int8["mse"]["layers"]
    checked = 0
    for name, layer in layers.items():
        shape, w = shapes[name + ".weight"], tensors[name + ".weight"]
        each = len(w) // shape[0]
        assert len(layer["weight"]) == shape[0], name
        if len(shape) > 2:
            continue  # a batch norm is folded in
        for o, scale in enumerate(layer["weight"]):
            most = max(abs(x) for x in w[o * each:(o + 1) * each])
            assert abs(scale - most / 127) < 1e-6 * most, (name, o)
        assert len(set(layer["weight"])) > 1, name
        checked += 1
    assert checked > 2
    # nothing is cut off by minmax, something by the others
    scale = lambda how: [v["scale"] for v in int8[how]["values"].values()]
    assert all(a <= b * 1.000001 for a, b in zip(scale("mse"), scale("minmax")))
    assert all(a <= b * 1.000001 for a, b in zip(scale("percentile"), scale("minmax")))
    assert scale("mse") != scale("minmax") != scale("percentile")
    assert any(v["negative"] for v in int8["mse"]["values"].values())


def check_results(work):
    fp32, int8, avx2, off = (json.load(open(f"{work}/{n}")) for n in ("fp32", "int8", "avx2", "off"))
    assert fp32["accuracy"] > 0.9, fp32
    for q in (int8, avx2):
        assert abs(q["accuracy"] - fp32["accuracy"]) <= 0.02, (fp32, q)
        assert 0 < abs(q["loss"] - fp32["loss"]) < 0.02, (fp32, q)
    assert off["loss"] == fp32["loss"], "model.int8=false is not the fp32 network"


def check_warning(report, log):
    """Where int8 is slower than fp32, and nowhere else, a warning says so with both rates."""
    fp32, int8 = next(line.split()[1:3] for line in open(report) if line.startswith("samples/s"))
    said = [line for line in open(log) if "int8 is slower than fp32" in line]
    if fp32 != int8:
        assert bool(said) == (float(int8) < float(fp32)), (fp32, int8, said)
    assert all(f"{int8} samples/s beside {fp32}" in line for line in said), said
