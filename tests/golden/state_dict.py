#!/usr/bin/env python3
"""Writes the state dict of a small network with batch norm as PyTorch and safetensors write it, in every floating-point type,
and what PyTorch computes with each. Run by hand, never by the tests:

    python3 -m venv venv && venv/bin/pip install torch==2.15.0 safetensors numpy
    venv/bin/python tests/golden/state_dict.py        # or with --pt: the .pt files only

state_dict_f32.safetensors and so on with f16, bf16, f64: `net.state_dict()` after three batches, `num_batches_tracked`, an i64
scalar, among it.

state_dict.safetensors:
    x f32 [5,3,8,8]; logits_f32 [5,10] and so on: the network in evaluation mode with the weights of each file, computed in
    float64 and rounded once.

state_dict_f32.pt: state_dict_f32.safetensors as `torch.save` writes it.

state_dict_views.pt: a checkpoint, `{"epoch", "state_dict", "optimizer"}`, with the same numbers, of which no tensor has a
storage of its own: transposed, in channels-last order, parts of a longer vector, parameters, and one in f64 and one in bf16
(`bn.bias` and `fc.bias`, rounded first); the second is part of state_dict_views.safetensors, to compare with.

    venv/bin/python tests/golden/state_dict.py --check FILE

loads FILE, such as a session saved it, with `load_state_dict(strict=True)`, and prints the largest difference of its logits
from logits_f32.
"""

import argparse
import copy
from collections import OrderedDict
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn

HERE = Path(__file__).resolve().parent
TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(8)
        self.fc = nn.Linear(128, 10)

    def forward(self, x):
        return self.fc(torch.relu(self.bn(self.conv(x))).flatten(1))


def logits(state, x):
    net = Net().double().eval()
    net.load_state_dict({name: t.double() if t.is_floating_point() else t for name, t in state.items()}, strict=True)
    with torch.no_grad():
        return net(x.double()).float()


def write():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    net = Net()
    nn.init.normal_(net.bn.weight, 1, 0.2)
    nn.init.normal_(net.bn.bias, 0, 0.2)
    for _ in range(3):
        net(2 * torch.randn(16, 3, 8, 8) + 0.5)
    values = {"x": torch.randn(5, 3, 8, 8).float()}
    for name, dtype in TYPES.items():
        path = HERE / f"state_dict_{name}.safetensors"
        save_file(copy.deepcopy(net).to(dtype).state_dict(), path)
        values[f"logits_{name}"] = logits(load_file(path), values["x"])
    save_file(values, HERE / "state_dict.safetensors")


def write_pt():
    state = load_file(HERE / "state_dict_f32.safetensors")
    torch.save(OrderedDict(state), HERE / "state_dict_f32.pt")
    state["fc.bias"] = state["fc.bias"].bfloat16()
    save_file(state, HERE / "state_dict_views.safetensors")
    state["bn.bias"] = state["bn.bias"].double()
    state["conv.weight"] = nn.Parameter(state["conv.weight"].to(memory_format=torch.channels_last))
    state["fc.weight"] = nn.Parameter(state["fc.weight"].t().contiguous().t(), requires_grad=False)
    bn = torch.cat([state[f"bn.{name}"] for name in ["weight", "running_mean", "running_var"]])
    for i, name in enumerate(["weight", "running_mean", "running_var"]):
        state[f"bn.{name}"] = bn[8 * i : 8 * (i + 1)]
    optimizer = {"state": {0: {"exp_avg": torch.zeros(2)}}, "param_groups": [{"lr": 0.1, "params": [0]}]}
    torch.save({"epoch": 3, "state_dict": state, "optimizer": optimizer}, HERE / "state_dict_views.pt")


def check(path):
    values = load_file(HERE / "state_dict.safetensors")
    apart = (logits(load_file(path), values["x"]) - values["logits_f32"]).abs().max().item()
    print(f"{path}: all names fit, logits differ by {apart:.1e}")


parser = argparse.ArgumentParser()
parser.add_argument("--check", metavar="FILE")
parser.add_argument("--pt", action="store_true", help="write the .pt files only")
arguments = parser.parse_args()
if arguments.check:
    check(arguments.check)
else:
    if not arguments.pt:
        write()
    write_pt()
