"""Writes a Markdown table of the launches of eight training steps, from plans: no GPU is opened.

    cargo build --release --features cli
    python benches/launches/launches.py [--wgrad target/release/wgrad] [--card h200] [--limits nvidia]

Columns: dispatches of a step; modelled time; the share of it in launches that have fewer workgroups than the card has
units; launches with over 1 % of the step's arithmetic or bytes, and fewer than two workgroups per unit; bytes of the plan.
"""

import argparse
import datetime
import json
import subprocess
import sys

NETWORKS = [
    ("gpt2", "--batch 8 --seq 1024 --optimizer adamw"),
    ("gpt2-medium", "--batch 4 --seq 1024 --optimizer adamw"),
    ("llama-tiny", "--batch 32 --seq 256 --optimizer adamw"),
    ("bert-base", "--batch 32 --seq 128 --optimizer adamw"),
    ("resnet50", "--batch 64 --optimizer momentum"),
    ("vgg16", "--batch 64 --optimizer momentum"),
    ("mobilenet-v2", "--batch 64 --optimizer momentum"),
    ("unet", "--batch 8 --optimizer momentum"),
]
PRECISIONS = [("f32", ""), ("f16, loss scale", "--precision f16 --loss-scale")]


def plan(arguments, more):
    command = [arguments.wgrad, "--quiet", "plan", *more, "--limits", arguments.limits, "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(" ".join(command) + "\n" + done.stderr)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wgrad", default="target/release/wgrad")
    parser.add_argument("--card", default="h200")
    parser.add_argument("--limits", default="nvidia")
    arguments = parser.parse_args()
    print("`{}`, {}:\n".format(" ".join(["python", *sys.argv]), datetime.date.today()))
    print("| network | precision | dispatches | modelled, ms | below one wave | large and below two | planned, GB |")
    print("|---|---|---|---|---|---|---|")
    for network, settings in NETWORKS:
        for precision, more in PRECISIONS:
            options = [network, *settings.split(), *more.split()]
            listed = plan(arguments, [*options, "--launches", "--card", arguments.card])
            total = plan(arguments, options)["device_bytes"]["total"]
            launches, ms = listed["launches"], listed["modelled_ms"]
            sums = {key: sum(launch[key] for launch in launches) for key in ("flops", "bytes")}
            low = sum(launch["modelled_us"] for launch in launches if launch["waves"] < 1) / 1e3
            large = [launch for launch in launches if any(launch[key] > sums[key] / 100 for key in sums)]
            few = sum(launch["waves"] < 2 for launch in large)
            cells = [network, precision, "{:,}".format(listed["dispatches"]), "{:.1f}".format(ms)]
            cells += ["{:.1f} %".format(100 * low / ms), str(few), "{:.3f}".format(total / 1e9)]
            print("| " + " | ".join(cells) + " |", flush=True)


main()
