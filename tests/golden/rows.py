#!/usr/bin/env python3
"""Writes rows.safetensors: golden values of operations on rows, as PyTorch computes them. Run by hand:

    venv/bin/python tests/golden/rows.py      (the virtual environment of generate.py)

Inputs are f32 values; everything after them is computed in float64 and rounded once. For each CASE: CASE/N, an input or
weight; CASE/dN, the gradient of (y * dy).sum(); CASE/y and CASE/dy; CASE/ids or CASE/labels, i32, where -1 is an ignored
label. Rotary embedding is written out as Hugging Face's modeling_llama.py has it.
"""

import torch
import torch.nn.functional as F

from generate import uniform, with_extremes, write


def rotate_half(x):
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def rotary(x, heads, base):
    """x [batch, positions, heads, d]: the first `heads` heads are turned."""
    d = x.shape[-1]
    inverse = 1.0 / (base ** (torch.arange(0, d, 2, dtype=torch.float64) / d))
    angles = torch.outer(torch.arange(x.shape[1], dtype=torch.float64), inverse)
    angles = torch.cat((angles, angles), dim=-1)
    cos, sin = angles.cos()[None, :, None, :], angles.sin()[None, :, None, :]
    turned = x[:, :, :heads]
    return torch.cat((turned * cos + rotate_half(turned) * sin, x[:, :, heads:]), dim=2)


def rms_norm(x, gamma, eps):
    """As LlamaRMSNorm has it."""
    return gamma * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps))


def cases(g):
    """Yields (name, inputs, function, indices)."""

    def integers(shape, high):
        return torch.randint(0, high, shape, generator=g)

    for name, table, shape in (("embedding", (11, 6), (3, 5)), ("embedding_vec4", (9, 8), (40,))):
        ids = integers(shape, table[0])
        yield name, {"table": uniform(g, table)}, lambda table, ids=ids: F.embedding(ids, table), {"ids": ids}
    ids = integers((2, 6), 7)
    yield (
        "tied",
        {"table": uniform(g, (7, 4)), "w": uniform(g, (4, 4))},
        lambda table, w, ids=ids: torch.tanh(F.embedding(ids, table) @ w) @ table.T,
        {"ids": ids},
    )
    for name, shape in (("layer_norm", (3, 5, 7)), ("layer_norm_vec4", (6, 64)), ("layer_norm_long", (2, 1001))):
        inputs = {"x": uniform(g, shape) * 3 + 5, "gamma": uniform(g, shape[-1:], 0.5, 2), "beta": uniform(g, shape[-1:])}
        yield name, inputs, lambda x, gamma, beta: F.layer_norm(x, x.shape[-1:], gamma, beta, 1e-5), {}
    for name, shape in (("rms_norm", (3, 5, 7)), ("rms_norm_vec4", (6, 64)), ("rms_norm_long", (2, 1001))):
        inputs = {"x": uniform(g, shape), "gamma": uniform(g, shape[-1:], 0.5, 2)}
        yield name, inputs, lambda x, gamma: rms_norm(x, gamma, 1e-6), {}
    for name, shape, heads in (("rotary", (2, 9, 3, 6), 3), ("rotary_packed", (2, 33, 4, 16), 3)):
        yield name, {"x": uniform(g, shape)}, lambda x, heads=heads: rotary(x, heads, 10000.0), {}
    yield "rotary_base", {"x": uniform(g, (1, 17, 2, 8))}, lambda x: rotary(x, 2, 500000.0), {}
    yield "gelu", {"x": with_extremes(uniform(g, (5, 13), -4, 4))}, F.gelu, {}
    yield "gelu_tanh", {"x": with_extremes(uniform(g, (5, 13), -4, 4))}, lambda x: F.gelu(x, approximate="tanh"), {}
    for name, shape in (("cross_entropy_ignored", (9, 7)), ("cross_entropy_vec4", (9, 64))):
        labels = integers(shape[:1], shape[1])
        labels[2] = labels[5] = -1
        function = lambda x, labels=labels: F.cross_entropy(x, labels, ignore_index=-1)
        yield name, {"x": uniform(g, shape, -5, 5)}, function, {"labels": labels}
    labels = integers((10,), 7)
    labels[3] = -1
    yield (
        "linear_cross_entropy",
        {"x": uniform(g, (10, 5)), "w": uniform(g, (7, 5))},
        lambda x, w, labels=labels: F.cross_entropy(x @ w.T, labels, ignore_index=-1),
        {"labels": labels},
    )


def rows():
    tensors = {}
    generator = torch.Generator().manual_seed(4)
    for name, inputs, function, indices in cases(generator):
        inputs = {key: value.float().double() for key, value in inputs.items()}
        leaves = {key: value.clone().requires_grad_() for key, value in inputs.items()}
        y = function(*leaves.values())
        dy = uniform(generator, tuple(y.shape), 0.25, 1.75)
        (y * dy).sum().backward()
        for key, leaf in leaves.items():
            tensors[f"{name}/{key}"] = leaf.detach()
            tensors[f"{name}/d{key}"] = leaf.grad
        tensors[f"{name}/y"] = y.detach()
        tensors[f"{name}/dy"] = dy
        for key, value in indices.items():
            tensors[f"{name}/{key}"] = value.int()
    return tensors


if __name__ == "__main__":
    write("rows.safetensors", rows())
