#!/usr/bin/env python3
"""Writes lean.safetensors: what optimizers with little state do to weights in five steps. Run by hand, as generate.py:

    venv/bin/python tests/golden/lean.py

Made with torch 2.15.0 on its CPU backend, in float64; inputs are f32 values. A second run writes the same bytes.

RUN/N/init, RUN/N/g [5, ..], RUN/N/final: a weight, its gradients at the five steps, the weight after them. RUN is
    adafactor   torch.optim.Adafactor on a vector, a matrix and a convolution's kernel
    lion        the authors' formula (Chen et al. 2023, program 1), below
    adam8bit    AdamW with both moments stored in eight bits between steps, below: bitsandbytes' map (create_dynamic_map)
                in blocks of 256, each number the nearest of the map's
    adam4bit    the same in four bits (Li et al. 2023): the signed map of bitsandbytes for four bits, and the multiples of 1/16
                from there to 1, in blocks of 128, as torchao's AdamW4bit
    adam_mini   AdamW with one second moment for each row (Zhang et al. 2024, algorithm 1), below
    muon        torch.optim.Muon on a wide matrix, a tall one, and a kernel as a matrix; its steps of Newton and Schulz, for
                which it casts to bfloat16, in float64
    muon_rms    the same, with adjust_lr_fn="match_rms_adamw" and without Nesterov's variant
    muon_bf16   torch.optim.Muon as it is, with bfloat16
    apollo      APOLLO (Zhu et al. 2024, algorithm 1, without its limiter of norms) with random signs for the projection, below
    apollo_mini the same with one factor for the matrix
The settings are in SETTINGS, which the file's metadata repeats.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

HERE = Path(__file__).resolve().parent
STEPS = 5
SHAPES = {"vector": (37,), "matrix": (7, 12), "kernel": (4, 3, 3, 5)}
SETTINGS = {
    "adafactor": {"lr": 0.05, "eps": [2.0**-23, 1e-3], "weight_decay": 0.1},
    "lion": {"lr": 0.01, "betas": [0.9, 0.99], "weight_decay": 0.1},
    "adam8bit": {"lr": 0.01, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.1},
    "adam4bit": {"lr": 0.01, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.1},
    "adam_mini": {"lr": 0.01, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1},
    "muon": {"lr": 0.02, "weight_decay": 0.1},
    "muon_rms": {"lr": 0.02, "weight_decay": 0.1, "nesterov": False, "adjust_lr_fn": "match_rms_adamw"},
    "muon_bf16": {"lr": 0.02, "weight_decay": 0.1},
    "apollo": {"lr": 0.01, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, "rank": 3, "refresh": 3, "scale": 1.0},
    "apollo_mini": {"lr": 0.01, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, "rank": 1, "refresh": 3, "scale": 2.0},
}


def dynamic_map(signed, decades=7):
    """create_dynamic_map(signed, max_exponent_bits=decades, total_bits=decades + 1) of bitsandbytes 0.44, in float64."""
    data = []
    for i in range(decades):
        items = 2**i + 1 if signed else 2 ** (i + 1) + 1
        boundaries = torch.linspace(0.1, 1, items, dtype=torch.float64)
        means = 10.0 ** (1 - decades + i) * (boundaries[:-1] + boundaries[1:]) / 2
        data += means.tolist()
        if signed:
            data += (-means).tolist()
    data += [0.0, 1.0]
    assert len(data) == 2 ** (decades + 1)
    return torch.tensor(sorted(data), dtype=torch.float64)


def through_codes(x, table, block):
    padded = torch.cat([x, x.new_zeros(-len(x) % block)]).view(-1, block)
    most = padded.abs().amax(dim=1, keepdim=True)
    share = torch.where(most > 0, padded / most, torch.zeros_like(padded))
    codes = (share.unsqueeze(-1) - table).abs().argmin(dim=-1)
    return (table[codes] * most).view(-1)[: len(x)]


def adam_codes(w, gradients, signed, positive, block, lr, betas, eps, weight_decay):
    m, v = torch.zeros_like(w), torch.zeros_like(w)
    for t, g in enumerate(gradients, 1):
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g * g
        w = w * (1 - lr * weight_decay)
        corrected = v.sqrt() / (1 - betas[1] ** t) ** 0.5 + eps
        w = w - lr / (1 - betas[0] ** t) * m / corrected
        m, v = through_codes(m, signed, block), through_codes(v, positive, block)
    return w


def adam8bit(w, gradients, **settings):
    return adam_codes(w, gradients, dynamic_map(True), dynamic_map(False), 256, **settings)


def adam4bit(w, gradients, **settings):
    positive = torch.arange(1, 17, dtype=torch.float64) / 16
    return adam_codes(w, gradients, dynamic_map(True, 3), positive, 128, **settings)


def lion(w, gradients, lr, betas, weight_decay):
    m = torch.zeros_like(w)
    for g in gradients:
        w = w * (1 - lr * weight_decay) - lr * (betas[0] * m + (1 - betas[0]) * g).sign()
        m = betas[1] * m + (1 - betas[1]) * g
    return w


def adam_mini(w, gradients, lr, betas, eps, weight_decay):
    rows = w.shape[0] if w.dim() > 1 else 1
    m, v = torch.zeros_like(w), w.new_zeros(rows, 1)
    for t, g in enumerate(gradients, 1):
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g.view(rows, -1).square().mean(dim=1, keepdim=True)
        step = (m / (1 - betas[0] ** t)).view(rows, -1) / ((v / (1 - betas[1] ** t)).sqrt() + eps)
        w = w * (1 - lr * weight_decay) - lr * step.view(w.shape)
    return w


def muon_bf16(w, gradients, **settings):
    matrix = torch.nn.Parameter(w.clone().flatten(1))
    optimizer = torch.optim.Muon([matrix], **settings)
    for g in gradients:
        matrix.grad = g.clone().flatten(1)
        optimizer.step()
    return matrix.detach().view(w.shape)


def muon(w, gradients, **settings):
    half = torch.bfloat16
    torch.bfloat16 = torch.float64
    try:
        return muon_bf16(w, gradients, **settings)
    finally:
        torch.bfloat16 = half


muon_rms = muon


def mixed(z):
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


def pcg4d(words):
    # Jarzynski & Olano 2020.
    def add(v):
        for to, a, b in (0, 1, 3), (1, 2, 0), (2, 0, 1), (3, 1, 2):
            v[to] = (v[to] + v[a] * v[b]) % 2**32

    v = [(x * 1664525 + 1013904223) % 2**32 for x in words]
    add(v)
    v = [x ^ (x >> 16) for x in v]
    add(v)
    return v


def signs(rows, columns, draw):
    """Those of a parameter `w` with seed 0, drawn for the `draw`-th time."""
    key = mixed(mixed(0x9E3779B97F4A7C15) ^ ord("w")) & 0x3FFFFFFF | 0x40000000
    count = rows * columns
    drawn = [word for i in range((count + 3) // 4) for word in pcg4d([i, key, draw, 0])][:count]
    return torch.tensor([1.0 if word >= 2**31 else -1.0 for word in drawn], dtype=torch.float64).view(rows, columns)


def apollo(w, gradients, lr, betas, eps, weight_decay, rank, refresh, scale, whole=False):
    shape, w = w.shape, w.flatten(1)
    wide = w.shape[0] <= w.shape[1]
    m = v = 0
    for t, g in enumerate(gradients.flatten(2), 1):
        projection = signs(rank, min(w.shape), (t - 1) // refresh) / rank**0.5
        low = projection @ g if wide else g @ projection.T
        m = betas[0] * m + (1 - betas[0]) * low
        v = betas[1] * v + (1 - betas[1]) * low.square()
        step = m / (v.sqrt() + eps)
        axes = (0, 1) if whole else 0 if wide else 1
        factor = step.norm(dim=axes, keepdim=True) / (low.norm(dim=axes, keepdim=True) + 1e-8)
        correction = (1 - betas[1] ** t) ** 0.5 / (1 - betas[0] ** t)
        w = w * (1 - lr * weight_decay) - lr * scale * correction * factor * g
    return w.view(shape)


def apollo_mini(w, gradients, **settings):
    return apollo(w, gradients, whole=True, **settings)


def adafactor(w, gradients, lr, eps, weight_decay):
    w = torch.nn.Parameter(w.clone())
    optimizer = torch.optim.Adafactor([w], lr=lr, eps=tuple(eps), weight_decay=weight_decay)
    for g in gradients:
        w.grad = g.clone()
        optimizer.step()
    return w.detach()


def main():
    generator = torch.Generator().manual_seed(7)

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float32).double()

    runs = [("adafactor", name, shape) for name, shape in SHAPES.items()]
    runs += [("lion", "vector", SHAPES["vector"]), ("adam8bit", "vector", (4999,))]
    runs += [("adam_mini", name, shape) for name, shape in SHAPES.items()]
    runs += [("muon", name, shape) for name, shape in (("wide", (7, 12)), ("tall", (13, 6)), ("kernel", (4, 3, 3, 5)))]
    runs += [("muon_rms", "tall", (13, 6)), ("muon_bf16", "wide", (7, 12))]
    runs += [("adam4bit", "vector", (4999,))]
    runs += [("apollo", name, shape) for name, shape in (("wide", (7, 12)), ("tall", (13, 6)), ("kernel", (4, 3, 3, 5)))]
    runs += [("apollo_mini", "tall", (13, 6))]
    tensors = {}
    for run, name, shape in runs:
        init, gradients = normal(*shape), normal(STEPS, *shape)
        final = globals()[run](init, gradients, **SETTINGS[run])
        for key, value in (("init", init), ("g", gradients), ("final", final)):
            tensors[f"{run}/{name}/{key}"] = value.float().contiguous()
    facts = {"torch": torch.__version__.split("+")[0], "settings": SETTINGS}
    path = HERE / "lean.safetensors"
    save_file(tensors, path, {"made_with": json.dumps(facts)})
    path.chmod(0o644)
    print(f"{path.name}: {len(tensors)} tensors, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
