"""Writes tests/golden/optimizers.safetensors: three steps of each optimizer by torch and timm on two tensors, of which one
decays and the other does not (a bias), and rates of torch's schedules.

Run by hand in an environment with torch, timm and safetensors:  python tests/golden/make_optimizers.py
"""
import os

import timm
import timm.optim
import timm.utils.agc
import torch
from safetensors.torch import save_file
from torch.optim import lr_scheduler

STEPS, LR, DECAY = 3, 0.05, 0.1


def trained(make, clip=None, decay=DECAY):
    torch.manual_seed(3)
    matrix, bias = torch.randn(5, 7), torch.randn(9)
    grads = [[torch.randn(5, 7), torch.randn(9)] for _ in range(STEPS)]
    p = [matrix.clone().requires_grad_(), bias.clone().requires_grad_()]
    optimizer = make([{"params": [p[0]], "weight_decay": decay}, {"params": [p[1]], "weight_decay": 0.0}])
    for step in range(STEPS):
        for tensor, g in zip(p, grads[step]):
            tensor.grad = g.clone()
        if clip:
            clip(p)
        optimizer.step()
    return (matrix, bias, grads), torch.cat([x.detach().flatten() for x in p])


OPTIMIZERS = {  # test_golden_optimizers.c has these names, and the same numbers
    "adamw": lambda p: torch.optim.AdamW(p, lr=LR, betas=(0.8, 0.95), eps=1e-6),
    "adam": lambda p: torch.optim.Adam(p, lr=LR, betas=(0.8, 0.95), eps=1e-6),
    "sgd": lambda p: torch.optim.SGD(p, lr=LR, momentum=0.9),
    "nesterov": lambda p: torch.optim.SGD(p, lr=LR, momentum=0.9, nesterov=True),
    "lamb": lambda p: timm.optim.Lamb(p, lr=LR, betas=(0.8, 0.95), eps=1e-6, max_grad_norm=None, trust_clip=False),
    "lion": lambda p: timm.optim.Lion(p, lr=LR, betas=(0.8, 0.95)),
    "lars": lambda p: timm.optim.Lars(p, lr=LR, momentum=0.9, trust_coeff=0.02),
    "lars_nesterov": lambda p: timm.optim.Lars(p, lr=LR, momentum=0.9, trust_coeff=0.02, nesterov=True),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=LR),
}

PLAIN = {  # without decay
    "lamb_plain": OPTIMIZERS["lamb"],
    "lars_plain": OPTIMIZERS["lars"],
}
ALWAYS = {
    "lamb_always": lambda p: timm.optim.Lamb(p, lr=LR, betas=(0.8, 0.95), eps=1e-6, max_grad_norm=None, always_adapt=True),
    "lars_always": lambda p: timm.optim.Lars(p, lr=LR, momentum=0.9, trust_coeff=0.02, always_adapt=True),
}

CLIPS = {  # under sgd
    "clip_value": lambda p: torch.nn.utils.clip_grad_value_(p, 0.3),
    "clip_agc": lambda p: timm.utils.agc.adaptive_clip_grad(p, 0.1),
}

SCHEDULES = {
    "one_cycle": lambda o: lr_scheduler.OneCycleLR(o, 0.5, total_steps=30, pct_start=0.3, div_factor=10,
                                                   final_div_factor=100),
    "polynomial": lambda o: lr_scheduler.PolynomialLR(o, 30, power=1.5),
    "warm_restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, T_0=4, T_mult=2, eta_min=0.05),
}


def rates(make):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    schedule, found = make(optimizer), []
    for _ in range(30):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return found


(matrix, bias, grads), _ = trained(OPTIMIZERS["adamw"])
out = {"matrix": matrix, "bias": bias, "matrix_grad": torch.stack([g[0] for g in grads]),
       "bias_grad": torch.stack([g[1] for g in grads])}
out.update((f"trained/{name}", trained(make)[1]) for name, make in OPTIMIZERS.items())
out.update((f"trained/{name}", trained(make, decay=0.0)[1]) for name, make in PLAIN.items())
out.update((f"trained/{name}", trained(make)[1]) for name, make in ALWAYS.items())
out.update((f"trained/{name}", trained(OPTIMIZERS["sgd"], clip)[1]) for name, clip in CLIPS.items())
out.update((f"rates/{name}", torch.tensor(rates(make))) for name, make in SCHEDULES.items())
save_file(out, os.path.join(os.path.dirname(os.path.abspath(__file__)), "optimizers.safetensors"),
          metadata={"made": f"by make_optimizers.py with torch {torch.__version__} and timm {timm.__version__}"})
