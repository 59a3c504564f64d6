#!/usr/bin/env python3
"""Writes small models of the Llama family and what PyTorch's transformers compute with them. Run by hand, never by the tests:

    python3 -m venv venv && venv/bin/pip install torch==2.15.0 transformers==5.24.0 safetensors numpy
    venv/bin/python tests/golden/llama.py

llama/NAME/: a model as its own `save_pretrained` writes it, config.json and model.safetensors, for llama (untied, frequencies
scaled as Llama 3's, in two files with an index), mistral (a window of 5 positions), qwen2 (biases of queries, keys and values,
tied), qwen3 (norms of queries and keys, heads wider than width / heads, tied; weights in bf16), gemma2 (capped scores and logits)
and gemma3 (frequencies by layer), both with a window of 5 positions in the first of two layers. Every parameter is random, biases
and norms too.

llama/NAME.safetensors: computed with those weights in float64 and rounded once.
    ids, labels i32 [2,17]; logits [2,17,53]; loss [1], the mean cross-entropy of all logits with all labels
    losses [6]: the loss before each of 5 steps of SGD with learning rate 0.1 and after them
    grad/P: the gradient of the loss in parameter P, for those of the first block and the last norm

    venv/bin/python tests/golden/llama.py --check NAME FILE

loads FILE, such as a session saved it, into the model of this name and compares every parameter and the logits with these.
"""

import argparse
import shutil
from pathlib import Path

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file

HERE = Path(__file__).resolve().parent / "llama"
SIZES = {
    "vocab_size": 53,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
    "attn_implementation": "eager",
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
MODELS = {
    "llama": transformers.LlamaConfig(**SIZES, rope_parameters=LLAMA3, tie_word_embeddings=False),
    "mistral": transformers.MistralConfig(**SIZES, sliding_window=5, tie_word_embeddings=False),
    "qwen2": transformers.Qwen2Config(**SIZES, tie_word_embeddings=True),
    "qwen3": transformers.Qwen3Config(**SIZES, head_dim=12, tie_word_embeddings=True),
    "gemma2": transformers.Gemma2Config(
        **SIZES, head_dim=12, sliding_window=5, query_pre_attn_scalar=9, attn_logit_softcapping=1.5, final_logit_softcapping=4.0
    ),
    "gemma3": transformers.Gemma3TextConfig(
        **SIZES,
        head_dim=12,
        sliding_window=5,
        query_pre_attn_scalar=9,
        layer_types=["sliding_attention", "full_attention"],
        rope_parameters={
            "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
    ),
}


def random_model(config, generator):
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    scale = 0 if config.model_type.startswith("gemma") else 1  # Gemma stores scales of norms less 1.
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            is_norm = "norm" in name and name.endswith("weight")
            parameter.copy_(scale + 0.3 * noise if is_norm else 0.25 * noise)
    return model


def loss_of(model, ids, labels):
    logits = model(ids).logits
    return logits, F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def losses_of(model, parameters, ids, labels):
    """The loss before each of 5 steps of SGD on the parameters, and after them."""
    losses, optimizer = [], torch.optim.SGD(parameters, lr=0.1)
    for _ in range(6):
        optimizer.zero_grad()
        _, loss = loss_of(model, ids, labels)
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
    return torch.tensor(losses, dtype=torch.float64)


def narrow(values):
    return {k: v.to(torch.int32 if v.dtype == torch.int64 else torch.float32).contiguous() for k, v in values.items()}


def write(name, config, generator):
    model = random_model(config, generator)
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    if name == "qwen3":
        model = model.to(torch.bfloat16)
    model.save_pretrained(folder, max_shard_size="40KB" if name == "llama" else "5GB")
    (folder / "generation_config.json").unlink(missing_ok=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float64)
    ids = torch.randint(0, 53, (2, 17), generator=generator)
    labels = torch.randint(0, 53, (2, 17), generator=generator)
    logits, loss = loss_of(model, ids, labels)
    loss.backward()
    values = {"ids": ids, "labels": labels, "logits": logits.detach(), "loss": loss.detach().view(1)}
    first = ("model.layers.0.", "model.norm.")
    values |= {f"grad/{n}": p.grad.clone() for n, p in model.named_parameters() if n.startswith(first)}
    values["losses"] = losses_of(model, model.parameters(), ids, labels)
    save_file(narrow(values), HERE / f"{name}.safetensors")
    print(name, values["losses"].tolist())


def check(name, file):
    ours, golden = load_file(file), load_file(HERE / f"{name}.safetensors")
    model = transformers.AutoModelForCausalLM.from_config(MODELS[name], attn_implementation="eager").eval()
    theirs = transformers.AutoModelForCausalLM.from_pretrained(HERE / name, dtype=torch.float32)
    missing, unexpected = model.load_state_dict(ours, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    for key, parameter in theirs.named_parameters():
        assert torch.equal(parameter, dict(model.named_parameters())[key]), key
    difference = (model(golden["ids"].long()).logits - golden["logits"]).abs().max().item()
    assert difference < 1e-4, difference
    print(f"{name}: every parameter is the same, logits differ by {difference:.2g}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", nargs=2, metavar=("NAME", "FILE"))
    arguments = parser.parse_args()
    if arguments.check:
        check(*arguments.check)
    else:
        generator = torch.Generator().manual_seed(2023)
        for name, config in MODELS.items():
            write(name, config, generator)
