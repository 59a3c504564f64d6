#!/usr/bin/env python3
"""Writes attention.safetensors: what PyTorch's scaled_dot_product_attention computes, with its gradients. Run as generate.py.

Layout [batch, length, heads, size], transposed for PyTorch and back. CASE/q, CASE/k, CASE/v; CASE/dy, fixed random weights;
CASE/y, the result, and CASE/dq, CASE/dk, CASE/dv, the gradients of (y * dy).sum(). A case whose name starts with `causal`
is computed with is_causal=True. Where there are fewer key heads than query heads, each is repeated for its group.
"""

import torch
import torch.nn.functional as F

from generate import uniform, write

# Name, queries, keys, query heads, key heads, head size, largest element of q and k, scale.
CASES = [
    ("full", 9, 9, 2, 2, 16, 2.0, None),
    ("causal", 9, 9, 2, 2, 16, 2.0, None),
    ("full_grouped", 13, 13, 4, 2, 8, 2.0, None),
    ("causal_grouped", 37, 37, 3, 1, 8, 2.0, None),
    ("causal_more_keys", 5, 12, 1, 1, 8, 2.0, None),
    ("causal_fewer_keys", 12, 5, 1, 1, 8, 2.0, None),
    ("full_cross", 7, 70, 2, 1, 20, 2.0, None),
    ("full_scaled", 6, 8, 1, 1, 12, 1.0, 0.9),
    ("causal_large", 40, 40, 1, 1, 64, 3.0, None),
    ("full_odd_head", 11, 11, 2, 2, 5, 2.0, None),
]


def attention():
    tensors = {}
    generator = torch.Generator().manual_seed(23)
    for name, s, t, heads, kv_heads, size, most, scale in CASES:
        shapes = {"q": (2, s, heads, size), "k": (2, t, kv_heads, size), "v": (2, t, kv_heads, size)}
        bounds = {"q": most, "k": most, "v": 1.0}
        leaves = {
            key: uniform(generator, shape, -bounds[key], bounds[key]).requires_grad_() for key, shape in shapes.items()
        }
        q, k, v = (leaves[key].transpose(1, 2) for key in "qkv")
        k, v = (x.repeat_interleave(heads // kv_heads, dim=1) for x in (k, v))
        causal = name.startswith("causal")
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale).transpose(1, 2)
        dy = uniform(generator, tuple(y.shape), 0.25, 1.75)
        (y * dy).sum().backward()
        for key, leaf in leaves.items():
            tensors[f"{name}/{key}"] = leaf.detach()
            tensors[f"{name}/d{key}"] = leaf.grad
        tensors[f"{name}/y"] = y.detach().contiguous()
        tensors[f"{name}/dy"] = dy
    return tensors


if __name__ == "__main__":
    write("attention.safetensors", attention())
