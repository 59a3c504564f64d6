#!/usr/bin/env python3
"""Writes functions.safetensors: what PyTorch computes for functions that wgrad composes of others. Run by hand:

    venv/bin/python tests/golden/functions.py      (the virtual environment of generate.py)

Inputs are f32 values; everything after them is computed in float64 and rounded once. For each CASE: CASE/0, CASE/1, … the
inputs; CASE/d0, … their gradients of (y * dy).sum(), absent for integers; CASE/y and CASE/dy. Integers are i32. A test of the
same names in tests/kernels/functions.rs calls wgrad's functions.
"""

import torch
import torch.nn.functional as F

from generate import uniform, write


def attention(q, k, v, mask):
    """[b, s, h, d], as wgrad has it."""
    return F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)), attn_mask=mask).transpose(1, 2)


def lstm(kind, x, *weights):
    layer = getattr(torch.nn, kind)(x.shape[-1], weights[1].shape[1], batch_first=True).double()
    state = dict(zip(("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"), weights))
    return torch.func.functional_call(layer, state, (x,))[0]


def cases(g):
    """Yields (name, inputs, function)."""

    def u(*shape, low=-2.0, high=2.0):
        return uniform(g, shape, low, high)

    def ids(shape, high):
        return torch.randint(0, high, shape, generator=g)

    x = lambda: u(3, 5, 4)
    yield "min", [x()], lambda x: x.amin((1,))
    yield "prod", [x()], lambda x: x.prod(1)
    zeros = u(2, 5)
    zeros[0, 2] = 0
    zeros[1, 1] = zeros[1, 3] = 0
    yield "prod_zeros", [zeros], lambda x: x.prod(1)
    yield "var", [x()], lambda x: x.var((0, 2))
    yield "var_biased", [x()], lambda x: x.var((1,), correction=0)
    yield "std", [x()], lambda x: x.std((1,))
    yield "norm", [x()], lambda x: torch.linalg.vector_norm(x, 2, (2,))
    yield "norm_zero", [torch.zeros(3, 2)], lambda x: x.norm(2, 1)
    yield "norm_1", [x()], lambda x: torch.linalg.vector_norm(x, 1, (0, 1))
    yield "norm_3", [x()], lambda x: torch.linalg.vector_norm(x, 3, (1,))
    yield "norm_inf", [x()], lambda x: torch.linalg.vector_norm(x, float("inf"), (1,))
    yield "logsumexp", [u(3, 5, low=-50, high=50)], lambda x: x.logsumexp(1)
    yield "logsumexp_two", [x()], lambda x: x.logsumexp((0, 2))
    yield "argmax", [x()], lambda x: x.argmax(1)
    yield "argmin", [x()], lambda x: x.argmin(2)
    yield "cumsum", [u(2, 9, 3)], lambda x: x.cumsum(1)
    yield "softmax_over", [x()], lambda x: x.softmax(1)
    yield "log_softmax_over", [x()], lambda x: x.log_softmax(0)
    yield "gather", [u(4, 5), ids((2, 5), 4)], lambda x, i: x.gather(0, i)
    yield "gather_fewer", [u(4, 5), ids((3, 2), 5)], lambda x, i: x.gather(1, i)
    yield "scatter_add", [u(4, 3), ids((6, 3), 4), u(6, 3)], lambda x, i, y: x.scatter_add(0, i, y)
    yield "index_select", [u(3, 4, 2), ids((5,), 4)], lambda x, i: x.index_select(1, i)
    yield "index_select_rows", [u(7, 2), ids((5,), 7)], lambda x, i: x.index_select(0, i)
    yield "one_hot", [ids((3, 2), 5)], lambda i: F.one_hot(i, 5).double()
    yield "sort", [u(3, 7)], lambda x: x.sort(1)[0]
    yield "sort_first", [u(6, 3)], lambda x: x.sort(0, descending=True)[0]
    yield "argsort", [u(3, 7)], lambda x: x.argsort(1, descending=True)
    yield "topk", [u(3, 7)], lambda x: x.topk(3, 1)[0]
    yield "topk_smallest", [u(3, 7)], lambda x: x.topk(2, 1, largest=False)[0]
    yield "einsum_matmul", [u(2, 3, 4), u(2, 4, 5)], lambda a, b: torch.einsum("bij,bjk->bik", a, b)
    yield "einsum_outer", [u(3), u(4)], lambda a, b: torch.einsum("i,j->ji", a, b)
    yield "einsum_sum", [u(3, 4), u(3, 4)], lambda a, b: torch.einsum("ij,ij->", a, b)
    yield "einsum_three", [u(2, 3), u(3, 4), u(4, 2)], lambda a, b, c: torch.einsum("ab,bc,cd->ad", a, b, c)
    yield "einsum_heads", [u(2, 3, 4, 5), u(2, 6, 4, 5)], lambda a, b: torch.einsum("bqhd,bkhd->bhqk", a, b)
    yield "einsum_implicit", [u(3, 4), u(4, 2)], lambda a, b: torch.einsum("ij,jk", a, b)
    yield "unsqueeze", [u(3, 4)], lambda x: x.unsqueeze(1).squeeze(1)
    yield "stack", [u(3, 4), u(3, 4)], lambda a, b: torch.stack((a, b), 1)
    yield "split", [u(3, 7)], lambda x: x.split((2, 4, 1), 1)[1]
    yield "chunk", [u(3, 7)], lambda x: x.chunk(3, 1)[2]
    yield "repeat", [u(2, 3)], lambda x: x.repeat(2, 3, 2)
    yield "flip", [x()], lambda x: x.flip(1)
    yield "roll", [x()], lambda x: x.roll(2, 1)
    yield "roll_back", [x()], lambda x: x.roll(-7, 1)
    yield "slice_step", [u(9, 2)], lambda x: x[1:8:3]
    yield "tril", [u(2, 4, 5)], lambda x: x.tril(1)
    yield "triu", [u(2, 4, 5)], lambda x: x.triu(-1)
    yield "pad_constant", [u(2, 3)], lambda x: F.pad(x, (2, 1), value=1.5)
    yield "pad_reflect", [u(2, 2, 5)], lambda x: F.pad(x, (3, 2), mode="reflect")
    yield "pad_replicate", [u(2, 2, 3)], lambda x: F.pad(x, (2, 4), mode="replicate")
    yield "pad_circular", [u(2, 2, 4)], lambda x: F.pad(x, (3, 2), mode="circular")
    yield "pixel_shuffle", [u(2, 8, 3, 2)], lambda x: F.pixel_shuffle(x, 2)
    yield "pixel_unshuffle", [u(2, 2, 4, 6)], lambda x: F.pixel_unshuffle(x, 2)
    yield "matmul_vectors", [u(4), u(4)], lambda a, b: a @ b
    yield "matmul_row", [u(4), u(2, 4, 3)], lambda a, b: a @ b
    yield "matmul_column", [u(2, 3, 4), u(4)], lambda a, b: a @ b
    yield "detach", [u(3, 4)], lambda x: x * x.exp().detach()
    yield "conv1d", [u(2, 4, 9), u(6, 2, 3), u(6)], lambda x, w, b: F.conv1d(x, w, b, 2, 1, 2, 2)
    yield "conv_transpose1d", [u(2, 4, 5), u(4, 3, 3), u(6)], lambda x, w, b: F.conv_transpose1d(x, w, b, 2, 1, 1, 2)
    yield "conv3d", [u(2, 4, 5, 4, 6), u(6, 2, 3, 2, 3), u(6)], lambda x, w, b: F.conv3d(x, w, b, (2, 1, 2), (1, 0, 1), (1, 2, 1), 2)
    yield "conv_transpose3d", [u(1, 4, 3, 2, 3), u(4, 2, 2, 3, 2), u(4)], lambda x, w, b: F.conv_transpose3d(x, w, b, (2, 1, 2), (0, 1, 1), (1, 0, 1), 2)
    yield "max_pool1d", [u(2, 3, 9)], lambda x: F.max_pool1d(x, 3, 2, 1)
    yield "avg_pool1d", [u(2, 3, 9)], lambda x: F.avg_pool1d(x, 3, 2, 1)
    yield "max_pool3d", [u(1, 2, 5, 6, 5)], lambda x: F.max_pool3d(x, (2, 3, 2), (1, 2, 2), (1, 1, 0))
    yield "avg_pool3d", [u(1, 2, 5, 6, 5)], lambda x: F.avg_pool3d(x, (2, 3, 2), (1, 2, 2), (1, 1, 0), count_include_pad=False)
    yield "max_pool2d_ceil", [u(1, 2, 6, 7)], lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True)
    yield "avg_pool2d_ceil", [u(1, 2, 6, 8)], lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True)
    yield "avg_pool2d_ceil_inside", [u(1, 2, 6, 8)], lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False)
    yield "max_pool2d_large", [u(1, 1, 20, 19)], lambda x: F.max_pool2d(x, (17, 16), (2, 3))
    yield "adaptive_max_pool2d", [u(2, 2, 7, 5)], lambda x: F.adaptive_max_pool2d(x, (3, 2))
    yield "adaptive_max_pool2d_even", [u(2, 2, 6, 4)], lambda x: F.adaptive_max_pool2d(x, (3, 2))
    yield "instance_norm", [u(2, 3, 4, 5), u(3), u(3)], lambda x, g, b: F.instance_norm(x, weight=g, bias=b)
    yield "group_norm_3d", [u(2, 4, 6), u(4), u(4)], lambda x, g, b: F.group_norm(x, 2, g, b)
    yield "local_response_norm", [u(2, 7, 3, 2)], lambda x: F.local_response_norm(x, 4, 0.5, 0.75, 2.0)
    yield "bicubic", [u(1, 2, 5, 4)], lambda x: F.interpolate(x, (9, 3), mode="bicubic")
    yield "bicubic_corners", [u(1, 2, 5, 4)], lambda x: F.interpolate(x, (9, 7), mode="bicubic", align_corners=True)
    yield "embedding_bag", [u(9, 4), ids((3, 5), 9)], lambda t, i: F.embedding_bag(i, t, mode="mean")
    labels = ids((2, 3), 5)
    labels[0, 1] = -1
    yield "cross_entropy_3d", [u(2, 3, 5), labels], lambda x, y: F.cross_entropy(x.flatten(0, 1), y.flatten(), ignore_index=-1)
    for reduction in ("mean", "sum", "none"):
        yield f"cross_entropy_{reduction}", [u(2, 3, 5), labels, u(5, low=0.5)], lambda x, y, w, r=reduction: F.cross_entropy(
            x.flatten(0, 1), y.flatten(), w.detach(), ignore_index=-1, label_smoothing=0.2, reduction=r
        ).reshape((2, 3) if r == "none" else ())
    yield "nll", [u(4, 5), ids((4,), 5)], lambda x, y: F.nll_loss(x.log_softmax(1), y)
    yield "kl_div", [u(4, 5), u(4, 5)], lambda x, t: F.kl_div(x.log_softmax(1), t.softmax(1), reduction="batchmean")
    yield "l1", [u(4, 5), u(4, 5)], F.l1_loss
    yield "huber", [u(4, 5), u(4, 5)], lambda x, t: F.huber_loss(x, t, delta=0.7)
    yield "smooth_l1", [u(4, 5), u(4, 5)], lambda x, t: F.smooth_l1_loss(x, t, beta=0.7)
    yield "hinge", [u(4, 5), u(4, 5)], lambda x, t: (1 - x * t.sign().detach()).relu().mean()
    yield "cosine_similarity", [u(4, 5), u(4, 5)], lambda a, b: F.cosine_similarity(a, b, 1)
    sign = torch.tensor([1.0, -1.0, 1.0, -1.0])
    yield "cosine_embedding", [u(4, 5), u(4, 5)], lambda a, b: F.cosine_embedding_loss(a, b, sign, margin=-0.2)
    targets, inputs, lengths = ids((3, 4), 5) + 1, torch.tensor([9, 7, 8]), torch.tensor([4, 2, 3])
    yield "ctc", [u(9, 3, 6), targets, inputs, lengths], lambda x, y, i, n: F.ctc_loss(x.log_softmax(2), y, i, n)
    q = lambda s: u(2, s, 4, 4)
    yield "attention_padding", [q(3), q(5), q(5)], lambda q, k, v: attention(
        q, k, v, torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], dtype=torch.bool)[:, None, None]
    )
    yield "attention_bias", [q(3), q(5), q(5), u(4, 3, 5)], attention
    for kind, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
        weights = [u(2, 5, 3), u(gates * 4, 3), u(gates * 4, 4), u(gates * 4), u(gates * 4)]
        yield kind.lower(), weights, lambda x, *weights, kind=kind: lstm(kind, x, *weights)
    bags = ids((4, 5), 6)
    bags[0, 1:3] = bags[1, 4] = 2
    bags[2] = 2
    for mode in ("sum", "mean", "max"):
        yield f"embedding_bag_{mode}", [u(6, 4), bags], lambda t, i, m=mode: F.embedding_bag(i, t, mode=m, padding_idx=2)
    yield "embedding_bag_whole", [u(6, 4), ids((3, 5), 6)], lambda t, i: F.embedding_bag(i, t, mode="max")
    yield "einsum_diagonal", [u(3, 4, 4), u(3, 2)], lambda a, b: torch.einsum("bii,bj->ij", a, b)
    yield "einsum_trace", [u(4, 4)], lambda a: torch.einsum("ii", a)
    yield "einsum_ellipsis", [u(2, 3, 4), u(5, 1, 4, 2)], lambda a, b: torch.einsum("...ij,...jk->...ki", a, b)
    yield "einsum_broadcast", [u(1, 4), u(3, 4)], lambda a, b: torch.einsum("bi,bi->b", a, b)
    yield "max_pool1d_long", [u(1, 2, 330)], lambda x: F.max_pool1d(x, 300, 7, 20)
    yield "max_pool1d_longer", [u(1, 1, 1200)], lambda x: F.max_pool1d(x, 520, 9, 0, 2)
    yield "max_pool1d_ceil", [u(2, 3, 8)], lambda x: F.max_pool1d(x, 3, 2, 1, ceil_mode=True)
    yield "avg_pool1d_ceil", [u(2, 3, 8)], lambda x: F.avg_pool1d(x, 3, 2, 1, ceil_mode=True)
    yield "max_pool3d_ceil", [u(1, 2, 4, 6, 5)], lambda x: F.max_pool3d(x, 3, 2, 1, ceil_mode=True)
    yield "avg_pool3d_ceil", [u(1, 2, 4, 6, 5)], lambda x: F.avg_pool3d(x, 3, 2, 1, ceil_mode=True)
    yield "avg_pool3d_ceil_inside", [u(1, 2, 4, 6, 5)], lambda x: F.avg_pool3d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False)
    yield "adaptive_avg_pool1d", [u(2, 3, 7)], lambda x: F.adaptive_avg_pool1d(x, 3)
    yield "adaptive_max_pool1d", [u(2, 3, 7)], lambda x: F.adaptive_max_pool1d(x, 3)
    yield "adaptive_avg_pool3d", [u(1, 2, 5, 4, 3)], lambda x: F.adaptive_avg_pool3d(x, (2, 3, 2))
    yield "adaptive_max_pool3d", [u(1, 2, 5, 4, 3)], lambda x: F.adaptive_max_pool3d(x, (2, 3, 2))
    yield "nll_ignored", [u(2, 3, 5), labels], lambda x, y: F.nll_loss(x.log_softmax(2).flatten(0, 1), y.flatten(), ignore_index=-1)
    yield "smooth_l1_zero", [u(4, 5), u(4, 5)], lambda x, t: F.smooth_l1_loss(x, t, beta=0.0)
    yield "scatter_add_fewer", [u(4, 5), ids((3, 2), 5), u(3, 2)], lambda x, i, y: x.scatter_add(1, i, y)


def functions():
    tensors = {}
    generator = torch.Generator().manual_seed(7)
    for name, inputs, function in cases(generator):
        leaves = [x.float().double().requires_grad_() if x.is_floating_point() else x for x in inputs]
        y = function(*leaves)
        tensors[f"{name}/y"] = y.detach() if y.is_floating_point() else y.int()
        if y.requires_grad:
            dy = uniform(generator, tuple(y.shape), 0.25, 1.75).float().double()
            tensors[f"{name}/dy"] = dy
            (y * dy).sum().backward()
        for i, leaf in enumerate(leaves):
            if leaf.is_floating_point():
                tensors[f"{name}/{i}"] = leaf.detach()
                if leaf.grad is not None:
                    tensors[f"{name}/d{i}"] = leaf.grad
            else:
                tensors[f"{name}/{i}"] = leaf.int()
    return tensors


if __name__ == "__main__":
    write("functions.safetensors", functions())
