#!/usr/bin/env python3
"""One training step of a network by PyTorch's eager mode, timed; prints a line of JSON. figures.py calls it.

    python3 pytorch_step.py resnet50 --batch 64
    python3 pytorch_step.py gpt2 --batch 8 --seq 1024 --dtype f16

The same work as `wgrad bench`: one synthetic batch that stays on the device, forward, backward, update, and the loss read
after every step. resnet50 with SGD of momentum 0.9, gpt2 with AdamW and without dropout. f32 is strict (no TF32); f16 and
bf16 are autocast, f16 with a GradScaler. torchvision has resnet50, transformers have gpt2.
"""

import argparse
import json
import resource
import time

import torch
import torch.nn.functional as F

WARM_UP = 3


def resnet50(args):
    import torchvision

    model = torchvision.models.resnet50()
    x, y = torch.rand(args.batch, 3, 224, 224), torch.randint(0, 1000, (args.batch,))
    return model, (x, y), lambda m, x, y: F.cross_entropy(m(x), y), momentum


def gpt2(args):
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False, attn_implementation=args.attention
    )
    ids = torch.randint(0, config.vocab_size, (args.batch, args.seq + 1))
    loss = lambda m, x, y: F.cross_entropy(m(x).logits.flatten(0, 1), y.flatten())
    return GPT2LMHeadModel(config), (ids[:, :-1].contiguous(), ids[:, 1:].contiguous()), loss, adamw


def momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=["resnet50", "gpt2"])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seq", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--dtype", choices=["f32", "f16", "bf16"], default="f32")
    parser.add_argument("--attention", choices=["sdpa", "eager"], default="sdpa")
    args = parser.parse_args()
    start = time.perf_counter()
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, batch, loss_of, optimizer = {"resnet50": resnet50, "gpt2": gpt2}[args.model](args)
    model, batch = model.to(device).train(), [part.to(device) for part in batch]
    optimizer = optimizer(model.parameters())
    half = {"f32": None, "f16": torch.float16, "bf16": torch.bfloat16}[args.dtype]
    scaler = torch.amp.GradScaler(device, enabled=half is torch.float16)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, dtype=half or torch.bfloat16, enabled=half is not None):
            loss = loss_of(model, *batch)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.item()

    losses = [step()]
    first = time.perf_counter() - start
    losses += [step() for _ in range(WARM_UP)]
    timed = time.perf_counter()
    losses += [step() for _ in range(args.steps)]
    spent = time.perf_counter() - timed
    if device == "cuda":
        peak, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
        adapter = torch.cuda.get_device_name()
    else:
        peak = reserved = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        adapter = "cpu (bytes are the process's)"
    outcome = {
        "library": f"PyTorch {torch.__version__}",
        "adapter": adapter,
        "model": args.model,
        "dtype": args.dtype,
        "ms_per_step": 1e3 * spent / args.steps,
        "first_step_s": first,
        "peak_bytes": peak,
        "reserved_bytes": reserved,
        "loss_first": losses[0],
        "loss_last": losses[-1],
    }
    print(json.dumps(outcome))


if __name__ == "__main__":
    main()
