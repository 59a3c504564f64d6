#!/usr/bin/env bash
# Writes the tables and pictures of README.md and docs that plans and committed measurements decide; tests/pure/tables compares them. PyTorch's
# figures come from benches/results/pytorch_memory.json (benches/figures/pytorch_memory.py), times from
# benches/results/compare.md (benches/compare/run.sh).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
WGRAD_TABLES=write cargo test --release --no-default-features --test pure -- tables:: --test-threads 1 --include-ignored
# What the documents show of `wgrad plan`.
WGRAD_TABLES=write cargo test --release --features full --test cli documents_show_the_printed_plans
# Pictures. The trace is one of the public problems (WGRAD_PROBLEMS).
wgrad() { cargo run --quiet --release --features cli -- --quiet "$@" >/dev/null; }
wgrad plan resnet18 --batch 128 --optimizer momentum --limits nvidia --svg docs/resnet18.svg
trace=$(find "${WGRAD_PROBLEMS:-/nonexistent}" -name somas_resnet50.csv 2>/dev/null | head -n 1)
if [ -n "$trace" ]; then
    wgrad replay "$trace" --strategy offline-planner,two-ended,best-fit,first-fit,pytorch,buddy --svg docs/pools.svg
else
    echo "tables.sh: WGRAD_PROBLEMS names no folder with somas_resnet50.csv: docs/pools.svg stays as it is" >&2
fi
