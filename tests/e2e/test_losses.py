"""Functions of test_losses.sh: what it trains on, and checks of what it wrote."""
import json, random, re
from small_set import records, write_tar


def make(path):
    random.seed(7)
    def six(i, wrong):
        return wrong if i == 17 else [round(random.gauss(0, 1), 3) for _ in range(6)]
    write_tar(path, [{
        "x": " ".join(f"{random.gauss(k, 1):.4f}" for _ in range(4)), "cls": str(k),
        "three": " ".join(str(random.randrange(-40, 40)) for _ in range(3)),
        "six": " ".join(f"{random.gauss(0, 1):.3f}" for _ in range(6)),
        "flags": " ".join(str(random.randrange(2)) for _ in range(3)),
        "zeros": " ".join(map(str, six(i, [0] * 6))), # record 0017 is no rotation, in a member and in columns
        "json": json.dumps(dict(zip("abcdef", six(i, [1, 2, 3, -2, -4, -6]))))}
        for i, k in enumerate([0] * 30 + [1] * 12 + [2] * 6)])


def cases(losses, out):
    cls, flags, six = "{kind: class}", "{kind: vector, size: 3}", "{kind: vector, size: 6}"
    three = "{kind: vector, size: 3, normalize: {mean: [2], std: [25]}}"
    CASES = {
        "cross_entropy": [("cls", cls, ""), ("cls", cls, "label_smoothing=0.2")],
        "focal": [("cls", cls, "focal_gamma=1.5"), ("cls", cls, "focal_gamma=2 label_smoothing=0.1")],
        "arcface": [("cls", cls, "arcface_margin=0 arcface_scale=4")],  # evaluation has no margin
        "bce": [("flags", flags, "")],
        "l1": [("three", three, "")],
        "huber": [("three", three, "huber_delta=0.5")],
        "poisson": [("flags", flags, "")],
        "mse": [("three", three, "")],
        "smooth_l1": [("three", three, ""), ("three", three, "smooth_l1_beta=0.25")],
        "geodesic": [("three", "{kind: vector, size: 3}", ""), ("six", six, "")],
    }
    for name in re.findall(r"^WORD\((\w+)", open(losses).read(), re.M):
        for i, (field, of, words) in enumerate(CASES[name]):
            print(f"{name}{i}|{name}|{field}|{of}|{words}", file=open(out, "a"))


def compare(metrics, evaluation):
    trained = next(r["loss"] for r in records(metrics, "step"))
    result = json.load(open(evaluation))
    evaluated = result["loss"]
    assert not [k for k in result if k.endswith(".loss")], result  # once: there is one target
    assert trained > 1e-3 and abs(trained - evaluated) < 2e-6 * trained, (trained, evaluated)
