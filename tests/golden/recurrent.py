#!/usr/bin/env python3
"""Writes recurrent.safetensors: what PyTorch's recurrent layers compute, with states. Run by hand:

    venv/bin/python tests/golden/recurrent.py      (the virtual environment of generate.py)

Inputs are f32 values; everything after them is computed in float64 and rounded once. For each CASE of CASES: CASE/x, CASE/h and
CASE/c the inputs; CASE/weight_… and CASE/bias_… the weights; CASE/y, CASE/hn and CASE/cn the results, of which CASE/dy, CASE/dhn
and CASE/dcn are weights in a sum; CASE/d/NAME the gradient of that sum by NAME. A test of the same cases is in
tests/kernels/recurrent.rs.
"""

import torch

from generate import uniform, write

# Class of PyTorch, options, steps, batch, inputs, hidden size.
CASES = {
    "lstm": ("LSTM", {"num_layers": 2, "bidirectional": True}, 4, 3, 3, 5),
    "lstm_short": ("LSTM", {"bias": False}, 1, 2, 3, 8),
    "gru": ("GRU", {"num_layers": 2, "bidirectional": True}, 4, 3, 3, 5),
    "gru_no_bias": ("GRU", {"bias": False}, 3, 2, 4, 4),
    "rnn": ("RNN", {"bidirectional": True}, 3, 2, 3, 6),
    "rnn_relu": ("RNN", {"nonlinearity": "relu", "num_layers": 2}, 4, 2, 3, 4),
}


def case(g, kind, options, steps, batch, inputs, hidden):
    layer = getattr(torch.nn, kind)(inputs, hidden, batch_first=True, **options).double()
    states = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    leaves = {"x": uniform(g, (batch, steps, inputs), -2, 2), "h": uniform(g, (states, batch, hidden), -1, 1)}
    if kind == "LSTM":
        leaves["c"] = uniform(g, (states, batch, hidden), -1, 1)
    leaves |= {name: uniform(g, tuple(weight.shape), -0.8, 0.8) for name, weight in layer.named_parameters()}
    leaves = {name: x.float().double().requires_grad_() for name, x in leaves.items()}
    start = (leaves["h"], leaves["c"]) if kind == "LSTM" else leaves["h"]
    weights = {name: x for name, x in leaves.items() if name not in ("x", "h", "c")}
    y, end = torch.func.functional_call(layer, weights, (leaves["x"], start))
    results = {"y": y, "hn": end[0], "cn": end[1]} if kind == "LSTM" else {"y": y, "hn": end}
    tensors, total = {}, 0
    for name, result in results.items():
        d = uniform(g, tuple(result.shape), 0.25, 1.75).float().double()
        tensors |= {name: result.detach(), f"d{name}": d}
        total = total + (result * d).sum()
    total.backward()
    tensors |= {name: x.detach() for name, x in leaves.items()}
    return tensors | {f"d/{name}": x.grad for name, x in leaves.items()}


if __name__ == "__main__":
    generator = torch.Generator().manual_seed(11)
    made = {name: case(generator, *options) for name, options in CASES.items()}
    write("recurrent.safetensors", {f"{name}/{key}": x for name, own in made.items() for key, x in own.items()})
