#!/usr/bin/env bash
# Writes the tables of README.md and docs that plans and committed measurements decide; tests/pure/tables compares them. PyTorch's
# figures come from benches/results/pytorch_memory.json (benches/figures/pytorch_memory.py), times from
# benches/results/compare.md (benches/compare/run.sh).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
WGRAD_TABLES=write cargo test --release --no-default-features --test pure -- tables:: --test-threads 1
# What the documents show of `wgrad plan`.
WGRAD_TABLES=write cargo test --release --all-features --test cli documents_show_the_printed_plans
