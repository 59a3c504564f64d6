#!/usr/bin/env python3
"""Compares `wgrad run` with onnxruntime on networks of other people, which are fetched and not committed.

    pip install onnx onnxruntime safetensors numpy
    pip install --no-deps rapidocr-onnxruntime magika silero-vad                 (for `packages`)
    pip install torch torchvision onnxscript                                     (for `torchvision`)
    cargo build --release --features cli
    benches/onnx/compare.py [--adapter NAME] packages|nodes|torchvision[:NAME,NAME]|FILE.onnx ...

`packages`: the networks in those packages. `nodes`: the conformance tests of single operations that the package `onnx` has.
`torchvision`: every classification network, exported; each is planned, those of at most 30 M parameters run at 64 × 64.
A line for each: the largest difference divided by the output's largest magnitude (of probabilities: the difference), or the first line of the error.
"""

import argparse
import collections
import importlib.util
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
# Dimensions that the files leave open, by input.
OPEN = {
    "ch_ppocr_mobile_v2.0_cls_infer": {"x": (2, 3, 48, 192)},
    "ch_PP-OCRv4_rec_infer": {"x": (1, 3, 48, 320)},
    "ch_PP-OCRv4_det_infer": {"x": (1, 3, 96, 128)},
    "model": {"bytes": (2, 2048)},
    "silero_vad_16k_op15": {"input": (1, 576), "state": (2, 1, 128)},
}
# Integers of an input are below this; 2 otherwise.
BELOW = {"bytes": 256}


def package(name):
    spec = importlib.util.find_spec(name)
    if spec is None:
        sys.exit(f"{name} is not installed: see the top of {__file__}")
    return pathlib.Path(spec.submodule_search_locations[0])


def command(*arguments):
    """Returns the last line of the output, or raises with the first line of the error."""
    done = subprocess.run([WGRAD, *map(str, arguments)], capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no message"])[0])
    return done.stdout


def differs(path, inputs, wanted, adapter):
    """Returns the largest difference of the outputs, each divided by its largest magnitude; probabilities are not divided,
    since onnxruntime's sigmoid is exact to 1e-7 of 1 only."""
    makers = {name: node.op_type for node in onnx.load(path).graph.node for name in node.output}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        save_file({name: np.ascontiguousarray(x) for name, x in inputs.items()}, folder / "in.safetensors")
        options = ["--adapter", adapter] if adapter else []
        command("run", path, "--inputs", folder / "in.safetensors", "--outputs", folder / "out.safetensors", *options)
        found = load_file(folder / "out.safetensors")
    worst = 0.0
    for name, y in wanted.items():
        y, own = np.asarray(y, np.float64), found[name].astype(np.float64)
        if own.shape != y.shape:
            raise RuntimeError(f"output {name} has shape {own.shape}, not {y.shape}")
        equal = (own == y) | (np.isnan(own) & np.isnan(y))
        apart = np.where(equal, 0, np.abs(own - y))
        finite = np.abs(y[np.isfinite(y)])
        if y.size:
            scale = float(finite.max()) if finite.size else 0.0
            scale = 1.0 if makers.get(name) in ("Sigmoid", "Softmax") else scale
            worst = max(worst, float(np.max(apart)) / (scale or 1.0))
    return worst


def random_inputs(session, shapes):
    rng = np.random.default_rng(0)
    inputs = {}
    for port in session.get_inputs():
        dims = shapes.get(port.name) or tuple(d if isinstance(d, int) else 1 for d in port.shape)
        integer = "int" in port.type or "bool" in port.type
        kind = {"tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(bool)": bool}.get(port.type, np.float32)
        inputs[port.name] = (rng.integers(0, BELOW.get(port.name, 2), dims) if integer else rng.standard_normal(dims)).astype(kind)
    return inputs


def compare(path, adapter):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    inputs = random_inputs(session, OPEN.get(pathlib.Path(path).stem, {}))
    names = [port.name for port in session.get_outputs()]
    return differs(path, inputs, dict(zip(names, session.run(None, inputs))), adapter)


def report(name, compute, limit=1e-4):
    """Prints a line; returns whether it is right, and the reason."""
    start = time.time()
    try:
        worst = compute()
    except Exception as error:  # noqa: BLE001 every failure is a row
        print(f"{name}: {str(error)[:300]}", flush=True)
        return False, str(error)
    right = worst <= limit
    print(f"{name}: {worst:.1e}{'' if right else ' DIFFERS'} ({time.time() - start:.1f} s)", flush=True)
    return right, "" if right else "differs"


def packages(adapter):
    files = [*package("rapidocr_onnxruntime").glob("models/*.onnx"), *package("magika").glob("models/*/model.onnx")]
    files += package("silero_vad").glob("data/silero_vad_16k_op15.onnx")
    return [report(path.name, lambda path=path: compare(path, adapter)) for path in sorted(files)]


def nodes(adapter):
    from onnx.backend.test.case.node import collect_testcases

    known = (np.float32, np.float64, np.int64, np.int32, np.uint8, bool)
    results = []
    for case in collect_testcases(None):
        graph = case.model.graph
        inputs, wanted = case.data_sets[0]
        # Sequences, strings, complex numbers and types of 4 and 8 bits are not read.
        if not all(isinstance(x, np.ndarray) and x.dtype in known for x in (*inputs, *wanted)):
            continue
        inputs = {port.name: x for port, x in zip(graph.input, inputs)}
        wanted = {port.name: y for port, y in zip(graph.output, wanted) if port.name}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / f"{case.name}.onnx"
            onnx.save(case.model, path)
            results.append(report(case.name, lambda: differs(path, inputs, wanted, adapter), 1e-3))
    return results


def torchvision(adapter, names):
    import torch
    import torchvision as tv

    results = []
    for name in names or tv.models.list_models(module=tv.models):
        net = tv.models.get_model(name, weights=None).eval()
        size = {"inception_v3": 96}.get(name, 64)
        if name.startswith(("vit", "maxvit", "swin")):
            size = 224
        parameters = sum(p.numel() for p in net.parameters())
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / f"{name}.onnx"

            def planned():
                x = torch.randn(2, 3, size, size)
                torch.onnx.export(net, (x,), path, input_names=["x"], output_names=["y"], optimize=False,
                                  external_data=False, verbose=False)
                start = time.time()
                command("plan", path)
                seconds = time.time() - start
                worst = compare(path, adapter) if parameters <= 30e6 and size <= 96 else 0.0
                print(f"  {name}: planned in {seconds:.1f} s, {parameters / 1e6:.1f} M parameters")
                return worst

            results.append(report(name, planned))
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--adapter")
    parser.add_argument("what", nargs="+")
    arguments = parser.parse_args()
    results = []
    for what in arguments.what:
        kind, _, names = what.partition(":")
        if kind == "torchvision":
            results += torchvision(arguments.adapter, [name for name in names.split(",") if name])
        elif what in ("packages", "nodes"):
            results += (packages if what == "packages" else nodes)(arguments.adapter)
        else:
            results.append(report(what, lambda what=what: compare(what, arguments.adapter)))
    right = sum(ok for ok, _ in results)
    print(f"{right} of {len(results)} agree")
    reasons = collections.Counter(reason[:90] for ok, reason in results if not ok)
    for reason, count in reasons.most_common(20):
        print(f"  {count} × {reason}")
    sys.exit(right != len(results))


if __name__ == "__main__":
    main()
