#!/usr/bin/env python3
"""Runs wgrad's random networks in PyTorch, in float64, and compares loss and gradients.

    wgrad check --export networks.jsonl --graphs 1000 --seed 0
    pip install torch numpy
    python3 benches/check/against_pytorch.py networks.jsonl

Each line of the file is a network as it was traced, with what it is fed and the loss and gradients of wgrad's own f64
interpreter, which `wgrad check` compares adapters with. Exit code 1 if a network differs by more than TOLERANCE of its largest
gradient. Networks with dropout inside attention are left out and counted: PyTorch cannot be given the mask.
"""
import json
import sys

import torch
import torch.nn.functional as F

TOLERANCE = 1e-6
IGNORE = 2**32 - 1


class LeftOut(Exception):
    pass


def pairs(node, *names):
    return [tuple(node[name]) for name in names]


def alibi_slopes(heads):
    """As published: https://github.com/ofirpress/attention_with_linear_biases."""
    lower = 1 << (heads.bit_length() - 1)
    line = lambda n: [2.0 ** (-8.0 * (i + 1) / n) for i in range(n)]
    return torch.tensor(line(lower) + line(2 * lower)[0::2][: heads - lower], dtype=torch.float64)


def attention(node, x):
    if node["dropout"]:
        raise LeftOut
    if node["packed"]:
        heads, kv = node["packed"]
        q, k, v = x[0].split([heads, kv, kv], dim=2)
    else:
        q, k, v = x[:3]
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    repeat = q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(repeat, dim=1) for t in (k, v))
    scores = node["scale"] * q @ k.transpose(-2, -1)
    if node["cap"]:
        scores = node["cap"] * torch.tanh(scores / node["cap"])
    s, t = scores.shape[-2:]
    back = torch.arange(s)[:, None] - torch.arange(t)[None, :]
    scores = scores.masked_fill((back > node["before"]) | (back < -node["after"]), float("-inf"))
    if node["documents"]:
        of_queries = slice(node["offset"], node["offset"] + s)
        start, end = x[len(x) - 1].long()[:, of_queries].unbind(-1)
        start, end = (ends[:, None, :, None] for ends in (start, end))
        key = torch.arange(t)
        scores = scores.masked_fill((key < start) | (key >= end), float("-inf"))
    if node["alibi"]:
        scores = scores - alibi_slopes(q.shape[1])[:, None, None] * back.abs()
    return [(scores.softmax(-1) @ v).transpose(1, 2), scores.logsumexp(-1)]


def rotary(node, x):
    x, heads, half = x[0], node["heads"], x[0].shape[-1] // 2
    place = torch.arange(x.shape[1], dtype=torch.float64)
    angle = place[:, None] * node["base"] ** (-torch.arange(half, dtype=torch.float64) / half)
    cos, sin = (t[None, :, None, :] for t in (angle.cos(), angle.sin()))
    a, b = x[:, :, :heads, :half], x[:, :, :heads, half:]
    turned = torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)
    return [torch.cat([turned, x[:, :, heads:]], dim=2)]


def lstm_gates(node, x):
    i, f, g, o = x[0].chunk(4, 1)
    memory = f.sigmoid() * x[1] + i.sigmoid() * g.tanh()
    return [o.sigmoid() * memory.tanh(), memory]


def gru_gates(node, x):
    (r, z, n), (back_r, back_z, back_n) = x[0].chunk(3, 1), x[1].chunk(3, 1)
    z = (z + back_z).sigmoid()
    return [(1 - z) * (n + (r + back_r).sigmoid() * back_n).tanh() + z * x[2]]


def convolution_input(node, x):
    """A transposed convolution is the gradient of a convolution in its image."""
    stride, padding, dilation = pairs(node, "stride", "padding", "dilation")
    size = node["size"]
    base = [(x[0].shape[i + 2] - 1) * stride[i] - 2 * padding[i] + dilation[i] * (node["kernel"][i] - 1) + 1 for i in (0, 1)]
    extra = [size[i] - base[i] for i in (0, 1)]
    bias = x[2] if len(x) > 2 else None
    return [F.conv_transpose2d(x[0], x[1], bias, stride, padding, extra, node["groups"], dilation)]


def average(node, x):
    if "adaptive" in node:
        return [F.adaptive_avg_pool2d(x[0], node["adaptive"])]
    kernel, stride, padding = pairs(node, "kernel", "stride", "padding")
    return [F.avg_pool2d(x[0], kernel, stride, padding, count_include_pad=node["count_padding"])]


def statistics(node, x):
    var, mean = torch.var_mean(x[0], (0, 2, 3), correction=0)
    return [mean, 1 / (var + node["eps"]).sqrt(), var]


def batch_norm(x):
    x, mean, deviation, gamma, beta = x
    mean, deviation, gamma, beta = (t[None, :, None, None] for t in (mean, deviation, gamma, beta))
    return (x - mean) * deviation * gamma + beta


def row_norm(node, x):
    if node["rms"]:
        y = x[0] * (x[0].square().mean(-1, keepdim=True) + node["eps"]).rsqrt() * x[1]
        return [y, None]
    return [F.layer_norm(x[0], x[0].shape[-1:], x[1], x[2], node["eps"]), None]


def product(node, x):
    a, b = (t.transpose(-2, -1) if flag else t for t, flag in zip(x, (node["ta"], node["tb"])))
    return [a @ b]


def cross_entropy(x):
    labels = torch.where(x[1] == IGNORE, -100, x[1])
    return [F.cross_entropy(x[0], labels, reduction="none"), None]


def label_share(x):
    return [1.0 / (x[0] != IGNORE).sum().clamp(min=1).to(torch.float64)]


class Rounded(torch.autograd.Function):
    """A cast whose gradient passes as it is."""

    @staticmethod
    def forward(ctx, x, dtype):
        limit = torch.finfo(dtype).max
        return x.clamp(-limit, limit).to(dtype).to(torch.float64)

    @staticmethod
    def backward(ctx, dy):
        return dy, None


def cast(node, x, to):
    if to == "u32" or x[0].dtype == torch.int64:
        return [x[0].to(torch.float64)]
    dtype = {"f16": torch.float16, "bf16": torch.bfloat16}.get(to)
    # wgrad rounds f32, which has fewer digits than f64: the same but for ties.
    return [Rounded.apply(x[0].float().double() if not x[0].requires_grad else x[0], dtype) if dtype else x[0]]


def tied_max(x, axes):
    return [torch.amax(x, axes, keepdim=True)]


def elementwise_max(a, b, sign):
    """The gradient of equal operands goes to the first."""
    second = (b > a) if sign > 0 else (a > b)
    return [torch.where(second, b, a)]


OPS = {
    "matmul": product,
    "neg": lambda n, x: [-x[0]],
    "scale": lambda n, x: [n["a"] * x[0]],
    "offset": lambda n, x: [x[0] + n["a"]],
    "exp": lambda n, x: [x[0].exp()],
    "log": lambda n, x: [x[0].log()],
    "sqrt": lambda n, x: [x[0].sqrt()],
    "abs": lambda n, x: [x[0].abs()],
    "square": lambda n, x: [x[0].square()],
    "recip": lambda n, x: [x[0].reciprocal()],
    "clamp": lambda n, x: [x[0].clamp(n["a"], n["b"])],
    "relu": lambda n, x: [x[0].relu()],
    "leaky_relu": lambda n, x: [F.leaky_relu(x[0], n["a"])],
    "sigmoid": lambda n, x: [x[0].sigmoid()],
    "tanh": lambda n, x: [x[0].tanh()],
    "gelu": lambda n, x: [F.gelu(x[0])],
    "gelu_tanh": lambda n, x: [F.gelu(x[0], approximate="tanh")],
    "silu": lambda n, x: [F.silu(x[0])],
    "add": lambda n, x: [x[0] + x[1]],
    "sub": lambda n, x: [x[0] - x[1]],
    "mul": lambda n, x: [x[0] * x[1]],
    "div": lambda n, x: [x[0] / x[1]],
    "rsqrt": lambda n, x: [x[0].rsqrt()],
    "softplus": lambda n, x: [F.softplus(x[0])],
    "elu": lambda n, x: [F.elu(x[0], n["a"])],
    "hardsigmoid": lambda n, x: [F.hardsigmoid(x[0])],
    "hardswish": lambda n, x: [F.hardswish(x[0])],
    "erf": lambda n, x: [x[0].erf()],
    "sin": lambda n, x: [x[0].sin()],
    "cos": lambda n, x: [x[0].cos()],
    "floor": lambda n, x: [x[0].floor()],
    "ceil": lambda n, x: [x[0].ceil()],
    "round": lambda n, x: [x[0].round()],
    "sign": lambda n, x: [x[0].sign()],
    "mish": lambda n, x: [F.mish(x[0])],
    "max": lambda n, x: tied_max(x[0], n["axes"]),
    "maximum": lambda n, x: elementwise_max(x[0], x[1], 1),
    "minimum": lambda n, x: elementwise_max(x[0], x[1], -1),
    "equal": lambda n, x: [(x[0] == x[1]).double()],
    "not_equal": lambda n, x: [(x[0] != x[1]).double()],
    "greater": lambda n, x: [(x[0] > x[1]).double()],
    "greater_equal": lambda n, x: [(x[0] >= x[1]).double()],
    "less": lambda n, x: [(x[0] < x[1]).double()],
    "less_equal": lambda n, x: [(x[0] <= x[1]).double()],
    "masked": lambda n, x: [torch.where(x[1] != 0, x[0], 0.0)],
    "unmasked": lambda n, x: [torch.where(x[1] == 0, x[0], 0.0)],
    "pow": lambda n, x: [x[0] ** x[1]],
    "bce_logits": lambda n, x: [F.binary_cross_entropy_with_logits(*torch.broadcast_tensors(x[0], x[1]), reduction="none")],
    "sum": lambda n, x: [x[0].sum(n["axes"], keepdim=True)],
    "mean": lambda n, x: [x[0].mean(n["axes"], keepdim=True)],
    "sum_squares": lambda n, x: [x[0].square().sum(n["axes"], keepdim=True)],
    "softmax": lambda n, x: [x[0].softmax(-1)],
    "log_softmax": lambda n, x: [x[0].log_softmax(-1)],
    "cross_entropy": lambda n, x: cross_entropy(x),
    "label_share": lambda n, x: label_share(x),
    "permute": lambda n, x: [x[0].permute(n["perm"])],
    "slice": lambda n, x: [x[0].narrow(n["axis"], n["start"], n["len"])],
    "concat": lambda n, x: [torch.cat(x, n["axis"])],
    "copy": lambda n, x: [x[0]],
    "attention": attention,
    "conv2d": lambda n, x: [F.conv2d(x[0], x[1], x[2] if len(x) > 2 else None, *pairs(n, "stride", "padding", "dilation"), n["groups"])],
    "conv2d_input": convolution_input,
    "max_pool2d": lambda n, x: [F.max_pool2d(x[0], *pairs(n, "kernel", "stride", "padding", "dilation")), None],
    "avg_pool2d": average,
    "batch_stats": statistics,
    "batch_norm": lambda n, x: [batch_norm(x)],
    "running_stats": lambda n, x: [],
    "upsample_nearest": lambda n, x: [F.interpolate(x[0], n["size"], mode="nearest")],
    "upsample_bilinear": lambda n, x: [F.interpolate(x[0], n["size"], mode="bilinear", align_corners=n["corners"])],
    "embedding": lambda n, x: [x[0][x[1]]],
    "layer_norm": row_norm,
    "rms_norm": row_norm,
    "rotary": rotary,
    "lstm_gates": lstm_gates,
    "gru_gates": gru_gates,
}


def apply(node, x, shapes, dtypes):
    op = node["op"]
    if op == "reshape":
        return [x[0].reshape(shapes[0])]
    if op == "expand":
        return [x[0].expand(shapes[0])]
    if op == "fill":
        return [torch.full(shapes[0], node["value"], dtype=torch.float64)]
    if op == "iota":
        rank, axis = len(shapes[0]), node["axis"]
        line = torch.arange(shapes[0][axis], dtype=torch.float64)
        return [line.reshape([-1] + [1] * (rank - 1 - axis)).expand(shapes[0])]
    if op in ("stride", "pad"):
        count = shapes[0][node["axis"]] if op == "stride" else x[0].shape[node["axis"]]
        places = node["start"] + int(node["step"]) * torch.arange(count)
        if op == "stride":
            return [x[0].index_select(node["axis"], places)]
        return [torch.zeros(shapes[0], dtype=torch.float64).index_copy(node["axis"], places, x[0])]
    if op == "gather":
        return [x[0].gather(node["axis"], x[1].expand(shapes[0]))]
    if op == "scatter_add":
        return [torch.zeros(shapes[0], dtype=torch.float64).scatter_add(node["axis"], x[0].expand(x[1].shape), x[1])]
    if op == "detach":
        return [x[0].detach()]
    if op == "custom":
        return [F.softsign(x[0])]
    if op == "argsort":
        return [x[0].argsort(-1, descending=node["descending"], stable=True)]
    if op == "cast":
        return cast(node, x, dtypes[0])
    if op == "dropout":
        kept = torch.tensor(node["kept"], dtype=torch.float64).reshape(x[0].shape)
        return [x[0] * kept / (1 - node["p"])]
    return OPS[op](node, x)


def run(network):
    values = network["values"]
    known, trained = {}, {}
    for i, value in enumerate(values):
        if value["data"] is None:
            continue
        dtype = torch.int64 if value["dtype"] == "u32" else torch.float64
        known[i] = torch.tensor(value["data"], dtype=dtype).reshape(value["shape"])
        if value["trained"]:
            trained[value["name"]] = known[i].requires_grad_()
    for node in network["nodes"]:
        x = [known.get(i) for i in node["inputs"]]
        shapes = [values[i]["shape"] for i in node["outputs"]]
        results = apply(node, x, shapes, [values[i]["dtype"] for i in node["outputs"]])
        for i, result in zip(node["outputs"], results):
            known[i] = result
    loss = known[network["output"]]
    names = list(network["gradients"])
    found = torch.autograd.grad(loss.sum(), [trained[name] for name in names], allow_unused=True)
    return loss.item(), dict(zip(names, found))


def main():
    compared, left_out, worst, failures = 0, 0, 0.0, 0
    for line in open(sys.argv[1]):
        network = json.loads(line)
        try:
            loss, found = run(network)
        except LeftOut:
            left_out += 1
            continue
        compared += 1
        most = max((abs(g) for all in network["gradients"].values() for g in all), default=0.0)
        errors = [("loss", abs(loss - network["loss"]) / max(1.0, abs(network["loss"])))]
        for name, gradient in network["gradients"].items():
            own = torch.tensor(gradient, dtype=torch.float64)
            other = found[name].flatten() if found[name] is not None else torch.zeros_like(own)
            errors.append((name, (own - other).abs().max().item() / max(most, 1e-12)))
        name, error = max(errors, key=lambda pair: pair[1])
        worst = max(worst, error)
        if not error <= TOLERANCE:
            failures += 1
            print(f"FAILED network of seed {network['seed']}: `{name}` differs by {error:.3e} of the largest gradient")
    print(
        f"PyTorch {torch.__version__}: {compared} networks compared, {left_out} with attention's dropout left out, "
        f"{failures} differences, the largest error {worst:.1e}"
    )
    sys.exit(failures > 0 or compared == 0)


if __name__ == "__main__":
    main()
