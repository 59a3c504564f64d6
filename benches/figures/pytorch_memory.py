#!/usr/bin/env python3
"""What PyTorch's eager mode holds at most in a training step, by its own tracker; prints JSON.

    pip install torch==2.15.0 torchvision==0.29.2 transformers==5.23.0
    python3 benches/figures/pytorch_memory.py > benches/results/pytorch_memory.json
    python3 benches/figures/pytorch_memory.py gpt2 bert-base     # some networks alone

Two steps of each network run under FakeTensorMode, so that no tensor has memory: it needs neither a GPU nor more than 1 GB, and
about a minute for a network. `torch.distributed._tools.mem_tracker.MemTracker` counts parameters, gradients, optimizer state,
activations, temporaries and the inputs: bytes of storages alive at once in the second step. What an allocator adds
(rounding, fragmentation, caches, workspaces of cuDNN) is not counted. Optimizers update one parameter after the other
(PyTorch's default on a CPU); its default on CUDA, `foreach`, needs more.

Networks and batches are those of the tables in README.md, docs/networks.md and docs/transformers.md, dropout as in the
papers. Transformers are counted twice:

- `materialised`: attention as in the paper, its scores and probabilities in memory (`attn_implementation="eager"`);
- `fused`: `scaled_dot_product_attention`, which keeps no scores. PyTorch's CPU kernel has no dropout, so attention's dropout is
  0; all other dropout stays. That the fused kernel ran is checked.
"""

import argparse
import json
import sys

import torch
import torch.nn.functional as F
import torchvision
import transformers
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.utils._python_dispatch import TorchDispatchMode

ATTENTION = {"materialised": "eager", "fused": "sdpa"}


class DoubleConv(nn.Sequential):
    def __init__(self, inputs, outputs):
        layers = []
        for channels in (inputs, outputs):
            layers += [nn.Conv2d(channels, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
        super().__init__(*layers)


class UNet(nn.Module):
    """U-Net with padded convolutions, batch norm and transposed convolutions; two classes for each pixel."""

    WIDTHS = [64, 128, 256, 512, 1024]

    def __init__(self):
        super().__init__()
        pairs = list(zip(self.WIDTHS, self.WIDTHS[1:]))
        self.first = DoubleConv(3, self.WIDTHS[0])
        self.down = nn.ModuleList([DoubleConv(above, below) for above, below in pairs])
        self.up = nn.ModuleList([nn.ConvTranspose2d(below, above, 2, stride=2) for above, below in reversed(pairs)])
        self.join = nn.ModuleList([DoubleConv(below, above) for above, below in reversed(pairs)])
        self.last = nn.Conv2d(self.WIDTHS[0], 2, 1)

    def forward(self, x):
        kept = [self.first(x)]
        for down in self.down:
            kept.append(down(F.max_pool2d(kept[-1], 2)))
        y = kept.pop()
        for up, join in zip(self.up, self.join):
            y = join(torch.cat([kept.pop(), up(y)], dim=1))
        return self.last(y)


class LabelWords(nn.Module):
    """BERT that says one token for a sequence, from its pooled first token, by the embedding table."""

    def __init__(self, config):
        super().__init__()
        self.bert = transformers.BertModel(config)

    def forward(self, ids, types):
        pooled = self.bert(ids, token_type_ids=types).pooler_output
        return pooled @ self.bert.embeddings.word_embeddings.weight.T


def mlp(_):
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


def cnn(_):
    first, second = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 32, 3, stride=2, padding=1)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Flatten(), nn.Linear(32 * 14 * 14, 10))


def gpt(**sizes):
    def make(attention):
        config = transformers.GPT2Config(use_cache=False, **sizes)
        if attention == "fused":
            config.attn_pdrop = 0.0
        config._attn_implementation = ATTENTION[attention]
        return transformers.GPT2LMHeadModel(config)

    return make


def llama_tiny(attention):
    sizes = {"vocab_size": 32000, "hidden_size": 288, "intermediate_size": 768, "num_hidden_layers": 6}
    heads = {"num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": 256}
    config = transformers.LlamaConfig(**sizes, **heads, tie_word_embeddings=True, use_cache=False)
    config._attn_implementation = ATTENTION[attention]
    return transformers.LlamaForCausalLM(config)


def bert_base(attention):
    config = transformers.BertConfig()
    if attention == "fused":
        config.attention_probs_dropout_prob = 0.0
    config._attn_implementation = ATTENTION[attention]
    return LabelWords(config)


def images(channels, rows, columns, labels=()):
    def batch(size):
        return (torch.empty(size, channels, rows, columns),), torch.zeros(size, *labels, dtype=torch.long)

    return batch


def vectors(size):
    return (torch.empty(size, 784),), torch.zeros(size, dtype=torch.long)


def next_tokens(seq):
    def batch(size):
        return (torch.zeros(size, seq, dtype=torch.long),), torch.zeros(size, seq, dtype=torch.long)

    return batch


def label_words(seq):
    def batch(size):
        ids, types = (torch.zeros(size, seq, dtype=torch.long) for _ in range(2))
        return (ids, types), torch.zeros(size, dtype=torch.long)

    return batch


def by_name(make):
    return lambda _: make()


NANO = {"vocab_size": 256, "n_positions": 256, "n_layer": 5, "n_head": 4, "n_embd": 128}
NO_DROPOUT = {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
MEDIUM = {"n_layer": 24, "n_head": 16, "n_embd": 1024}
PHOTO = images(3, 224, 224)
VISION = torchvision.models

# Network, what makes it, what makes a batch, samples, tokens, optimizer.
NETWORKS = [
    ("mlp", mlp, vectors, 128, None, "adam"),
    ("cnn", cnn, images(1, 28, 28), 128, None, "adam"),
    ("resnet18", by_name(VISION.resnet18), PHOTO, 128, None, "momentum"),
    ("resnet50", by_name(VISION.resnet50), PHOTO, 184, None, "momentum"),
    ("vgg16", by_name(VISION.vgg16), PHOTO, 176, None, "momentum"),
    ("mobilenet-v2", by_name(VISION.mobilenet_v2), PHOTO, 272, None, "momentum"),
    ("densenet121", by_name(VISION.densenet121), PHOTO, 84, None, "momentum"),
    ("unet", by_name(UNet), images(3, 416, 608, labels=(416, 608)), 11, None, "momentum"),
    ("gpt-nano", gpt(**NANO, **NO_DROPOUT), next_tokens(256), 32, 256, "adamw"),
    ("gpt2", gpt(), next_tokens(1024), 8, 1024, "adamw"),
    ("gpt2-medium", gpt(**MEDIUM), next_tokens(1024), 4, 1024, "adamw"),
    ("llama-tiny", llama_tiny, next_tokens(256), 32, 256, "adamw"),
    ("bert-base", bert_base, label_words(512), 32, 512, "adamw"),
]
OPTIMIZERS = {
    "adam": lambda parameters: torch.optim.Adam(parameters),
    "adamw": lambda parameters: torch.optim.AdamW(parameters),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
}


class FusedAttention(TorchDispatchMode):
    """Counts the calls of fused attention kernels."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.calls += "scaled_dot_product" in str(function) and "flash_attention" in str(function)
        return function(*args, **(kwargs or {}))


def measure(job, attention):
    name, make, batch, size, seq, optimizer_name = job
    with FakeTensorMode():
        model = make(attention).train()
        optimizer = OPTIMIZERS[optimizer_name](model.parameters())
        inputs, labels = batch(size)
        tracker, fused = MemTracker(), FusedAttention()
        tracker.track_external(model, optimizer, *inputs, labels)
        with tracker, fused:
            for first in (True, False):
                result = model(*inputs)
                logits = result.logits if hasattr(result, "logits") else result
                # One row of logits for each label; pixels' classes are PyTorch's second dimension.
                rows = logits if logits.dim() == 4 else logits.flatten(0, -2)
                loss = F.cross_entropy(rows, labels if logits.dim() == 4 else labels.flatten())
                del result, logits, rows
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                del loss
                if first:
                    tracker.reset_mod_stats()
        if (fused.calls > 0) != (attention == "fused"):
            sys.exit(f"{name}, attention {attention}: the fused kernel was called {fused.calls} times")
        [peak] = tracker.get_tracker_snapshot("peak").values()
        classes = {str(key).rsplit(".", 1)[-1].lower(): value for key, value in peak.items()}
        return {
            "network": name,
            "batch": size,
            "seq": seq,
            "optimizer": optimizer_name,
            "attention": attention,
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "input_bytes": sum(tensor.nbytes for tensor in (*inputs, labels)),
            "peak_bytes": classes.pop("total"),
            "classes": {key: value for key, value in classes.items() if value},
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", help="which; all by default")
    names = parser.parse_args().networks
    unknown = set(names) - {job[0] for job in NETWORKS}
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(job[0] for job in NETWORKS)}")
    rows = []
    for job in NETWORKS:
        if names and job[0] not in names:
            continue
        for attention in [None] if job[4] is None else ["materialised", "fused"]:
            print("+", job[0], attention or "", file=sys.stderr, flush=True)
            rows.append(measure(job, attention))
    versions = {"torch": torch.__version__, "torchvision": torchvision.__version__, "transformers": transformers.__version__}
    result = {"command": "python3 benches/figures/pytorch_memory.py", **versions, "networks": rows}
    json.dump(result, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
