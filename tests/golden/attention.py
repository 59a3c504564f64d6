#!/usr/bin/env python3
"""Writes attention.safetensors: what PyTorch's scaled_dot_product_attention computes, with its gradients. Run as generate.py.

Layout [batch, length, heads, size], transposed for PyTorch and back. CASE/q, CASE/k, CASE/v; CASE/dy, fixed random weights;
CASE/y, the result, and CASE/dq, CASE/dk, CASE/dv, the gradients of (y * dy).sum(). A case whose name starts with `causal`
is computed with is_causal=True. Where there are fewer key heads than query heads, each is repeated for its group. `windowW` in
a name is a sliding window of W positions in each direction, `alibi` the bias of Press et al. 2022, both as an explicit mask.
"""

import re

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
    ("causal_window5", 70, 70, 2, 1, 4, 2.0, None),
    ("full_window9", 70, 70, 2, 2, 4, 2.0, None),
    ("causal_window32", 101, 101, 1, 1, 4, 2.0, None),
    ("causal_window100", 150, 150, 1, 1, 4, 2.0, None),
    ("causal_window200", 70, 70, 1, 1, 4, 2.0, None),
    ("full_window40_more_keys", 30, 100, 1, 1, 4, 2.0, None),
    ("causal_window40_fewer_keys", 100, 70, 1, 1, 4, 2.0, None),
    ("causal_alibi_grouped", 70, 70, 4, 2, 4, 2.0, None),
    ("full_alibi_six_heads", 40, 50, 6, 3, 4, 2.0, None),
    ("causal_window40_alibi", 100, 100, 3, 1, 4, 2.0, None),
]


def slopes(heads):
    """get_slopes of https://github.com/ofirpress/attention_with_linear_biases."""
    closest = 2 ** (heads.bit_length() - 1)
    powers = lambda n: [(2 ** (-(2 ** -(n.bit_length() - 1 - 3)))) ** (i + 1) for i in range(n)]
    return torch.tensor(powers(closest) + powers(2 * closest)[0::2][: heads - closest], dtype=torch.float64)


def mask(name, heads, s, t):
    """None, or what is added to the scores, [heads, s, t]."""
    if "window" not in name and "alibi" not in name:
        return None
    back = torch.arange(s)[:, None] - torch.arange(t)[None, :]
    hidden = (back < 0) & name.startswith("causal")
    if window := re.search(r"window(\d+)", name):
        hidden |= back.abs() >= int(window[1])
    bias = -slopes(heads)[:, None, None] * back.abs() if "alibi" in name else torch.zeros(heads, s, t).double()
    return bias.masked_fill(hidden, -torch.inf)


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
        bias = mask(name, heads, s, t)
        causal = bias is None and name.startswith("causal")
        y = F.scaled_dot_product_attention(q, k, v, bias, is_causal=causal, scale=scale).transpose(1, 2)
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
