"""Writes tests/golden/optimizers_golden.h: three steps of each optimizer by torch and timm on two tensors, of which one
decays and the other does not (a bias), and rates of torch's schedules.

Run by hand in an environment with torch and timm:  python tests/golden/make_optimizers.py
"""
import os

import timm
import timm.optim
import timm.utils.agc
import torch
from torch.optim import lr_scheduler

STEPS, LR, DECAY = 3, 0.05, 0.1


def rows(values):
    return ", ".join(f"{v:.9g}f" if "." in f"{v:.9g}" or "e" in f"{v:.9g}" else f"{v:.9g}.0f" for v in values)


def array(name, values):
    lines, text = [], ""
    for v in rows(values).split(", "):
        if len(text) + len(v) > 90:
            lines.append(text)
            text = ""
        text += v + ", "
    body = "\n    ".join(line.rstrip() for line in lines + [text])
    return f"static const float {name}[] = {{\n    {body.rstrip(', ')}}};\n"


def trained(make, clip=None):
    torch.manual_seed(3)
    matrix, bias = torch.randn(5, 7), torch.randn(9)
    grads = [[torch.randn(5, 7), torch.randn(9)] for _ in range(STEPS)]
    p = [matrix.clone().requires_grad_(), bias.clone().requires_grad_()]
    optimizer = make([{"params": [p[0]], "weight_decay": DECAY}, {"params": [p[1]], "weight_decay": 0.0}])
    for step in range(STEPS):
        for tensor, g in zip(p, grads[step]):
            tensor.grad = g.clone()
        if clip:
            clip(p)
        optimizer.step()
    return (matrix, bias, grads), torch.cat([x.detach().flatten() for x in p]).tolist()


OPTIMIZERS = [
    ("adamw", "{0.8f, 0.95f, 1e-6f}", lambda p: torch.optim.AdamW(p, lr=LR, betas=(0.8, 0.95), eps=1e-6)),
    ("adam", "{0.8f, 0.95f, 1e-6f}", lambda p: torch.optim.Adam(p, lr=LR, betas=(0.8, 0.95), eps=1e-6)),
    ("sgd", "{0.9f, 0}", lambda p: torch.optim.SGD(p, lr=LR, momentum=0.9)),
    ("sgd", "{0.9f, 1}", lambda p: torch.optim.SGD(p, lr=LR, momentum=0.9, nesterov=True)),
    ("lamb", "{0.8f, 0.95f, 1e-6f}",
     lambda p: timm.optim.Lamb(p, lr=LR, betas=(0.8, 0.95), eps=1e-6, max_grad_norm=None, trust_clip=False)),
    ("lion", "{0.8f, 0.95f}", lambda p: timm.optim.Lion(p, lr=LR, betas=(0.8, 0.95))),
    ("lars", "{0.9f, 0, 0.02f}", lambda p: timm.optim.Lars(p, lr=LR, momentum=0.9, trust_coeff=0.02)),
    ("lars", "{0.9f, 1, 0.02f}",
     lambda p: timm.optim.Lars(p, lr=LR, momentum=0.9, trust_coeff=0.02, nesterov=True)),
    ("adafactor", "{0}", lambda p: torch.optim.Adafactor(p, lr=LR)),
]

CLIPS = [
    ("0.3f, 0", lambda p: torch.nn.utils.clip_grad_value_(p, 0.3)),
    ("0, 0.1f", lambda p: timm.utils.agc.adaptive_clip_grad(p, 0.1)),
]

SCHEDULES = [
    ("one_cycle", "{9, 10, 100}",
     lambda o: lr_scheduler.OneCycleLR(o, 0.5, total_steps=30, pct_start=0.3, div_factor=10, final_div_factor=100)),
    ("polynomial", "{1.5, 0}", lambda o: lr_scheduler.PolynomialLR(o, 30, power=1.5)),
    ("warm_restarts", "{4, 2, 0.05}",
     lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, T_0=4, T_mult=2, eta_min=0.05)),
]


def rates(make):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    schedule, found = make(optimizer), []
    for _ in range(30):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return found


text = f"// Made by make_optimizers.py with torch {torch.__version__} and timm {timm.__version__}.\n"
(matrix, bias, grads), _ = trained(OPTIMIZERS[0][2])
text += array("MATRIX", matrix.flatten().tolist()) + array("BIAS", bias.tolist())
for i in range(STEPS):
    text += array(f"MATRIX_GRAD_{i}", grads[i][0].flatten().tolist()) + array(f"BIAS_GRAD_{i}", grads[i][1].tolist())
for i, (name, hyper, make) in enumerate(OPTIMIZERS):
    text += array(f"TRAINED_{i}", trained(make)[1])
for i, (_, clip) in enumerate(CLIPS):
    text += array(f"CLIPPED_{i}", trained(OPTIMIZERS[2][2], clip)[1])
for i, (name, own, make) in enumerate(SCHEDULES):
    text += array(f"RATES_{i}", rates(make))
text += f"enum {{ GOLDEN_STEPS = {STEPS} }};\nstatic const float GOLDEN_LR = {LR}f, GOLDEN_DECAY = {DECAY}f;\n"
text += "static const float *const MATRIX_GRADS[] = {" + ", ".join(f"MATRIX_GRAD_{i}" for i in range(STEPS)) + "};\n"
text += "static const float *const BIAS_GRADS[] = {" + ", ".join(f"BIAS_GRAD_{i}" for i in range(STEPS)) + "};\n"
text += "static const struct {\n    dt_optimizer_id kind;\n    float hyper[DT_MAX_HYPER];\n    const float *trained;\n} "
text += "OPTIMIZERS[] = {\n" + "".join(
    f"    {{DT_OPTIMIZER_{n}, {h}, TRAINED_{i}}},\n" for i, (n, h, _) in enumerate(OPTIMIZERS)) + "};\n"
text += "static const struct { // under sgd\n    float value, agc;\n    const float *trained;\n} CLIPS[] = {\n" + "".join(
    f"    {{{v}, CLIPPED_{i}}},\n" for i, (v, _) in enumerate(CLIPS)) + "};\n"
text += "static const struct {\n    dt_schedule_id kind;\n    double own[DT_MAX_SCHEDULE_KEYS];\n    const float *rates;\n} "
text += "SCHEDULES[] = {\n" + "".join(
    f"    {{DT_SCHEDULE_{n}, {o}, RATES_{i}}},\n" for i, (n, o, _) in enumerate(SCHEDULES)) + "};\n"
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "optimizers_golden.h"), "w") as f:
    f.write(text)
