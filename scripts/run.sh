#!/usr/bin/env bash
# Trains a small network on the handwritten digits, after making sure that there is an adapter for it.
# Arguments go to the example: scripts/run.sh --help
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=scripts/common.sh
. "$here/common.sh"

"$here/setup.sh"
find_cargo
cd "$here/.."
quiet_mesa
exec cargo run --release --example digits -- "$@"
