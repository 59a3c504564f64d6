"""Writes small networks as PyTorch exports them to ONNX, their inputs, and what onnxruntime answers.

    pip install torch onnx onnxscript onnxruntime safetensors numpy
    python tests/golden/onnx_networks.py
"""

import pathlib

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import helper, numpy_helper
from safetensors.numpy import save_file
from torch import nn

here = pathlib.Path(__file__).parent
torch.manual_seed(0)


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, stride=2, padding=1, groups=2)
        self.fc = nn.Linear(16, 5)

    def forward(self, x):
        x = nn.functional.hardswish(self.bn1(self.conv1(x)))
        x = nn.functional.max_pool2d(x, 3, 2, 1)
        x = nn.functional.adaptive_avg_pool2d(torch.sigmoid(self.conv2(x)) * 2, 1)
        return self.fc(torch.flatten(x, 1))


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, activation="gelu", batch_first=True)
        self.head = nn.Linear(32, 50)

    def forward(self, ids):
        x = self.table(ids)
        mask = torch.triu(torch.full((ids.shape[1], ids.shape[1]), float("-inf")), 1)
        return self.head(self.layer(x, src_mask=mask))


def clear_metadata(path):
    """Removes what the exporter notes of each node, such as stack traces with the paths of this machine."""
    model = onnx.load(path)
    graph = model.graph
    for part in [model, graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer]:
        part.ClearField("metadata_props")
    onnx.save(model, path)


def export(name, net, x, dynamic):
    net.eval()
    path = here / f"onnx_{name}.onnx"
    torch.onnx.export(
        net, (x,), path, input_names=["x"], output_names=["y"], dynamic_shapes=({0: dynamic},),
                optimize=False, external_data=False,
    )
    clear_metadata(path)
    answer = onnxruntime.InferenceSession(path).run(None, {"x": x.numpy()})[0]
    return {f"{name}.x": x.numpy(), f"{name}.y": answer}


tensors = {}
net = Convolutions()
with torch.no_grad():
    net.bn1.running_mean.uniform_(-0.5, 0.5)
    net.bn1.running_var.uniform_(0.5, 2)
batch = torch.export.Dim("batch", min=1, max=64)
tensors |= export("convolutions", net, torch.randn(4, 3, 16, 16), batch)
tensors |= export("tokens", Tokens(), torch.randint(0, 50, (2, 12)), batch)

# Losses of five steps of SGD with momentum, batch norm in training mode.
net.train()
labels = torch.tensor([0, 3, 1, 4])
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
losses = []
for _ in range(5):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(torch.from_numpy(tensors["convolutions.x"])), labels)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
tensors["convolutions.labels"] = labels.numpy().astype(np.float32)
tensors["convolutions.losses"] = np.array(losses, np.float32)
tensors["tokens.x"] = tensors["tokens.x"].astype(np.float32)

# Nodes that PyTorch's exporter writes seldom, one result each.
rng = np.random.default_rng(0)
weights, nodes, results = {}, [], []


def stored(name, data):
    weights[name] = np.asarray(data, np.int64 if np.asarray(data).dtype.kind == "i" else np.float32)
    return name


def node(kind, inputs, count=1, **attributes):
    outputs = [f"{kind}{len(nodes)}.{i}" for i in range(count)]
    nodes.append(helper.make_node(kind, inputs, outputs, name=f"{kind}{len(nodes)}", **attributes))
    return outputs


def recurrent(kind, gates, directions, **attributes):
    w = stored(f"w{len(nodes)}", rng.standard_normal((directions, gates * 3, 4)) / 2)
    u = stored(f"u{len(nodes)}", rng.standard_normal((directions, gates * 3, 3)) / 2)
    b = stored(f"b{len(nodes)}", rng.standard_normal((directions, gates * 6)) / 2)
    h = stored(f"h{len(nodes)}", rng.standard_normal((directions, 2, 3)))
    count = 3 if kind == "LSTM" else 2
    return node(kind, ["x", w, u, b, "", h], count, hidden_size=3, **attributes)


results += recurrent("LSTM", 4, 2, direction="bidirectional")
results += recurrent("GRU", 3, 1, direction="reverse")
results += recurrent("GRU", 3, 1, linear_before_reset=1)
results += recurrent("RNN", 1, 1, activations=["Relu"])
# Rows of [5, 2]; elements; rows of each batch.
results += node("GatherND", ["x", stored("pairs", [[0, 1], [-1, 0], [4, 1]])])
results += node("GatherND", ["x", stored("ones", [[1], [0], [-1], [0], [1]])], batch_dims=1)
results += node("ScatterND", ["x", stored("rows", [[3], [1]]), stored("new", rng.standard_normal((2, 2, 4)))])
results += node("ScatterND", ["x", stored("piece", [[2], [3]]), "new"])
results += node("ScatterND", ["x", "pairs", stored("more", rng.standard_normal((3, 4)))], reduction="add")
results += node("ScatterElements", ["x", stored("places", [[[1, 0, -1, 0]]]), stored("few", rng.standard_normal((1, 1, 4)))])
parts = node("SplitToSequence", ["x", stored("lengths", [1, 3, 1])], axis=0)
results += node("SequenceAt", [*parts, stored("second", 1)])
image = node("Reshape", ["x", stored("image", [1, 1, 5, 8])])
results += node("AveragePool", image, kernel_shape=[2, 2], dilations=[2, 3], pads=[1, 1, 1, 1])
x = rng.standard_normal((5, 2, 4)).astype(np.float32)
outputs = [helper.make_tensor_value_info(name, 1, None) for name in results]
graph = helper.make_graph(nodes, "nodes", [helper.make_tensor_value_info("x", 1, x.shape)], outputs,
                          [numpy_helper.from_array(data, name) for name, data in weights.items()])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
onnx.save(model, here / "onnx_nodes.onnx")
tensors["nodes.x"] = x
answers = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
tensors |= {f"nodes.{name}": y for name, y in zip(results, answers, strict=True)}
save_file({name: np.ascontiguousarray(data) for name, data in tensors.items()}, here / "onnx.safetensors")
