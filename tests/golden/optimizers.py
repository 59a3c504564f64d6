#!/usr/bin/env python3
"""Writes optimizers.safetensors: what torch.optim does to weights in eight steps. Run by hand, as generate.py:

    venv/bin/python tests/golden/optimizers.py

Made with torch 2.15.0 on its CPU backend, in float64; inputs are f32 values. A second run writes the same bytes.

RUN/init, RUN/g [8, 37], RUN/final: a weight, its gradients at the eight steps, the weight after them. RUN is the name of a class
of torch.optim and a variant; the settings are in SETTINGS, which the file's metadata repeats. RAdam's steps have rates of their
own from the sixth on.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

HERE = Path(__file__).resolve().parent
STEPS = 8
N = 37
SETTINGS = {
    "Adam/amsgrad": {"lr": 0.01, "betas": [0.8, 0.9], "weight_decay": 0.1, "amsgrad": True},
    "AdamW/amsgrad": {"lr": 0.01, "betas": [0.8, 0.9], "weight_decay": 0.1, "amsgrad": True},
    "NAdam/plain": {"lr": 0.01},
    "NAdam/coupled": {"lr": 0.01, "weight_decay": 0.1, "momentum_decay": 0.5},
    "NAdam/decoupled": {"lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": True},
    "RAdam/plain": {"lr": 0.01},
    "RAdam/coupled": {"lr": 0.01, "betas": [0.8, 0.99], "weight_decay": 0.1},
    "RAdam/decoupled": {"lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": True},
    "RMSprop/plain": {"lr": 0.01},
    "RMSprop/momentum": {"lr": 0.01, "alpha": 0.9, "momentum": 0.9, "weight_decay": 0.1},
    "Adagrad/plain": {"lr": 0.1},
    "Adagrad/decay": {"lr": 0.1, "lr_decay": 0.5, "weight_decay": 0.1},
}


def trained(w, gradients, kind, settings):
    w = torch.nn.Parameter(w.clone())
    settings = {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}
    optimizer = getattr(torch.optim, kind)([w], **settings)
    for g in gradients:
        w.grad = g.clone()
        optimizer.step()
    return w.detach()


def main():
    generator = torch.Generator().manual_seed(11)

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float32).double()

    tensors = {}
    for run, settings in SETTINGS.items():
        init, gradients = normal(N), normal(STEPS, N)
        final = trained(init, gradients, run.split("/")[0], settings)
        for key, value in (("init", init), ("g", gradients), ("final", final)):
            tensors[f"{run}/{key}"] = value.float().contiguous()
    facts = {"torch": torch.__version__.split("+")[0], "settings": SETTINGS}
    path = HERE / "optimizers.safetensors"
    save_file(tensors, path, {"made_with": json.dumps(facts)})
    path.chmod(0o644)
    print(f"{path.name}: {len(tensors)} tensors, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
