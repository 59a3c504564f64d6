#!/usr/bin/env bash
# Mutation tests of the half without a GPU: cargo-mutants changes one expression or function at a time and runs the tests that
# need no device. What survives is a line that no test pins.
#
#   scripts/mutants/pure.sh [CARGO-MUTANTS ARGUMENTS]      all of PURE below: hours
#   scripts/mutants/pure.sh --shard 0/40                   every 40th mutant
#   scripts/mutants/pure.sh -f 'src/compile/recompute/**'     some files
#
# Needs cargo-mutants: cargo install cargo-mutants --locked. Reports lie in MUTANTS_OUT (target/mutants) in mutants.out:
# caught.txt, missed.txt, timeout.txt, unviable.txt. Results are kept in benches/results/mutants.md.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=scripts/common.sh
. "$here/../common.sh"
find_cargo
cd "$here/../.."
command -v cargo-mutants >/dev/null 2>&1 || fail "cargo-mutants is missing: cargo install cargo-mutants --locked"

# Rooms that are complete without a device; what is not here is run by planted faults.
PURE=('src/memory/planner/**' 'src/compile/**' 'src/optim/**' 'src/graph/cost.rs' 'src/autodiff/**' 'src/units.rs'
    'src/shape.rs')
files=()
case " $* " in
    *" -f "* | *" --file "*) ;;
    *) for pattern in "${PURE[@]}"; do files+=(-f "$pattern"); done ;;
esac
out=${MUTANTS_OUT:-target/mutants}
mkdir -p "$out"
# Tests are built with little optimization, because each mutant is compiled anew. The program is named for the build as well:
# others need a device and do not compile without one.
arguments=(--cargo-arg=--no-default-features --cargo-arg=--lib --cargo-arg=--test=pure)
exec cargo mutants --no-shuffle --output "$out" --profile mutants --minimum-test-timeout 120 "${arguments[@]}" \
    "${files[@]}" "$@"
