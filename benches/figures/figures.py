#!/usr/bin/env python3
"""What wgrad reaches on one adapter, kernel by kernel and step by step, as a page of tables, beside what was aimed at.

    cargo build --release --features cli
    python3 benches/figures/figures.py [--wgrad target/release/wgrad] [--adapter NAME] > benches/results/NAME.md

On a GPU the sizes are large, the aims are those for an NVIDIA H200, and PyTorch takes the same steps on the same card where
this Python has it: about five minutes. On a software adapter figures are those of a second of CPU time, which other work on
the machine hardly changes: a minute or two. Aims for those are for lavapipe of Mesa 22.3. What fails stands in the tables with its reason, and the exit status is 1 then.
"""

import argparse
import datetime
import json
import shlex
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

# Kernel, size, format with further options, and the least that is asked of it: operations, bytes, or a share of the adapter's own copies.
GPU_KERNELS = [
    ("matmul", "4096", "f32", ("gflops", 28e3)),
    ("matmul", "4096", "f16", ("gflops", 120e3)),
    ("matmul", "4096", "f16 --cooperative always", ("gflops", 120e3)),
    ("matmul", "4096", "f16 --cooperative always --variant cooperative_wide", None),
    ("matmul", "4096", "f16 --cooperative off", None),
    ("matmul", "4096", "bf16", None),
    ("matmul", "1024", "f32", None),
    ("matmul", "8192x768x3072", "f32", None),
    ("matmul", "8192x768x3072", "f16", None),
    ("conv", "64x64x64x56x3x1", "f32", None),
    ("conv", "64x256x64x56x1x1", "f32", None),
    ("conv", "64x256x256x14x3x1", "f32", None),
    ("conv", "64x256x256x14x3x1", "f32 --variant tiled64", None),
    ("conv", "64x256x256x14x3x1", "f16", None),
    ("conv", "64x256x256x14x3x1", "f16 --cooperative off", None),
    ("elementwise", "67108864", "f32", ("share", 0.85)),
    ("softmax", "32768x1024", "f32", ("share", 0.85)),
    ("softmax", "8192x50257", "f32", ("share", 0.85)),
    ("layer-norm", "32768x1024", "f32", ("share", 0.85)),
    ("layer-norm", "65536x768", "f32", ("share", 0.85)),
    ("attention", "8x2048x12x64", "f32", None),
    ("adamw", "67108864", "f32", ("share", 0.85)),
]
CPU_KERNELS = [
    ("matmul", "1024", "f32", ("gflops", 10)),
    ("matmul", "1024", "f16", None),
    ("matmul", "1024", "bf16", None),
    ("conv", "8x64x64x28x3x1", "f32", None),
    ("conv", "8x64x64x28x1x1", "f32", None),
    ("elementwise", "4194304", "f32", ("gbps", 4)),
    ("softmax", "1024x1024", "f32", None),
    ("layer-norm", "1024x1024", "f32", None),
    ("attention", "1x1024x4x64", "f32", None),
    ("adamw", "4194304", "f32", ("gbps", 4.5)),
]

# Network, arguments of both programs, arguments of wgrad alone, formats, and the most milliseconds asked.
GPU_STEPS = [
    ("resnet50", ["--batch", "64"], ["--optimizer", "momentum"], ["f32", "f16"], None),
    ("gpt2", ["--batch", "8", "--seq", "1024"], ["--optimizer", "adamw"], ["f32", "f16"], None),
]
CPU_STEPS = [
    ("mlp", ["--batch", "128"], [], ["f32", "f16"], 30),
    ("cnn", ["--batch", "128"], [], ["f32", "f16"], 110),
]


class Runner:
    """Runs programs that print a line of JSON, and remembers whether all did."""

    def __init__(self):
        self.failed = False

    def run(self, command):
        print("+", shlex.join(command), file=sys.stderr, flush=True)
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=900)
        except (OSError, subprocess.TimeoutExpired) as error:
            self.failed = True
            return {"error": str(error)}
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode == 0 and lines:
            return json.loads(lines[-1])
        self.failed = True
        return {"error": (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[0]}


def table(header, rows):
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def kernel_row(runner, bench, software, job):
    kernel, size, dtype, asked = job
    out = runner.run([*bench(kernel), "--size", size, "--dtype", *dtype.split()])
    if "error" in out:
        return [kernel, size, dtype, out["error"], *["–"] * 6]
    suffix = "_per_cpu_s" if software else ""
    reached = {
        "gflops": out["gflops" + suffix],
        "gbps": out["gbps" + suffix],
        "share": out["gbps"] / out["copy_gbps"],
    }
    aim = "–"
    if asked:
        what, least = asked
        verdict = "reached" if reached[what] >= least else f"{reached[what] / least:.2f} × of it"
        aim = {"gflops": f"{least:g} GFLOP", "gbps": f"{least:g} GB", "share": f"{least:.0%} of a copy"}[what]
        aim = f"{aim}: {verdict}"
    error = "not checked" if out["max_error"] is None else f"{out['max_error']:.1e}"
    ms, share = f"{1e3 * out['seconds']:.3f}", f"{reached['share']:.0%}"
    figures = [f"{reached['gflops']:.4g}", f"{reached['gbps']:.3g}"]
    return [kernel, size, dtype, out["variant"], ms, *figures, share, error, aim]


def step_rows(runner, bench, software, job):
    model, common, own, formats, most = job
    work = " ".join([model, *common])
    for dtype in formats:
        scale = ["--loss-scale"] if dtype == "f16" and not software else []
        ours = runner.run([*bench(model), *common, *own, "--precision", dtype, *scale])
        theirs = None
        if not software and has_pytorch():
            program = str(HERE / "pytorch_step.py")
            theirs = runner.run([sys.executable, program, model, *common, "--dtype", dtype])
        both = theirs is not None and "error" not in theirs and "error" not in ours
        for out in filter(None, (ours, theirs)):
            name = out.get("library", "wgrad" if out is ours else "PyTorch")
            if "error" in out:
                yield [work, dtype, name, out["error"], *["–"] * 6]
                continue
            ms, peak = out["ms_per_step"], out.get("peak_bytes", out.get("device_bytes"))
            times = f" (× {ms / theirs['ms_per_step']:.2f})" if both and out is ours else ""
            share = f" (× {peak / theirs['peak_bytes']:.3f})" if both and out is ours else ""
            cpu = out.get("cpu_ms_per_step")
            aim = "–"
            if most and out is ours:
                aim = f"{most} ms: {'reached' if ms <= most else f'{ms / most:.2f} × of it'}"
            yield [
                work,
                dtype,
                name,
                f"{ms:.1f}{times}",
                "–" if cpu is None else f"{cpu:.1f}",
                f"{peak / 1e6:.1f}{share}",
                f"{out['first_step_s']:.2f}",
                f"{out['loss_first']:.4f}",
                f"{out['loss_last']:.4f}",
                aim,
            ]


def has_pytorch():
    return subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode == 0


def adapter_of(wgrad, name):
    """The adapter that wgrad takes, as `wgrad adapters` describes it."""
    try:
        listed = subprocess.run([wgrad, "adapters", "--json"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"{wgrad}: {error}. This command makes it: cargo build --release --features cli")
    usable = [adapter for adapter in json.loads(listed.stdout) if adapter["usable"]]
    chosen = [adapter for adapter in usable if name.lower() in adapter["name"].lower()]
    if not chosen:
        sys.exit(f"no adapter here has `{name}` in its name: {', '.join(a['name'] for a in usable) or 'there is none'}")
    return chosen[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wgrad", default=str(HERE.parents[1] / "target/release/wgrad"), help="the program")
    parser.add_argument("--adapter", default="", help="part of an adapter's name; by default the best")
    args = parser.parse_args()
    adapter = adapter_of(args.wgrad, args.adapter)
    software = adapter["kind"] == "software"
    runner = Runner()
    aimed = not software or "llvmpipe" in adapter["name"]

    def bench(what):
        chosen = ["--adapter", args.adapter] if args.adapter else []
        return [args.wgrad, "bench", what, "--json", *chosen]

    command = "python3 benches/figures/figures.py" + (f" --adapter {shlex.quote(args.adapter)}" if args.adapter else "")
    print(f"# {adapter['name']}\n")
    print(f"Driver {adapter['driver']}. {datetime.date.today()}. `{command}`\n")
    unit = "in a second of CPU time" if software else "a second"
    print(f"## Kernels\n\n`wgrad bench KERNEL --size SIZE --dtype FORMAT`. Operations and bytes are those {unit}; the share is that of")
    print("the adapter's own copies, by the clock; the error is the largest, as a part of the largest element, against f64.\n")
    header = ["kernel", "size", "format", "variant", "ms", "GFLOP", "GB", "share", "error", "asked"]
    kernels = CPU_KERNELS if software else GPU_KERNELS
    table(header, [kernel_row(runner, bench, software, (*job, aim if aimed else None)) for *job, aim in kernels])
    print("## Training steps\n\n`wgrad bench NETWORK`: one synthetic batch, forward, backward, update, the loss read after each step. Bytes are all")
    print("that wgrad created on the device.", end="")
    if not software:
        print(" For PyTorch's eager mode they are the most of tensors alive (`max_memory_allocated`);")
        print("its f32 is strict (no TF32), its f16 is autocast with a GradScaler, as wgrad's has a loss scale.", end="")
    print("\n")
    header = ["work", "format", "library", "ms", "CPU ms", "MB", "s to the first loss", "first loss", "last loss", "asked"]
    steps = CPU_STEPS if software else GPU_STEPS
    jobs = [(*job, most if aimed else None) for *job, most in steps]
    table(header, [row for job in jobs for row in step_rows(runner, bench, software, job)])
    sys.exit(1 if runner.failed else 0)


if __name__ == "__main__":
    main()
