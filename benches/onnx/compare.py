#!/usr/bin/env python3
"""Compares `wgrad run` with onnxruntime on networks of other people, which are fetched and not committed.

    pip install onnx onnxruntime safetensors numpy
    pip install --no-deps rapidocr-onnxruntime magika silero-vad                 (for `packages`)
    pip install torch torchvision transformers onnxscript              (for `torchvision` and `transformers`)
    cargo build --release --features cli
    benches/onnx/compare.py [--adapter NAME] [--keep FOLDER] WHAT ...
    WHAT: packages, nodes, torchvision[:NAME,NAME], transformers[:NAME,NAME] or FILE.onnx

`packages`: the networks in those packages. `nodes`: the conformance tests of single operations that the package `onnx` has.
`torchvision`: every classification network with random weights, exported; each is planned, and those of at most 30 M
parameters make a step of gradient descent, whose losses before and after it are compared with PyTorch's. `transformers`:
small networks of the families of that package. Exports are kept in FOLDER, and used again, with --keep.
A line for each: the largest difference divided by the output's largest magnitude (of probabilities: the difference), or the first line of the error.
"""

import argparse
import collections
import contextlib
import importlib.util
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
import onnxruntime
from safetensors.numpy import load_file, save_file

onnxruntime.set_default_logger_severity(3)
ROOT = pathlib.Path(__file__).resolve().parents[2]
WGRAD = pathlib.Path(os.environ.get("WGRAD", ROOT / "target/release/wgrad"))
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
    """Returns the output, or raises with the first line of the error."""
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
        save_file({name: np.array(x, order="C") for name, x in inputs.items()}, folder / "in.safetensors")
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


def compare(path, adapter, inputs=None):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    inputs = inputs or random_inputs(session, OPEN.get(pathlib.Path(path).stem, {}))
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


@contextlib.contextmanager
def exported(keep, name, export):
    """The path of an export: in the folder of exports that are kept, or in one that is removed."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(keep or folder) / f"{name}.onnx"
        if not path.exists():
            export(path.with_suffix(".part"))
            path.with_suffix(".part").rename(path)
        yield path


# Rows of an image: 64, but for these.
SIDE = {"inception_v3": 96, "maxvit_t": 224, "vit_h_14": 70}
BATCH = 4


def classifier(name):
    import torch
    import torchvision as tv

    options = {}
    if name.startswith("vit"):
        options["image_size"] = SIDE.get(name, 64)
    if name in ("googlenet", "inception_v3"):
        options["init_weights"] = False
    torch.manual_seed(0)
    return tv.models.get_model(name, weights=None, **options).eval()


def train(net, path, x, adapter):
    """Returns the larger relative difference of the losses before and after a step from PyTorch's. Batch norm is in
    training mode, as it is in a step of wgrad; dropout and auxiliary outputs are not.

    The rate is such that the loss falls by about 1 %: a longer step of a network with random weights amplifies rounding. With
    a rate of 0.01, mnasnet0_5 of parameters that differ by 1e-6 of themselves has losses that differ by 0.06."""
    import torch

    for module in net.modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            module.train()
    labels = torch.randint(0, 1000, (BATCH,), generator=torch.Generator().manual_seed(1))
    wanted, lr = [], None
    for _ in range(2):
        loss = torch.nn.functional.cross_entropy(net(x), labels)
        wanted.append(loss.item())
        net.zero_grad()
        loss.backward()
        with torch.no_grad():
            trained = [parameter for parameter in net.parameters() if parameter.grad is not None]
            lr = lr or 0.01 * loss.item() / sum(float(parameter.grad.square().sum()) for parameter in trained)
            for parameter in trained:
                parameter -= lr * parameter.grad
    with tempfile.TemporaryDirectory() as folder:
        inputs, outputs = pathlib.Path(folder) / "in.safetensors", pathlib.Path(folder) / "out.safetensors"
        save_file({"x": x.numpy(), "labels": labels.numpy()}, inputs)
        options = ["--adapter", adapter] if adapter else []
        text = command("run", path, "--inputs", inputs, "--outputs", outputs, "--train", 2, "--lr", lr,
                       "--loss", "cross-entropy", *options)
    found = [float(loss) for loss in re.findall(r"^step \d+: loss (\S+)", text, re.MULTILINE)]
    print(f"  losses {found}, PyTorch's {wanted}")
    return max(abs(own - y) / max(1.0, abs(y)) for own, y in zip(found, wanted, strict=True))


def torchvision(adapter, names, keep):
    import torch
    import torchvision as tv

    results = []
    for name in names or tv.models.list_models(module=tv.models):

        def tried():
            net = classifier(name)
            side = SIDE.get(name, 64)
            x = torch.randn(BATCH, 3, side, side)
            parameters = sum(p.numel() for p in net.parameters())

            def export(path):
                torch.onnx.export(net, (x,), path, input_names=["x"], output_names=["y"], optimize=False,
                                  external_data=parameters > 400e6, verbose=False)

            with exported(keep, name, export) as path:
                start, before = time.time(), resource.getrusage(resource.RUSAGE_CHILDREN)
                command("plan", path)
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
                print(f"  {name}: {parameters / 1e6:.1f} M parameters, planned in {time.time() - start:.1f} s, of which a "
                      f"core was busy {busy:.1f} s", flush=True)
                return train(net, path, x, adapter) if parameters <= 30e6 else 0.0

        results.append(report(name, tried))
    return results


def small(name):
    """Returns a small network of a family, and its inputs."""
    import torch
    import transformers as tf

    torch.manual_seed(0)
    hidden = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    words = {"vocab_size": 100, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    tokens = {"input_ids": torch.randint(3, 100, (2, 12)), "attention_mask": torch.ones(2, 12, dtype=torch.long)}
    # The second sequence is shorter.
    tokens["attention_mask"][1, 9:] = 0
    answer = {"decoder_input_ids": torch.randint(3, 100, (2, 6))}
    positions = {"max_position_embeddings": 32}
    groups = {"num_key_value_heads": 2}

    def image(side):
        return {"pixel_values": torch.randn(2, 3, side, side)}

    makers = {
        "bert": lambda: (tf.BertModel(tf.BertConfig(**hidden, **words, **positions)), tokens),
        "distilbert": lambda: (tf.DistilBertModel(tf.DistilBertConfig(
            dim=64, n_layers=2, n_heads=4, hidden_dim=128, **words, **positions)), tokens),
        "roberta": lambda: (tf.RobertaModel(tf.RobertaConfig(**hidden, **words, **positions)), tokens),
        "gpt2": lambda: (tf.GPT2LMHeadModel(tf.GPT2Config(
            n_embd=64, n_layer=2, n_head=4, n_positions=32, **words)), tokens),
        "opt": lambda: (tf.OPTForCausalLM(tf.OPTConfig(
            hidden_size=64, num_hidden_layers=2, num_attention_heads=4, ffn_dim=128, word_embed_proj_dim=64,
            **words, **positions)), tokens),
        "llama": lambda: (tf.LlamaForCausalLM(tf.LlamaConfig(**hidden, **words, **positions, **groups)), tokens),
        "mistral": lambda: (tf.MistralForCausalLM(tf.MistralConfig(**hidden, **words, **positions, **groups)), tokens),
        "qwen2": lambda: (tf.Qwen2ForCausalLM(tf.Qwen2Config(**hidden, **words, **positions, **groups)), tokens),
        "t5": lambda: (tf.T5ForConditionalGeneration(tf.T5Config(
            d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, vocab_size=100)), tokens | answer),
        "vit": lambda: (tf.ViTModel(tf.ViTConfig(**hidden, image_size=32, patch_size=8)), image(32)),
        "swin": lambda: (tf.SwinModel(tf.SwinConfig(
            image_size=64, patch_size=4, embed_dim=32, depths=[2, 2], num_heads=[2, 4], window_size=4)), image(64)),
        "convnext": lambda: (tf.ConvNextModel(tf.ConvNextConfig(
            hidden_sizes=[16, 32, 64, 64], depths=[1, 1, 2, 1])), image(64)),
        "whisper": lambda: (tf.WhisperModel(tf.WhisperConfig(
            d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
            encoder_ffn_dim=128, decoder_ffn_dim=128, num_mel_bins=16, max_source_positions=32,
            max_target_positions=32, decoder_start_token_id=1, **words)),
            {"input_features": torch.randn(2, 16, 64)} | answer),
    }
    return makers[name]() if name else sorted(makers)


def transformers(adapter, names, keep):
    import torch

    class First(torch.nn.Module):
        """The first output, without a cache of keys and values."""

        def __init__(self, net, names):
            super().__init__()
            self.net, self.names = net, names

        def forward(self, *tensors):
            options = {"use_cache": False} if hasattr(self.net.config, "use_cache") else {}
            return self.net(**dict(zip(self.names, tensors)), **options, return_dict=True)[0]

    results = []
    for name in names or small(None):

        def tried():
            net, inputs = small(name)
            # PyTorch's exporter fails on fused attention of these.
            if name in ("t5", "swin"):
                net.set_attn_implementation("eager")

            def export(path):
                torch.onnx.export(First(net, list(inputs)).eval(), tuple(inputs.values()), path,
                                  input_names=list(inputs), output_names=["y"], optimize=False, external_data=False,
                                  verbose=False)

            with exported(keep, name, export) as path:
                return compare(path, adapter, {name: x.numpy() for name, x in inputs.items()})

        results.append(report(name, tried))
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--adapter")
    parser.add_argument("--keep", metavar="FOLDER")
    parser.add_argument("what", nargs="+")
    arguments = parser.parse_args()
    results = []
    for what in arguments.what:
        kind, _, names = what.partition(":")
        if kind in ("torchvision", "transformers"):
            names = [name for name in names.split(",") if name]
            networks = torchvision if kind == "torchvision" else transformers
            results += networks(arguments.adapter, names, arguments.keep)
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
