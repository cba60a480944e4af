#!/usr/bin/env python3
"""Reference pictures for augmentation: writes augment.safetensors beside this script.

Run by hand when a case is added (needs torch, torchvision, torchaudio, Pillow, numpy, safetensors);
test_augment.c and, where a name ends in a sample's number, test_golden_augment.c read the file. Tensors are bytes (H,W,C). "src3", "src1" and "small" are the pictures; every other one is a
result, and its name is the call: "<operation> <channels> <parameter> ...". Results come from
torchvision's functional on PIL images, which is Pillow, except hue and blur, where its way through PIL is
lossy or absent: those are from tensors. Policies: "rand|auto|wide <operation or pair> ...", from
torchvision's own _apply_op, nearest, fill 0, on the small picture. "as drawn/<operation> <sample> ...": what
dtrain draws for the sample, computed here anew, given to the deterministic half of torchvision or torchaudio.
"""
import math
import os

import numpy as np
import torch
import torchvision.transforms.autoaugment as aa
import torchvision.transforms.functional as F
import torchvision.transforms.v2 as v2
from PIL import Image
from safetensors.numpy import save_file
from torchvision.transforms import InterpolationMode as I

torch.version.cuda = None  # a torchaudio for another CUDA refuses to load; nothing here needs one
import torchaudio.functional as A  # noqa: E402

out = {}
W, H = 30, 22


def picture(w, h, seed):
    """Slopes, a dark and a coloured block, some grain; no channel uses all values."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:h, 0:w]
    rgb = np.stack([40 + 150 * x / w, 30 + 190 * y / h, 60 + 60 * (x + y) / (w + h)], -1)
    rgb[h // 4:h // 2, w // 8:w // 2] = [200, 40, 60]
    rgb[h // 2:, 2 * w // 3:] *= 0.4
    rgb[: h // 5, w // 2:] = [90, 90, 90]
    return np.clip(rgb + rng.normal(0, 6, rgb.shape), 12, 240).astype(np.uint8)


big = Image.fromarray(picture(W, H, 1))
pictures = {3: big, 1: big.convert("L")}
small = Image.fromarray(picture(16, 12, 2))
out["src3"] = np.array(big)
out["src1"] = np.array(pictures[1])[..., None]
out["small"] = np.array(small)


def keep(name, image):
    a = np.array(image)
    out[name] = np.ascontiguousarray(a if a.ndim == 3 else a[..., None])


def case(op, fn, *parameters, channels=(3, 1)):
    for c in channels:
        keep(" ".join(map(str, [op, c, *parameters])), fn(pictures[c], *parameters))


def tensor_case(op, fn, *parameters, channels=(3, 1)):
    for c in channels:
        t = torch.from_numpy(np.array(pictures[c])).reshape(H, W, c).permute(2, 0, 1)
        keep(" ".join(map(str, [op, c, *parameters])), fn(t, *parameters).permute(1, 2, 0).numpy())


for factor in (0.25, 1.5):
    case("brightness", F.adjust_brightness, factor)
    case("contrast", F.adjust_contrast, factor)
    case("saturation", F.adjust_saturation, factor, channels=(3,))
    case("sharpness", F.adjust_sharpness, factor)
case("sharpness", F.adjust_sharpness, 0)
case("saturation", F.adjust_saturation, 1.9, channels=(3,))
for turn in (-0.5, -0.13, 0.02, 0.31):
    tensor_case("hue", F.adjust_hue, turn, channels=(3,))
case("grayscale", lambda i: F.to_grayscale(i, 3), channels=(3,))
case("invert", F.invert)
for threshold in (0, 100.4, 128):
    case("solarize", F.solarize, threshold, channels=(3,))
for bits in (1, 4):
    case("posterize", F.posterize, bits, channels=(3,))
case("equalize", F.equalize)
case("autocontrast", F.autocontrast)
for kernel, sigma in ((3, 0.5), (9, 2.0), (23, 1.3), (5, 40.0)):
    tensor_case("blur", lambda i, k, s: F.gaussian_blur(i, [k, k], [s, s]), kernel, sigma,
                channels=(3, 1) if kernel == 9 else (3,))
for mode, name in ((I.NEAREST, "nearest"), (I.BILINEAR, "bilinear")):
    for angle in (17, -100):
        case("rotate_" + name, lambda i, a: F.rotate(i, a, mode, fill=0), angle)
    for p in ((25, 3, -2, 1.3, 0, 0), (-40, 0, 5, 0.7, 15, 0), (5, -6, 1, 1, -30, 20)):
        case("affine_" + name, lambda i, a, x, y, s, hx, hy: F.affine(i, a, [x, y], s, [hx, hy], mode, 0), *p,
             channels=(3,))
    for to in ((3, 2, 26, 0, 29, 18, 1, 21), (0, 5, 20, 0, 29, 21, 8, 17)):
        case("perspective_" + name,
             lambda i, *t: F.perspective(i, [[0, 0], [29, 0], [29, 21], [0, 21]],
                                         [list(t[k:k + 2]) for k in (0, 2, 4, 6)], mode, 0), *to, channels=(3,))
for short, h, w in ((20, 16, 18), (22, 22, 22), (9, 7, 5), (40, 25, 33)):  # evaluation: Resize, CenterCrop
    case("fit", lambda i, s, *hw: F.center_crop(F.resize(i, s, I.BILINEAR), hw), short, h, w)
case("flip_x", F.hflip)
case("flip_y", F.vflip)


# ---- policies ------------------------------------------------------------------------------------------
def apply(image, op, magnitude):
    return aa._apply_op(image, op, magnitude, interpolation=I.NEAREST, fill=0)


def at(space, op, step, sign):
    magnitudes, signed = space[op]
    magnitude = float(magnitudes[step].item()) if magnitudes.ndim > 0 else 0.0
    return magnitude * (sign if signed else 1)


space = aa.RandAugment()._augmentation_space(31, (12, 16))
for i, op in enumerate(space):
    for sign in (-1, 1):
        keep(f"rand {i} {sign} 9", apply(small, op, at(space, op, 9, sign)))
space = aa.TrivialAugmentWide()._augmentation_space(31)
for i, op in enumerate(space):
    for sign, step in ((-1, 30), (1, 12)):
        keep(f"wide {i} {sign} {step}", apply(small, op, at(space, op, step, sign)))
for k, policy in enumerate(("imagenet", "cifar10", "svhn")):
    auto = aa.AutoAugment(aa.AutoAugmentPolicy(policy))
    space = auto._augmentation_space(10, (12, 16))
    chance = np.zeros((25, 2), np.float32)
    for i, pair in enumerate(auto.policies):  # both happen, with a positive sign
        image = small
        for j, (op, p, step) in enumerate(pair):
            chance[i, j] = p
            if p > 0:
                image = apply(image, op, at(space, op, step, 1))
        keep(f"auto {k} {i}", image)
    out[f"chance {k}"] = chance

# ---- as drawn ------------------------------------------------------------------------------------------
SEED, PURPOSE = 11, 0x03897161  # XXH32 of "augment.a.0"


def word(sample, element):
    """Of Philox4x32-10 (Salmon et al. 2011), keyed as augment.c says; epoch 0."""
    c, k = [element // 4, sample, 0, PURPOSE], [SEED, 0]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ k[0], b & 0xFFFFFFFF, a >> 32 ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c[element % 4]


def uniform(sample, element, low, high):
    return low + (high - low) * (word(sample, element) >> 8) / 2 ** 24


def below(sample, element, n):
    return word(sample, element) * n >> 32


def part(sample, scale, ratio, w, h):
    """Top, left, height, width: RandomResizedCrop's and RandomErasing's rectangle."""
    for i in range(0, 40, 4):
        area = w * h * uniform(sample, i, *scale)
        shape = math.exp(uniform(sample, i + 1, math.log(ratio[0]), math.log(ratio[1])))
        pw, ph = math.floor(math.sqrt(area * shape) + 0.5), math.floor(math.sqrt(area / shape) + 0.5)
        if 1 <= pw <= w and 1 <= ph <= h:
            x = below(sample, i + 2, w - pw + 1)
            return below(sample, i + 3, h - ph + 1), x, ph, pw


def drawn(value, *name):
    if isinstance(value, Image.Image):
        value = np.array(value)
    out["as drawn/" + " ".join(map(str, name))] = np.ascontiguousarray(value)


small_t = torch.from_numpy(np.array(small)).permute(2, 0, 1)
mean = (small_t.double().mean((1, 2), keepdim=True) + 0.5).floor().byte()
for s in range(4):
    y, x, h, w = part(s, (0.08, 1), (3 / 4, 4 / 3), W, H)
    drawn(F.resized_crop(big, y, x, h, w, [12, 16], I.BILINEAR, antialias=True), "resized_crop", s)
    drawn(big.resize((16, 12), Image.BILINEAR, box=(x, y, x + w, y + h)), "resized_box", s)
for s in range(3):
    dx, dy = below(s, 0, 9) - 4, below(s, 1, 9) - 4
    for fill, how in ((33, dict(fill=33)), ("edge", dict(padding_mode="edge"))):
        drawn(F.crop(F.pad(small, 4, **how), 4 + dy, 4 + dx, 12, 16), "crop", s, fill)
    box = part(s, (0.02, 0.33), (0.3, 3.3), 16, 12)
    side = 6
    x, y = below(s, 0, 16) - side // 2, below(s, 1, 12) - side // 2
    square = (max(y, 0), max(x, 0), min(y + side, 12) - max(y, 0), min(x + side, 16) - max(x, 0))
    for fill, v in ((7, torch.tensor(7, dtype=torch.uint8)), ("mean", mean)):
        drawn(v2.functional.erase(small_t, *box, v).permute(1, 2, 0), "erase", s, fill)
        drawn(v2.functional.erase(small_t, *square, v).permute(1, 2, 0), "cutout", s, fill)
    tx, ty = uniform(s, 0, -0.3, 0.3) * 16, uniform(s, 1, -0.3, 0.3) * 12
    drawn(F.affine(small, 0, [-tx, -ty], 1, [0, 0], I.BILINEAR, 0), "shift", s)
    drawn(F.affine(small, 0, [0, 0], uniform(s, 0, 0.5, 1.5), [0, 0], I.BILINEAR, 0), "zoom", s)
for by in (-0.25, 0.25):  # whole pixels: 4 and 3
    dx, dy = int(16 * by), int(12 * by)
    drawn(F.affine(small, 0, [-dx, -dy], 1, [0, 0], I.BILINEAR, 0), "shift_whole", by, 0)
    drawn(F.crop(F.pad(small, 4, padding_mode="edge"), 4 + dy, 4 + dx, 12, 16), "shift_whole", by, "edge")

# Mixing: dtrain takes the next sample, torchvision the one before: pairs are given in that order. The plan (own share of
# 65536; top, bottom, left, right) is what dtrain draws for step 3 of seed 11.
PLANS = {"mixup": [[52558, 0, 0, 0, 0], [22976, 0, 0, 0, 0], [10530, 0, 0, 0, 0]],
         "cutmix": [[65536, 9, 12, 0, 5], [65536, 3, 12, 7, 16], [65536, 5, 12, 7, 16]]}
LABELS = [0, 2, 1]


class MixUp(v2.MixUp):
    def make_params(self, flat_inputs):
        return dict(lam=self.plan[0] / 65536)


class CutMix(v2.CutMix):
    def make_params(self, flat_inputs):
        _, y1, y2, x1, x2 = self.plan
        return dict(box=(x1, y1, x2, y2), lam_adjusted=float(1.0 - (x2 - x1) * (y2 - y1) / (16 * 12)))


batch = np.stack([picture(16, 12, 10 + j) for j in range(3)])
drawn(batch, "batch")
for (name, plan), mix in zip(PLANS.items(), (MixUp(num_classes=4), CutMix(num_classes=4))):
    pixels, shares = [], []
    for j in range(3):
        mix.plan, pair = plan[j], [(j + 1) % 3, j]
        x = torch.from_numpy(batch[pair]).double().permute(0, 3, 1, 2)
        x, share = mix(x, torch.tensor(LABELS)[pair])
        pixels.append((x[1].permute(1, 2, 0) + 0.5).floor().byte().numpy())
        shares.append(share[1].float().numpy())
    drawn(np.array(plan, np.int32), name, "plan")
    drawn(np.stack(pixels), name, "pixels")
    drawn(np.stack(shares), name, "shares")

# Sounds. mask_along_axis draws by itself: its draws are made what dtrain's are.
sound = picture(50, 6, 5).reshape(-1).astype(np.float32) / 128 - 1
spec = torch.from_numpy(picture(12, 9, 6)[..., 0].astype(np.float32) * 0.37 - 50)
drawn(sound, "sound")
drawn(spec.numpy(), "features")
for s in range(3):
    for axis, name, n, most in ((0, "freq_mask", 9, 5), (1, "time_mask", 12, 8)):
        covered = below(s, 0, most + 1)
        first = below(s, 1, n - covered + 1)
        draws = [(covered + 0.5) / (covered + 1), (first + 0.5) / (n - covered - 0.5)]
        torch.rand, rand = lambda n: torch.tensor([draws.pop(0)], dtype=torch.float64), torch.rand
        drawn(A.mask_along_axis(spec, covered + 1, spec.double().mean().item(), axis).numpy(), name, s)
        torch.rand = rand
    by = uniform(s, 0, -0.4, 0.4) * len(sound)
    drawn(torch.roll(torch.from_numpy(sound), int(math.copysign(math.floor(abs(by) + 0.5), by))), "time_shift", s)
    drawn(A.gain(torch.from_numpy(sound), uniform(s, 0, -6, 6)), "gain", s)

path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "augment.safetensors")
save_file(out, path)
print(f"{path}: {len(out)} tensors, {os.path.getsize(path)} bytes")
