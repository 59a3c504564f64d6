#!/usr/bin/env python3
"""Writes a small GPT-2 and what PyTorch's transformers compute with it. Run by hand, never by the tests:

    python3 -m venv venv && venv/bin/pip install torch==2.15.0 transformers==5.23.0 safetensors numpy
    venv/bin/python tests/golden/gpt2.py

gpt2_model.safetensors: a GPT2LMHeadModel of 2 layers, 2 heads, width 32, context 24 and 61 tokens, as its own
`save_pretrained` writes it. Every parameter is random, biases and norms too, and large enough for logits of several units.

gpt2.safetensors: computed with those weights in float64 and rounded once.
    ids, labels i32 [2,17]; logits [2,17,61]; loss [1], the mean cross-entropy of all logits with all labels
    grad/P            the gradient of the loss in parameter P, for the embeddings, the last norm and the first projection
    block/x [2,17,32], block/y: the first block and its result; block/dy: weights; block/dx and block/grad/P: gradients of
                      (y * dy).sum(), P below `transformer.h.0.`

    venv/bin/python tests/golden/gpt2.py --check FILE

loads FILE, such as a session saved it, into transformers and compares every parameter and the logits with these.
"""

import argparse
import shutil
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel

HERE = Path(__file__).resolve().parent
MODEL, VALUES = HERE / "gpt2_model.safetensors", HERE / "gpt2.safetensors"
CONFIG = {
    "vocab_size": 61,
    "n_positions": 24,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 2,
    "bos_token_id": None,
    "eos_token_id": None,
    "attn_implementation": "eager",
}
GRADIENTS = ["transformer.wte.weight", "transformer.wpe.weight", "transformer.ln_f.weight", "transformer.ln_f.bias"]


def random_model(generator):
    model = GPT2LMHeadModel(GPT2Config(**CONFIG)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            is_norm = ".ln_" in name and name.endswith("weight")
            parameter.copy_(1 + 0.3 * noise if is_norm else 0.25 * noise)
    return model


def block_values(model, generator):
    block = model.transformer.h[0]
    x = torch.randn((2, 17, 32), generator=generator).double().requires_grad_()
    # The whole model makes the mask that transformers' eager attention wants; a block alone is not causal.
    mask = torch.full((17, 17), torch.finfo(torch.float64).min, dtype=torch.float64).triu(1)[None, None]
    y = block(x, attention_mask=mask)
    y = y[0] if isinstance(y, tuple) else y
    dy = torch.rand(y.shape, generator=generator).double() * 1.5 + 0.25
    model.zero_grad()
    (y * dy).sum().backward()
    values = {"block/x": x.detach(), "block/y": y.detach(), "block/dy": dy, "block/dx": x.grad}
    return values | {f"block/grad/{name}": p.grad.clone() for name, p in block.named_parameters()}


def write():
    generator = torch.Generator().manual_seed(2019)
    model = random_model(generator)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        shutil.copy(Path(folder) / "model.safetensors", MODEL)
    model = model.double()
    ids = torch.randint(0, 61, (2, 17), generator=generator)
    labels = torch.randint(0, 61, (2, 17), generator=generator)
    logits = model(ids).logits
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
    model.zero_grad()
    loss.backward()
    values = {"ids": ids, "labels": labels, "logits": logits.detach(), "loss": loss.detach().view(1)}
    parameters = dict(model.named_parameters())
    values |= {f"grad/{name}": parameters[name].grad.clone() for name in GRADIENTS}
    first = "transformer.h.0.attn.c_attn.weight"
    values[f"grad/{first}"] = parameters[first].grad.clone()
    values |= block_values(model, generator)
    narrow = {k: v.to(torch.int32 if v.dtype == torch.int64 else torch.float32).contiguous() for k, v in values.items()}
    save_file(narrow, VALUES)
    print(f"{MODEL.name} {MODEL.stat().st_size} bytes, {VALUES.name} {VALUES.stat().st_size} bytes")
    print(f"loss {loss.item():.6f}, logits within {logits.abs().max().item():.2f}")


def check(file):
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(file, Path(folder) / "model.safetensors")
        GPT2Config(**CONFIG).save_pretrained(folder)
        model, info = GPT2LMHeadModel.from_pretrained(folder, output_loading_info=True)
    problems = {key: names for key, names in info.items() if names}
    assert not problems, problems
    for name, expected in load_file(MODEL).items():
        assert torch.equal(model.state_dict()[name], expected), name
    values = load_file(VALUES)
    with torch.no_grad():
        error = (model.eval()(values["ids"].long()).logits - values["logits"]).abs().max().item()
    print(f"transformers loads {file}: every parameter is the same, logits differ by {error:.1e}")
    assert error < 1e-4


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", metavar="FILE")
    arguments = parser.parse_args()
    check(arguments.check) if arguments.check else write()
