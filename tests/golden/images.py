#!/usr/bin/env python3
"""Writes images.safetensors: golden values of operations on images, as PyTorch computes them. Run by hand:

    venv/bin/python tests/golden/images.py      (the virtual environment of generate.py)

Inputs are f32 values; everything after them is computed in float64 and rounded once. For each CASE: CASE/N, an input or
weight; CASE/dN, the gradient of (y * dy).sum(); CASE/y and CASE/dy. Batch norm in training also: CASE/running_mean and
CASE/running_var as they are afterwards, from 0 and 1 with momentum 0.1. Inputs of maxima are distinct.
"""

import torch
import torch.nn.functional as F

from generate import distinct, uniform, write


def norm(x, gamma, beta, running=None):
    mean, var = (None, None) if running is None else running
    return F.batch_norm(x, mean, var, gamma, beta, training=True, momentum=0.1)


def cases(g):
    """Yields (name, inputs, function)."""

    def conv(name, x, w, bias=True, **options):
        inputs = {"x": uniform(g, x), "w": uniform(g, w)}
        if bias:
            inputs["b"] = uniform(g, (w[0],))
        return name, inputs, lambda x, w, b=None: F.conv2d(x, w, b, **options)

    yield conv("conv_3x3", (2, 5, 9, 7), (6, 5, 3, 3), padding=1)
    yield conv("conv_stride", (3, 4, 11, 9), (17, 4, 3, 3), stride=2, padding=1)
    yield conv("conv_1x1", (2, 19, 5, 6), (33, 19, 1, 1), bias=False)
    yield conv("conv_1x1_stride", (2, 7, 6, 7), (9, 7, 1, 1), bias=False, stride=2)
    yield conv("conv_7x7", (2, 3, 17, 15), (18, 3, 7, 7), bias=False, stride=2, padding=3)
    yield conv("conv_dilated", (2, 5, 12, 10), (4, 5, 3, 3), padding=2, dilation=2)
    yield conv("conv_uneven", (2, 3, 9, 13), (5, 3, 2, 5), stride=(3, 2), padding=(1, 2), dilation=(2, 1))
    yield conv("conv_gaps", (1, 2, 10, 10), (3, 2, 2, 2), stride=3)
    yield conv("conv_groups", (2, 6, 7, 7), (9, 2, 3, 3), groups=3, padding=1)
    yield conv("conv_wide_groups", (2, 32, 5, 5), (34, 16, 3, 3), groups=2, padding=1)
    yield conv("conv_depthwise", (2, 6, 9, 8), (6, 1, 3, 3), groups=6, padding=1, stride=2)
    yield conv("conv_many_channels", (2, 70, 6, 5), (67, 70, 3, 3), padding=1)
    yield conv("conv_no_padding", (2, 3, 8, 8), (4, 3, 3, 3))

    def transposed(name, x, w, out, **options):
        inputs = {"x": uniform(g, x), "w": uniform(g, w), "b": uniform(g, (out,))}
        return name, inputs, lambda x, w, b: F.conv_transpose2d(x, w, b, **options)

    yield transposed("transposed_2x2", (2, 6, 5, 4), (6, 3, 2, 2), 3, stride=2)
    yield transposed("transposed_3x3", (2, 4, 5, 6), (4, 5, 3, 3), 5, stride=2, padding=1, output_padding=1)
    yield transposed("transposed_groups", (2, 4, 5, 6), (4, 3, 3, 3), 6, padding=1, groups=2)

    def one(name, x, function):
        return name, {"x": x}, function

    yield one("max_pool_2", distinct(g, (2, 3, 7, 8)), lambda x: F.max_pool2d(x, 2))
    yield one("max_pool_3", distinct(g, (2, 3, 9, 8)), lambda x: F.max_pool2d(x, 3, 2, 1))
    yield one("max_pool_dilated", distinct(g, (1, 2, 9, 9)), lambda x: F.max_pool2d(x, 2, 1, 0, 3))
    yield one("avg_pool_2", uniform(g, (2, 3, 7, 8)), lambda x: F.avg_pool2d(x, 2))
    yield one("avg_pool_padded", uniform(g, (2, 3, 7, 8)), lambda x: F.avg_pool2d(x, 3, 2, 1))
    yield one(
        "avg_pool_inside", uniform(g, (2, 3, 7, 8)), lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)
    )
    yield one("adaptive_3x5", uniform(g, (2, 3, 7, 8)), lambda x: F.adaptive_avg_pool2d(x, (3, 5)))
    yield one("adaptive_up", uniform(g, (2, 3, 3, 4)), lambda x: F.adaptive_avg_pool2d(x, (7, 6)))
    yield one("adaptive_1", uniform(g, (2, 3, 7, 8)), lambda x: F.adaptive_avg_pool2d(x, 1))
    yield one("nearest_2", uniform(g, (2, 3, 4, 5)), lambda x: F.interpolate(x, size=(8, 10)))
    yield one("nearest_any", uniform(g, (2, 3, 4, 5)), lambda x: F.interpolate(x, size=(7, 3)))
    for name, size in (("2", (8, 10)), ("any", (7, 3)), ("one", (1, 12))):
        for label, corners in (("", False), ("_corners", True)):
            x = uniform(g, (2, 3, 4, 5))
            yield one(
                f"bilinear_{name}{label}",
                x,
                lambda x, size=size, corners=corners: F.interpolate(
                    x, size=size, mode="bilinear", align_corners=corners
                ),
            )
    yield one("zero_pad", uniform(g, (2, 3, 4, 5)), lambda x: F.pad(x, (1, 2, 0, 3)))

    def affine(x):
        c = x[1]
        return {"x": uniform(g, x) * 3 + 5, "gamma": uniform(g, (c,), 0.5, 2), "beta": uniform(g, (c,))}

    yield "batch_norm", affine((3, 5, 4, 3)), norm
    yield "batch_norm_vec4", affine((4, 6, 4, 4)), norm
    yield "batch_norm_relu", affine((3, 5, 4, 4)), lambda *x: norm(*x).relu()
    yield "batch_norm_relu6", affine((3, 5, 4, 3)), lambda *x: F.relu6(2 * norm(*x))
    inputs = affine((3, 5, 4, 3))
    mean, var = uniform(g, (5,)), uniform(g, (5,), 0.5, 3)
    inputs |= {"mean": mean, "var": var}
    yield "batch_norm_eval", inputs, lambda x, gamma, beta, mean, var: F.batch_norm(
        x, mean.detach(), var.detach(), gamma, beta
    )
    yield "group_norm", affine((3, 6, 4, 3)), lambda x, gamma, beta: F.group_norm(x, 3, gamma, beta)

    block = {"x": uniform(g, (3, 6, 6, 6)), "w1": uniform(g, (8, 6, 3, 3)), "w2": uniform(g, (8, 8, 3, 3))}
    block["w3"] = uniform(g, (8, 6, 1, 1))
    for i in (1, 2, 3):
        block |= {f"g{i}": uniform(g, (8,), 0.5, 1.5), f"b{i}": uniform(g, (8,))}

    def resnet(x, w1, w2, w3, g1, b1, g2, b2, g3, b3):
        y = norm(F.conv2d(x, w1, stride=2, padding=1), g1, b1).relu()
        y = norm(F.conv2d(y, w2, padding=1), g2, b2)
        return (y + norm(F.conv2d(x, w3, stride=2), g3, b3)).relu()

    yield "resnet_block", block, resnet

    block = {"x": uniform(g, (3, 4, 6, 6)), "w1": uniform(g, (12, 4, 1, 1)), "w2": uniform(g, (12, 1, 3, 3))}
    block["w3"] = uniform(g, (4, 12, 1, 1))
    for i, c in ((1, 12), (2, 12), (3, 4)):
        block |= {f"g{i}": uniform(g, (c,), 1, 3), f"b{i}": uniform(g, (c,))}

    def inverted(x, w1, w2, w3, g1, b1, g2, b2, g3, b3):
        y = F.relu6(norm(F.conv2d(x, w1), g1, b1))
        y = F.relu6(norm(F.conv2d(y, w2, padding=1, groups=12), g2, b2))
        return x + norm(F.conv2d(y, w3), g3, b3)

    yield "depthwise_block", block, inverted

    block = {"x": uniform(g, (2, 3, 8, 8)), "w1": uniform(g, (4, 3, 3, 3)), "w2": uniform(g, (8, 4, 3, 3))}
    block |= {"w3": uniform(g, (8, 4, 2, 2)), "b3": uniform(g, (4,)), "w4": uniform(g, (4, 8, 3, 3))}
    for i, c in ((1, 4), (2, 8), (4, 4)):
        block |= {f"g{i}": uniform(g, (c,), 0.5, 1.5), f"b{i}": uniform(g, (c,))}

    def unet(x, w1, w2, w3, b3, w4, g1, b1, g2, b2, g4, b4):
        skip = norm(F.conv2d(x, w1, padding=1), g1, b1).relu()
        deep = norm(F.conv2d(F.max_pool2d(skip, 2), w2, padding=1), g2, b2).relu()
        up = F.conv_transpose2d(deep, w3, b3, stride=2)
        return norm(F.conv2d(torch.cat((skip, up), 1), w4, padding=1), g4, b4).relu()

    yield "unet_block", block, unet


def images():
    tensors = {}
    generator = torch.Generator().manual_seed(22)
    for name, inputs, function in cases(generator):
        inputs = {key: value.float().double() for key, value in inputs.items()}
        leaves = {key: value.clone().requires_grad_() for key, value in inputs.items()}
        y = function(*leaves.values())
        dy = uniform(generator, tuple(y.shape), 0.25, 1.75)
        (y * dy).sum().backward()
        for key, leaf in leaves.items():
            tensors[f"{name}/{key}"] = leaf.detach()
            if leaf.grad is not None:
                tensors[f"{name}/d{key}"] = leaf.grad
        tensors[f"{name}/y"] = y.detach()
        tensors[f"{name}/dy"] = dy
        if name == "batch_norm":
            running = (torch.zeros(5).double(), torch.ones(5).double())
            norm(*inputs.values(), running)
            tensors[f"{name}/running_mean"], tensors[f"{name}/running_var"] = running
    return tensors


if __name__ == "__main__":
    write("images.safetensors", images())
