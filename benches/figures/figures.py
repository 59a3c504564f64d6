#!/usr/bin/env python3
"""What wgrad reaches on one adapter, kernel by kernel and step by step, as a page of tables, beside what was aimed at.

    cargo build --release --features cli
    python3 benches/figures/figures.py [--runs 5] [--wgrad target/release/wgrad] [--adapter NAME] > benches/results/NAME.md

Every job runs once in each of `--runs` rounds; figures are medians, with the least and the most, and aims are compared with medians.
On a GPU the sizes are large, the aims are those for an NVIDIA H200, and PyTorch takes the same steps on the same card where
this Python has it: a round takes about five minutes. On a software adapter figures are those of a second of CPU time: a minute
a round. Aims for those are for lavapipe of Mesa 22.3. What fails stands in the tables with its reason, and the exit status is 1
then.
"""

import argparse
import datetime
import functools
import json
import os
import shlex
import statistics
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


class Spread:
    """A number of several runs: the median, with the least and the most."""

    def __init__(self, runs, of):
        self.values = sorted(of(out) for out in runs)
        self.median = statistics.median(self.values)

    def text(self, form):
        if len(self.values) == 1:
            return format(self.median, form)
        least, most = self.values[0], self.values[-1]
        return f"{self.median:{form}} ({least:{form}} to {most:{form}})"


def error_of(runs):
    return next((out["error"] for out in runs if "error" in out), None)


def kernel_row(software, job, runs):
    kernel, size, dtype, asked = job
    if error := error_of(runs):
        return [kernel, size, dtype, error, *["–"] * 6]
    suffix = "_per_cpu_s" if software else ""
    reached = {
        "gflops": Spread(runs, lambda out: out["gflops" + suffix]),
        "gbps": Spread(runs, lambda out: out["gbps" + suffix]),
        "share": Spread(runs, lambda out: out["gbps"] / out["copy_gbps"]),
    }
    aim = "–"
    if asked:
        what, least = asked
        median = reached[what].median
        verdict = "reached" if median >= least else f"{median / least:.2f} × of it"
        aim = {"gflops": f"{least:g} GFLOP", "gbps": f"{least:g} GB", "share": f"{least:.0%} of a copy"}[what]
        aim = f"{aim}: {verdict}"
    worst = [out["max_error"] for out in runs]
    error = "not checked" if None in worst else f"{max(worst):.1e}"
    ms = Spread(runs, lambda out: 1e3 * out["seconds"]).text(".3g")
    figures = [reached["gflops"].text(".3g"), reached["gbps"].text(".3g"), f"{reached['share'].median:.0%}"]
    return [kernel, size, dtype, runs[0]["variant"], ms, *figures, error, aim]


def step_jobs(software, job):
    """Programs that take one network's step: format, whether it is wgrad's, and its arguments."""
    model, common, own, formats, _ = job
    for dtype in formats:
        scale = ["--loss-scale"] if dtype == "f16" and not software else []
        yield dtype, True, [model, *common, *own, "--precision", dtype, *scale]
        if not software and has_pytorch():
            yield dtype, False, [model, *common, "--dtype", dtype]


def step_rows(software, job, results):
    model, common, _, _, most = job
    work = " ".join([model, *common])
    for (dtype, own, _), runs in zip(step_jobs(software, job), results):
        name = "wgrad" if own else runs[0].get("library", "PyTorch")
        if error := error_of(runs):
            yield [work, dtype, name, error, *["–"] * 6]
            continue
        ms = Spread(runs, lambda out: out["ms_per_step"])
        cpu = "–" if runs[0].get("cpu_ms_per_step") is None else Spread(runs, lambda out: out["cpu_ms_per_step"]).text(".1f")
        peak = runs[0].get("peak_bytes", runs[0].get("device_bytes"))
        aim = "–"
        if most and own:
            aim = f"{most} ms: {'reached' if ms.median <= most else f'{ms.median / most:.2f} × of it'}"
        first = Spread(runs, lambda out: out["first_step_s"]).text(".2f")
        losses = [f"{runs[0]['loss_first']:.4f}", f"{runs[0]['loss_last']:.4f}"]
        yield [work, dtype, name, ms.text(".1f"), cpu, f"{peak / 1e6:.1f}", first, *losses, aim]


@functools.cache
def has_pytorch():
    return subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode == 0


def commit():
    """Of this checkout; the program may be older."""
    told = subprocess.run(["git", "-C", str(HERE), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return told.stdout.strip() or "unknown"


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
    parser.add_argument("--runs", type=int, default=5, help="rounds")
    parser.add_argument("--adapter", default="", help="part of an adapter's name; by default the best")
    args = parser.parse_args()
    adapter = adapter_of(args.wgrad, args.adapter)
    software = adapter["kind"] == "software"
    runner = Runner()
    aimed = not software or "llvmpipe" in adapter["name"]

    def bench(what):
        chosen = ["--adapter", args.adapter] if args.adapter else []
        return [args.wgrad, "bench", what, "--json", *chosen]

    kernels = [(*job, aim if aimed else None) for *job, aim in (CPU_KERNELS if software else GPU_KERNELS)]
    steps = [(*job, most if aimed else None) for *job, most in (CPU_STEPS if software else GPU_STEPS)]
    kernel_runs = [[] for _ in kernels]
    step_runs = [[[] for _ in step_jobs(software, job)] for job in steps]
    for _ in range(args.runs):
        for (kernel, size, dtype, _), runs in zip(kernels, kernel_runs):
            runs.append(runner.run([*bench(kernel), "--size", size, "--dtype", *dtype.split()]))
        for job, of_job in zip(steps, step_runs):
            for (_, own, arguments), runs in zip(step_jobs(software, job), of_job):
                program = bench(arguments[0]) + arguments[1:] if own else [sys.executable, str(HERE / "pytorch_step.py"), *arguments]
                runs.append(runner.run(program))

    command = f"python3 benches/figures/figures.py --runs {args.runs}" + (f" --adapter {shlex.quote(args.adapter)}" if args.adapter else "")
    load = f"{os.getloadavg()[2]:.0f}" if hasattr(os, "getloadavg") else "unknown"
    print(f"# {adapter['name']}\n")
    print(f"Driver {adapter['driver']}. {datetime.date.today()}, commit {commit()}. `{command}`")
    print(f"\nn = {args.runs} rounds; medians, in brackets the least and the most. Cores: {os.cpu_count()}; load of the machine at the end: {load}.\n")
    unit = "in a second of CPU time" if software else "a second"
    print(f"## Kernels\n\n`wgrad bench KERNEL --size SIZE --dtype FORMAT`. Operations and bytes are those {unit}; the share is that of")
    print("the adapter's own copies, by the clock; the error is the largest, as a part of the largest element, against f64.\n")
    header = ["kernel", "size", "format", "variant", "ms", "GFLOP", "GB", "share", "error", "asked"]
    table(header, [kernel_row(software, job, runs) for job, runs in zip(kernels, kernel_runs)])
    print("## Training steps\n\n`wgrad bench NETWORK`: one synthetic batch, forward, backward, update, the loss read after each step. Bytes are all")
    print("that wgrad created on the device.", end="")
    if not software:
        print(" For PyTorch's eager mode they are the most of tensors alive (`max_memory_allocated`);")
        print("its f32 is strict (no TF32), its f16 is autocast with a GradScaler, as wgrad's has a loss scale.", end="")
    print("\n")
    header = ["work", "format", "library", "ms", "CPU ms", "MB", "s to the first loss", "first loss", "last loss", "asked"]
    table(header, [row for job, of_job in zip(steps, step_runs) for row in step_rows(software, job, of_job)])
    sys.exit(1 if runner.failed else 0)


if __name__ == "__main__":
    main()
