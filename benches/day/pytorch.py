#!/usr/bin/env python3
"""PyTorch on the rows of `rows.txt`, in one process; prints a line of JSON for each row as soon as it is done.

    python3 pytorch.py rows.txt gpu

Kernels are the functions that PyTorch's eager mode calls for the same operation, forward or backward, timed by events of the
device's clock around many calls (without CUDA, by the host's clock). Steps are the same work as `wgrad bench`: one synthetic
batch that stays on the device, forward, backward, update, and a wait at the end of the timed steps. f32 is strict (no TF32);
f16 is autocast with a GradScaler. Networks that are not written down here come from torchvision.
"""

import argparse
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
WARM_UP = 3


def parse(words):
    parser = argparse.ArgumentParser()
    parser.add_argument("what")
    parser.add_argument("--size")
    parser.add_argument("--dtype", default="f32")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--seq", type=int)
    parser.add_argument("--optimizer", default="adam")
    parser.add_argument("--precision", default="f32")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--loss-scale", action="store_true")
    args, _ = parser.parse_known_args(words)
    return args


def wait():
    if CUDA:
        torch.cuda.synchronize()


def seconds(call):
    """The best of five rounds, each of calls that take a tenth of a second and one wait."""

    def rounds(calls):
        wait()
        if CUDA:
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            for _ in range(calls):
                call()
            end.record()
            wait()
            return start.elapsed_time(end) / 1e3 / calls
        start = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - start) / calls

    rounds(2)
    calls = max(1, min(2000, int(0.1 / max(rounds(1), 1e-7))))
    return min(rounds(calls) for _ in range(5))


DEFAULTS = {
    "dispatch": "64",
    "elementwise": "67108864",
    "adamw": "67108864",
    "matmul": "4096",
    "conv": "64x64x64x56x3x1",
}


def kernel(args):
    """A function that computes the operation once, and the size in wgrad's numbers."""
    size = [int(n) for n in (args.size or DEFAULTS[args.what]).split("x")]
    dtype = DTYPES[args.dtype]
    new = lambda *shape: torch.rand(*shape, device=DEVICE, dtype=torch.float32).sub_(0.5).to(dtype)
    name, gradient = args.what, args.what.endswith("-grad")
    if name.startswith("matmul"):
        m, n, k = size if len(size) == 3 else size * 3
        size = [m, n, k]
        a = new(k, m).t() if name == "matmul-tn" else new(m, k)
        b = new(n, k).t() if name == "matmul-nt" else new(k, n)
        return lambda: a @ b, size
    if name.startswith(("conv", "depthwise")):
        if name.startswith("conv"):
            n, c, o, side, k, stride = size
            groups = 1
        else:
            n, c, side, k, stride = size
            o = groups = c
        x, w = new(n, c, side, side), new(o, c // groups, k, k)
        of = dict(stride=stride, padding=k // 2, groups=groups)
        if name in ("conv", "depthwise"):
            return lambda: F.conv2d(x, w, **of), size
        dy = torch.rand_like(F.conv2d(x, w, **of))
        wanted = [name.endswith("dx"), name.endswith("dw"), False]
        backward = torch.ops.aten.convolution_backward
        return lambda: backward(dy, x, w, None, [stride] * 2, [k // 2] * 2, [1, 1], False, [0, 0], groups, wanted), size
    if name.startswith("attention"):
        b, s, h, d = size
        q, k, v = (new(b, h, s, d).requires_grad_(gradient) for _ in range(3))
        call = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return (backward_of(call(), [q, k, v]) if gradient else call), size
    if name == "cross-entropy-grad" or name == "cross-entropy":
        x, labels = new(*size).requires_grad_(gradient), torch.randint(0, size[1], (size[0],), device=DEVICE)
        call = lambda: F.cross_entropy(x, labels)
        return (backward_of(call(), [x]) if gradient else call), size
    if name.startswith("softmax"):
        x = new(*size).requires_grad_(gradient)
        call = lambda: x.softmax(-1)
        return (backward_of(call(), [x]) if gradient else call), size
    if name.startswith("layer-norm"):
        x, w, b = (part.requires_grad_(gradient) for part in (new(*size), new(size[1]), new(size[1])))
        call = lambda: F.layer_norm(x, [size[1]], w, b, 1e-5)
        return (backward_of(call(), [x, w, b]) if gradient else call), size
    if name.startswith("batch-norm"):
        n, c, side = size
        x, w, b = (part.requires_grad_(gradient) for part in (new(n, c, side, side), new(c), new(c)))
        call = lambda: F.batch_norm(x, None, None, w, b, training=True)
        return (backward_of(call(), [x, w, b]) if gradient else call), size
    if name == "sum":
        x = new(*size)
        return lambda: x.sum(0), size
    if name in ("elementwise", "dispatch"):
        a, b = new(1, *size), new(1, *size)
        return lambda: torch.add(a, b), size
    if name == "adamw":
        w = new(*size).requires_grad_()
        w.grad = new(*size)
        return torch.optim.AdamW([w], fused=True).step, size
    raise ValueError(f"{name} is not written down for PyTorch")


def backward_of(y, operands):
    dy = torch.rand_like(y)
    return lambda: torch.autograd.grad(y, operands, dy, retain_graph=True)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(784, 512), nn.Linear(512, 512), nn.Linear(512, 10)

    def forward(self, x):
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.fc = nn.Linear(32 * 14 * 14, 10)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x.view(-1, 1, 28, 28)))))
        return self.fc(x.flatten(1))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, s, width = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, s, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, s, width))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    """GPT-2 small without dropout, the output layer tied to the table of tokens."""

    def __init__(self, width=768, heads=12, depth=12, vocabulary=50257, positions=1024):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        self.blocks, self.ln = nn.Sequential(*(Block(width, heads) for _ in range(depth))), nn.LayerNorm(width)
        for table in (self.wte, self.wpe):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        return F.linear(self.ln(self.blocks(x)), self.wte.weight).flatten(0, 1)


def network(args):
    """A network, its inputs and its labels."""
    if args.what == "gpt2":
        length = args.seq or 1024
        ids = torch.randint(0, 50257, (args.batch, length + 1), device=DEVICE)
        return Gpt2(positions=length), ids[:, :-1].contiguous(), ids[:, 1:].flatten()
    if args.what in ("mlp", "cnn"):
        x, y = torch.rand(args.batch, 784, device=DEVICE), torch.randint(0, 10, (args.batch,), device=DEVICE)
        return {"mlp": Mlp, "cnn": Cnn}[args.what](), x, y
    import torchvision

    name = {"mobilenet-v2": "mobilenet_v2"}.get(args.what, args.what)
    x, y = torch.rand(args.batch, 3, 224, 224, device=DEVICE), torch.randint(0, 1000, (args.batch,), device=DEVICE)
    return getattr(torchvision.models, name)(), x, y


def step(args):
    torch.manual_seed(0)
    start = time.perf_counter()
    model, x, y = network(args)
    model = model.to(DEVICE).train()
    optimizer = {
        "adam": lambda p: torch.optim.Adam(p),
        "adamw": lambda p: torch.optim.AdamW(p),
        "momentum": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
    }[args.optimizer](model.parameters())
    half = None if args.precision == "f32" else DTYPES[args.precision]
    scaler = torch.amp.GradScaler(DEVICE, enabled=args.loss_scale and CUDA)

    def one():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE, dtype=half or torch.bfloat16, enabled=half is not None):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    first = one().item()
    first_step_s = time.perf_counter() - start
    for _ in range(WARM_UP):
        one()
    wait()
    timed = time.perf_counter()
    for _ in range(args.steps):
        loss = one()
    wait()
    spent = time.perf_counter() - timed
    peak = torch.cuda.max_memory_allocated() if CUDA else None
    return {
        "model": args.what,
        "batch": args.batch,
        # wgrad says null for networks without tokens.
        "seq": (args.seq or 1024) if args.what == "gpt2" else None,
        "precision": args.precision,
        "ms_per_step": 1e3 * spent / args.steps,
        "first_step_s": first_step_s,
        "peak_bytes": peak,
        "loss_first": first,
        "loss_last": loss.item(),
    }


def main():
    rows, scale = sys.argv[1:]
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    about = {
        "library": f"PyTorch {torch.__version__}",
        "device": torch.cuda.get_device_name() if CUDA else "cpu",
    }
    seen = set()
    for line in open(rows):
        words = line.split()
        if words[:1] != [scale] or words[1] not in ("kernels", "steps"):
            continue
        args = parse(words[2:])
        # Options of wgrad alone make no other work.
        command = " ".join(f"{name} {value}" for name, value in vars(args).items() if value)
        if command in seen:
            continue
        seen.add(command)
        told = " ".join(words[2:])
        try:
            if words[1] == "steps":
                result = step(args)
                if CUDA:
                    torch.cuda.reset_peak_memory_stats()
            else:
                call, size = kernel(args)
                with torch.set_grad_enabled(args.what.endswith("-grad")):
                    result = {"kernel": args.what, "size": size, "dtype": args.dtype, "seconds": seconds(call)}
                del call
        except Exception as error:  # One row that fails, such as a package that is missing, is no end.
            result = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        print(json.dumps({"command": told, **result, **about}, separators=(",", ":")), flush=True)
        if CUDA:
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
