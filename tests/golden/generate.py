#!/usr/bin/env python3
"""Writes the golden values of this folder, as PyTorch computes them. Run by hand, never by the tests:

    python3 -m venv venv && venv/bin/pip install torch==2.15.0 safetensors numpy
    venv/bin/python tests/golden/generate.py

Made with torch 2.15.0 on its CPU backend. A second run writes the same bytes.

Inputs are f32 values. Everything after them is computed in float64 and only then rounded to f32, so what is stored is
not another f32 implementation's opinion. Class indices are i32.

ops.safetensors: OP/y, the result of OP on its inputs; OP/dy, fixed random weights of y's shape; and for each input N
(x for one input; a, b, c for several) OP/N and OP/dN, the gradient of (y * dy).sum(). Inputs keep away from kinks and
ties, so that a gradient is one number.

mlp_train.safetensors: a 7-12-5 network, fc2(relu(fc1(x))), mean cross-entropy, the same 9 samples at each of 5 steps.
Weights have PyTorch's Linear layout, [out, in]: y = x W^T + b.
    x [9,7]; labels i32 [9]; init/P; logits, loss and grad/P before the first step
    RUN/loss [5]      the loss of each step, before its update
    RUN/final/P       the parameter P after 5 steps
    RUN/grad_norm [5] where a run clips by the global norm: that norm, before clipping
with P one of fc1.weight, fc1.bias, fc2.weight, fc2.bias and RUN a name from RUNS below, whose settings the file's
metadata repeats. Every parameter, biases included, gets the weight decay.
PyTorch's rules where others differ: momentum's buffer starts as the first gradient (no dampening); weight decay joins the
gradient except in AdamW, which scales the weight by 1 - lr*decay first; Adam divides by sqrt(v/(1-b2^t)) + eps, with
b = (0.9, 0.999) and eps = 1e-8; clipping scales by max_norm / (norm + 1e-6) where that is below 1.
"""

import json
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

HERE = Path(__file__).resolve().parent
WIDE = [-30.0, -12.0, -6.5, 6.5, 12.0, 30.0]  # where a careless tanh, exp or erf breaks


def uniform(generator, shape, low=-2.0, high=2.0):
    """f32 values in [low, high), as float64."""
    values = torch.rand(shape, generator=generator, dtype=torch.float32) * (high - low) + low
    return values.double()


def away(x, *kinks, gap=0.05):
    """Moves values that lie within `gap` of a kink to its far side."""
    for kink in kinks:
        x = torch.where((x - kink).abs() < gap, x + 2 * gap, x)
    return x.float().double()


def with_extremes(x, extremes=WIDE):
    x = x.clone()
    x.view(-1)[: len(extremes)] = torch.tensor(extremes, dtype=torch.float32).double()
    return x


def distinct(generator, shape):
    """A permutation of evenly spaced values: no two are closer than 0.1."""
    count = torch.Size(shape).numel()
    order = torch.randperm(count, generator=generator)
    return (order.double() * 0.1 - count * 0.05).view(shape).float().double()


def cases(g):
    """Yields (name, inputs, function, indices): the inputs are differentiated, the indices are not."""
    shape = (5, 7)

    def one(name, x, function, **indices):
        return name, {"x": x}, function, indices

    def two(name, a, b, function, **indices):
        return name, {"a": a, "b": b}, function, indices

    yield one("neg", uniform(g, shape), lambda x: -x)
    yield one("scale", uniform(g, shape), lambda x: x * -1.75)
    yield one("relu", away(uniform(g, shape), 0.0), F.relu)
    yield one("leaky_relu", away(uniform(g, shape), 0.0), lambda x: F.leaky_relu(x, 0.01))
    yield one("sigmoid", with_extremes(uniform(g, shape, -5, 5)), torch.sigmoid)
    yield one("tanh", with_extremes(uniform(g, shape, -3, 3)), torch.tanh)
    yield one("gelu", with_extremes(uniform(g, shape, -4, 4)), F.gelu)
    yield one("gelu_tanh", with_extremes(uniform(g, shape, -4, 4)), lambda x: F.gelu(x, approximate="tanh"))
    yield one("silu", with_extremes(uniform(g, shape, -5, 5)), F.silu)
    yield one("exp", uniform(g, shape, -6, 4), torch.exp)
    yield one("log", uniform(g, shape, 0.05, 9), torch.log)
    yield one("sqrt", uniform(g, shape, 0.05, 9), torch.sqrt)
    yield one("abs", away(uniform(g, shape), 0.0), torch.abs)
    yield one("clamp", away(uniform(g, shape), -0.5, 0.7), lambda x: x.clamp(-0.5, 0.7))

    # One row far from zero: only a shifted exponential survives it.
    logits = uniform(g, shape, -4, 4)
    logits[2] = (logits[2] + 100.0).float().double()
    yield one("softmax", logits, lambda x: x.softmax(-1))
    yield one("log_softmax", logits.clone(), lambda x: x.log_softmax(-1))

    for label, axes in (("02", (0, 2)), ("1", (1,)), ("all", (0, 1, 2))):
        yield one(f"sum_{label}", uniform(g, (3, 4, 5)), lambda x, axes=axes: x.sum(axes))
        yield one(f"mean_{label}", uniform(g, (3, 4, 5)), lambda x, axes=axes: x.mean(axes))
        yield one(f"max_{label}", distinct(g, (3, 4, 5)), lambda x, axes=axes: x.amax(axes))

    yield two("matmul", uniform(g, (3, 4)), uniform(g, (4, 5)), lambda a, b: a @ b)
    yield two("matmul_ta", uniform(g, (4, 3)), uniform(g, (4, 5)), lambda a, b: a.mT @ b)
    yield two("matmul_tb", uniform(g, (3, 4)), uniform(g, (5, 4)), lambda a, b: a @ b.mT)
    yield two("matmul_ta_tb", uniform(g, (4, 3)), uniform(g, (5, 4)), lambda a, b: a.mT @ b.mT)
    yield two("bmm", uniform(g, (2, 3, 4)), uniform(g, (2, 4, 5)), lambda a, b: a @ b)
    yield two("bmm_ta", uniform(g, (2, 4, 3)), uniform(g, (2, 4, 5)), lambda a, b: a.mT @ b)
    yield two("bmm_tb", uniform(g, (2, 3, 4)), uniform(g, (2, 5, 4)), lambda a, b: a @ b.mT)
    yield two("bmm_shared", uniform(g, (2, 3, 4)), uniform(g, (4, 5)), lambda a, b: a @ b)

    arithmetic = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div}
    for name, function in arithmetic.items():
        for label, a_shape, b_shape in (
            ("same", (3, 4), (3, 4)),
            ("column", (2, 3, 4), (3, 1)),
            ("row", (2, 3, 4), (4,)),
            ("outer", (3, 1), (4,)),
        ):
            b = uniform(g, b_shape, 0.5, 2.5)
            b = torch.where(uniform(g, b_shape) < 0, -b, b)
            yield two(f"{name}_{label}", uniform(g, a_shape), b, function)

    yield one("transpose", uniform(g, (3, 5)), lambda x: x.mT)
    yield one("permute_201", uniform(g, (2, 3, 4)), lambda x: x.permute(2, 0, 1))
    yield one("slice", uniform(g, (4, 3, 5)), lambda x: x[1:3, :, 2:5])
    parts = {"a": uniform(g, (2, 3, 4)), "b": uniform(g, (2, 1, 4)), "c": uniform(g, (2, 2, 4))}
    yield "concat_1", parts, lambda a, b, c: torch.cat((a, b, c), 1), {}
    yield two("concat_last", uniform(g, (3, 2)), uniform(g, (3, 5)), lambda a, b: torch.cat((a, b), -1))

    logits = uniform(g, (6, 5), -4, 4)
    logits[3] = (logits[3] - 100.0).float().double()
    labels = torch.tensor([0, 4, 2, 2, 1, 3])
    yield one("cross_entropy", logits, lambda x: F.cross_entropy(x, labels), labels=labels)
    yield two("mse_loss", uniform(g, (6, 5)), uniform(g, (6, 5)), F.mse_loss)
    targets = uniform(g, shape, 0, 1)
    targets[0] = torch.tensor([0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 1.0]).double()
    logits = with_extremes(uniform(g, shape, -4, 4))
    yield two("bce_with_logits", logits, targets, F.binary_cross_entropy_with_logits)


def ops():
    tensors = {}
    generator = torch.Generator().manual_seed(20)
    for name, inputs, function, indices in cases(generator):
        leaves = {key: value.clone().requires_grad_() for key, value in inputs.items()}
        y = function(*leaves.values())
        dy = uniform(generator, tuple(y.shape), 0.25, 1.75)
        (y * dy).sum().backward()
        for key, leaf in leaves.items():
            tensors[f"{name}/{key}"] = leaf.detach()
            tensors[f"{name}/d{key}"] = leaf.grad
        for key, value in indices.items():
            tensors[f"{name}/{key}"] = value
        tensors[f"{name}/y"] = y.detach()
        tensors[f"{name}/dy"] = dy
    return tensors


RUNS = {
    "sgd": {"kind": "SGD", "lr": 0.1},
    "momentum": {"kind": "SGD", "lr": 0.05, "momentum": 0.9, "weight_decay": 0.01},
    "nesterov": {"kind": "SGD", "lr": 0.05, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True},
    "adam": {"kind": "Adam", "lr": 0.01, "weight_decay": 0.01},
    "adamw": {"kind": "AdamW", "lr": 0.01, "weight_decay": 0.1},
    "adamw_clip": {"kind": "AdamW", "lr": 0.01, "weight_decay": 0.1, "clip_grad_norm": 0.1},
    # Adam hides a wrong factor on the gradient; plain SGD does not.
    "sgd_clip": {"kind": "SGD", "lr": 0.5, "clip_grad_norm": 0.1},
    "sgd_clip_value": {"kind": "SGD", "lr": 0.5, "clip_grad_value": 0.02},
}
STEPS = 5


class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = torch.nn.Linear(7, 12)
        self.fc2 = torch.nn.Linear(12, 5)

    def forward(self, x):
        self.hidden = self.fc1(x)
        return self.fc2(F.relu(self.hidden))


def mlp_train():
    torch.manual_seed(7)
    initial = Mlp().state_dict()
    generator = torch.Generator().manual_seed(21)
    x = uniform(generator, (9, 7))
    labels = torch.tensor([0, 1, 2, 3, 4, 0, 3, 1, 2])
    tensors = {"x": x, "labels": labels}
    tensors.update({f"init/{name}": value for name, value in initial.items()})
    nearest_kink, least_gradient = float("inf"), float("inf")

    for run, settings in RUNS.items():
        settings = dict(settings)
        kind = getattr(torch.optim, settings.pop("kind"))
        clip = settings.pop("clip_grad_norm", None)
        clip_value = settings.pop("clip_grad_value", None)
        model = Mlp().double()
        model.load_state_dict(initial)
        optimizer = kind(model.parameters(), **settings)
        losses, norms = [], []
        for step in range(STEPS):
            optimizer.zero_grad()
            logits = model(x)
            loss = F.cross_entropy(logits, labels)
            loss.backward()
            gradients = {name: value.grad.clone() for name, value in model.named_parameters()}
            if run == "sgd" and step == 0:
                tensors.update({"logits": logits.detach(), "loss": loss.detach()})
                tensors.update({f"grad/{name}": value for name, value in gradients.items()})
            if clip is not None:
                norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), clip))
                assert norms[-1] > clip, "a step that is not clipped tests nothing"
            if clip_value is not None:
                torch.nn.utils.clip_grad_value_(model.parameters(), clip_value)
            losses.append(loss.detach())
            optimizer.step()
            # What makes a float32 run comparable: no unit near its kink, no gradient of pure rounding noise for Adam.
            nearest_kink = min(nearest_kink, model.hidden.abs().min().item())
            sizes = torch.cat([value.flatten().abs() for value in gradients.values()])
            if "Adam" in kind.__name__:
                least_gradient = min(least_gradient, sizes[sizes > 0].min().item())
        tensors[f"{run}/loss"] = torch.stack(losses)
        if norms:
            tensors[f"{run}/grad_norm"] = torch.stack(norms)
        tensors.update({f"{run}/final/{name}": value.detach() for name, value in model.named_parameters()})

    print(f"mlp_train: nearest kink {nearest_kink:.1e}, least gradient {least_gradient:.1e}")
    assert nearest_kink > 1e-4 and least_gradient > 1e-6
    return tensors


def stored(value):
    kind = torch.float32 if value.is_floating_point() else torch.int32
    return value.detach().to(kind).contiguous().clone()


def write(name, tensors, **facts):
    path = HERE / name
    # One entry only: safetensors writes several in no fixed order.
    metadata = {"made_with": json.dumps({"torch": torch.__version__.split("+")[0], **facts})}
    tensors = {key: stored(value) for key, value in tensors.items()}
    assert all(value.isfinite().all() for value in tensors.values())
    save_file(tensors, path, metadata)
    path.chmod(0o644)
    print(f"{name}: {len(tensors)} tensors, {path.stat().st_size} bytes")


if __name__ == "__main__":
    write("ops.safetensors", ops())
    write("mlp_train.safetensors", mlp_train(), runs=RUNS)
