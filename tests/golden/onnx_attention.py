#!/usr/bin/env python3
"""Writes onnx_attention.onnx, nodes `Attention` of opset 23, and onnx_attention.safetensors, what onnxruntime answers.

    pip install onnx onnxruntime safetensors numpy
    python tests/golden/onnx_attention.py
"""

import pathlib

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from safetensors.numpy import save_file

here = pathlib.Path(__file__).parent
rng = np.random.default_rng(0)
inputs = {"x": rng.uniform(-2, 2, (2, 4, 6, 8)), "flat": rng.uniform(-2, 2, (2, 5, 16))}
inputs = {name: data.astype(np.float32) for name, data in inputs.items()}
weights = {
    "seen": np.array([[1, 1, 0, 1, 1], [1, 0, 1, 1, 1], [1, 1, 1, 1, 1], [0, 1, 1, 1, 0], [1, 0, 0, 0, 0]], bool),
    "bias": rng.uniform(-2, 2, (4, 6, 6)).astype(np.float32),
    "pairs": np.array([0, 2], np.int64),
}
nodes = [
    helper.make_node("Gather", ["x", "pairs"], ["pair"], axis=1),
    helper.make_node("Attention", ["x", "x", "x"], ["full"], name="full"),
    helper.make_node("Attention", ["x", "pair", "pair"], ["grouped"], name="grouped", is_causal=1, scale=0.5),
    helper.make_node("Attention", ["x", "x", "x", "bias"], ["biased"], name="biased"),
    helper.make_node(
        "Attention", ["flat", "flat", "flat", "seen"], ["masked"], name="masked", q_num_heads=4, kv_num_heads=4
    ),
    # Scores are capped before masks, as ONNX 1.22 has it; older versions of onnxruntime did so after them.
    helper.make_node("Attention", ["x", "x", "x", "bias"], ["capped"], name="capped", is_causal=1, softcap=0.75),
]
results = ["full", "grouped", "biased", "masked", "capped"]
graph = helper.make_graph(
    nodes,
    "attention",
    [helper.make_tensor_value_info(name, 1, data.shape) for name, data in inputs.items()],
    [helper.make_tensor_value_info(name, 1, None) for name in results],
    [numpy_helper.from_array(data, name) for name, data in weights.items()],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
path = here / "onnx_attention.onnx"
onnx.save(model, path)
answers = onnxruntime.InferenceSession(path).run(results, inputs)
save_file(inputs | dict(zip(results, answers)), here / "onnx_attention.safetensors")
