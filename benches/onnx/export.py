#!/usr/bin/env python3
"""Compares the ONNX files that `wgrad export` writes, run by onnxruntime, with what `wgrad run` computes with the model itself.

    pip install onnx onnxruntime safetensors numpy
    cargo build --release --features cli
    benches/onnx/export.py [--adapter NAME] [MODEL ...]

By default every model at a size that takes seconds. The parameters are the initial ones; those of batch norms are drawn, since
their initial values would hide mistakes. A line for each: the largest difference, and the largest magnitude of the output.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
import onnxruntime
from safetensors.numpy import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
WGRAD = ROOT / "target/release/wgrad"
IMAGE = ["--image", "64", "--classes", "10"]
MODELS = {
    "mlp": [],
    "digits": [],
    "cnn": [],
    "lenet": [],
    "resnet18": IMAGE,
    "resnet50": IMAGE,
    "vgg16": IMAGE,
    "mobilenet-v2": IMAGE,
    "densenet121": IMAGE,
    "unet": ["--image", "64x96"],
    "gpt-nano": ["--seq", "32"],
    "gpt2": ["--seq", "16"],
    "llama-tiny": ["--seq", "32"],
    "bert-base": ["--seq", "16"],
}
BATCH = 2


def wgrad(*arguments):
    done = subprocess.run([WGRAD, *map(str, arguments)], capture_output=True, text=True, timeout=1200)
    if done.returncode:
        raise RuntimeError(done.stderr.strip() or "no message")
    return done.stdout


def drawn(name, tensor, rng):
    """Returns other values for what a norm multiplies by, adds or has averaged."""
    if name.endswith("running_var"):
        return rng.uniform(0.5, 1.5, tensor.shape).astype(np.float32)
    if tensor.ndim == 1:
        return (tensor + rng.normal(0, 0.1, tensor.shape)).astype(np.float32)
    return tensor


def compare(model, options, adapter, folder):
    rng = np.random.default_rng(0)
    device = ["--adapter", adapter] if adapter else []
    file, weights = folder / f"{model}.onnx", folder / "weights.safetensors"
    wgrad("export", model, *options, "--batch", BATCH, "--output", file, *device)
    stored = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(file).graph.initializer}
    save_file({name: np.ascontiguousarray(drawn(name, tensor, rng)) for name, tensor in stored.items()}, weights)
    wgrad("export", model, *options, "--batch", BATCH, "--load", weights, "--output", file, *device)
    onnx.checker.check_model(file, full_check=True)
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    inputs = {}
    for port in session.get_inputs():
        below = 2 if port.name == "types" else 200
        numbers = rng.integers(0, below, port.shape) if "int" in port.type else rng.standard_normal(port.shape)
        inputs[port.name] = numbers.astype(np.int64 if "int" in port.type else np.float32)
    save_file(inputs, folder / "in.safetensors")
    files = ["--inputs", folder / "in.safetensors", "--outputs", folder / "out.safetensors", "--load", weights]
    wgrad("run", model, *options, *files, *device)
    own = load_file(folder / "out.safetensors")
    apart = size = 0.0
    for port, y in zip(session.get_outputs(), session.run(None, inputs)):
        if own[port.name].shape != y.shape:
            raise RuntimeError(f"output {port.name} has shape {y.shape}, not {own[port.name].shape}")
        apart, size = max(apart, float(np.abs(own[port.name] - y).max())), max(size, float(np.abs(y).max()))
    return apart, size


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--adapter")
    parser.add_argument("models", nargs="*", default=list(MODELS))
    arguments = parser.parse_args()
    failed = []
    for model in arguments.models:
        start = time.time()
        with tempfile.TemporaryDirectory() as folder:
            try:
                apart, size = compare(model, MODELS[model], arguments.adapter, pathlib.Path(folder))
                right = apart <= 1e-4 * max(size, 1.0)
                print(f"{model}: {apart:.1e} of {size:.2g}{'' if right else ' DIFFERS'} ({time.time() - start:.1f} s)", flush=True)
            except Exception as error:  # noqa: BLE001 every failure is a row
                right = False
                print(f"{model}: {str(error)[:400]}", flush=True)
        failed += [] if right else [model]
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
