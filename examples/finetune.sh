#!/usr/bin/env bash
# Fine-tunes a language model on another text: trains a small GPT on this crate's source files, writes it as a folder of Hugging
# Face, trains a low-rank adapter over it in 4 bits on the documents in docs/, within a budget, and lets both write.
#
# With a model that was downloaded, only the second part is needed: docs/fine-tuning.md.
#
# usage: examples/finetune.sh [FOLDER] [STEPS]: what is made goes to FOLDER (finetune-example); the GPT trains STEPS (600) steps.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=scripts/common.sh
. "$here/scripts/common.sh"
find_cargo
quiet_mesa
folder=$(realpath -m "${1:-finetune-example}") steps=${2:-600}
mkdir -p "$folder"
cd "$here"
cargo build --release --features cli --bin wgrad --example char_gpt
programs=$(realpath -m "${CARGO_TARGET_DIR:-target}")/release

say "== a model of this crate's source files, $steps steps"
"$programs/examples/char_gpt" --steps "$steps" --context 128 --folder "$folder/model"

say "== an adapter for its documents"
# The model knows the characters of the source files, and those are ASCII.
LC_ALL=C grep -hv '[^ -~]' docs/*.md >"$folder/documents.txt"
"$programs/wgrad" finetune "$folder/model" --data "$folder/documents.txt" --out "$folder/adapter" \
    --lora r=16,alpha=32 --frozen-weights nf4 --lr 0.003 --batch 8 --budget 16MB --prompt "The plan "

say "== the model, and the model with its adapter"
"$programs/wgrad" generate "$folder/model" --weights nf4 --prompt "The plan "
"$programs/wgrad" generate "$folder/model" --weights nf4 --adapters "$folder/adapter" --prompt "The plan "
