#!/usr/bin/env bash
# Builds the Python package of `python/`, installs it in a virtual environment below the build folder, and runs its tests. Needs
# python3 with venv, and PyPI once, for maturin. WGRAD_PROGRAM names a program `wgrad` of the same sources, with which the tests
# compare results.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=scripts/common.sh
. "$here/common.sh"

cd "$here/.."
has_python || fail "python3 or its module venv is missing. On Debian or Ubuntu: apt-get install python3-venv"
find_cargo || fail "there is no cargo: https://rustup.rs installs it"
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")/python
venv=$target/venv
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
[ -x "$venv/bin/maturin" ] || "$venv/bin/python" -m pip install --quiet 'maturin>=1.7,<2'
rm -rf "$target/wheels"
CARGO_TARGET_DIR=$target "$venv/bin/maturin" build --release --quiet --locked --manifest-path python/Cargo.toml \
    --interpreter "$venv/bin/python" --out "$target/wheels"
"$venv/bin/python" -m pip install --quiet --no-index --no-deps --force-reinstall "$target"/wheels/*.whl
"$venv/bin/python" python/tests/test_wgrad.py "$@"
