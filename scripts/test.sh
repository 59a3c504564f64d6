#!/usr/bin/env bash
# Sets up, then runs every check: formatting, lints, documentation, and all tests on every adapter of this machine.
# On Linux that means lavapipe always and SwiftShader where it can be had: one run of the tests sees them all, because
# the Vulkan loader is handed every driver, and each test loops over the adapters.
#
# WGRAD_REQUIRE_ADAPTERS (comma-separated parts of names) says which adapters must be there; the tests fail when one is
# missing, so that a broken driver cannot pass as a skip. Set it before calling to ask for others.
#
# WGRAD_CHECKED=1 compiles every kernel with bounds checks and loop limits, in all tests. Without it those of kernels and
# gradients run both ways.
#
# Runs of several processes are tested where Open MPI and libclang are or can be installed; with WGRAD_REQUIRE_MPI=1 they must be.
#
# Everything with all features is built once, as in a release but with checks of overflow and assertions in wgrad itself, and
# without link-time optimization, which takes longer than it saves. The library is compiled in few units, between which nothing is
# inlined, and with optimizations: at opt-level 1 its tests take three times as long. Programs and tests are compiled without
# optimizations and linted meanwhile (rustc_linted.sh). Lints and documentation share the build's macros and build scripts. Examples and
# benchmarks, which no test runs, are linted and not linked. The library without the feature `gpu` is linted too.
#
# Pages are opened by Chromium or Chrome, which setup.sh installs where it can; WGRAD_BROWSER names another. Its compiler of
# WGSL, Tint, reads every kernel, and spirv-val all SPIR-V; with WGRAD_REQUIRE_SPIRV_VAL=1 the latter must be there.
#
# The page for browsers is built where there is a compiler for them, and opened by the tests; WGRAD_WEB names it to them.
#
# The Python package is built and tested where python3 can make virtual environments.
#
# Arguments go to the test programs: scripts/test.sh --test-threads 1
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=scripts/common.sh
. "$here/common.sh"

logs=$(mktemp -d) log=$logs/tests
# Bash starts what runs beside with interrupts ignored, so it is ended here.
trap 'for job in $(jobs -p); do pkill -P "$job" || true; done; rm -rf "$logs"' EXIT
summary=() failed=0
checked=profile.release.package.wgrad
# These programs of tests, which take about half of the time, run beside the others: alone, each program ends on one core.
longest=(kernels train)
# Crates of which tests use little: without optimizations they take a minute less to build.
rarely_run=(
    aho-corasick ash chrono clap_builder criterion fancy-regex insta minijinja minijinja-contrib num-bigint parquet
    regex-automata regex-syntax similar tokenizers
)

# start NAME COMMAND...: runs beside what comes next, which leaves a core idle at times. `finish NAME` waits for it and shows what
# it said.
declare -A started=()
start() {
    local name=$1
    shift
    "$@" >"$logs/$name" 2>&1 &
    started[$name]=$!
}
finish() {
    local verdict=0
    wait "${started[$1]}" || verdict=$?
    cat "$logs/$1"
    grep 'SKIPPED: ' "$logs/$1" >>"$log" || true
    return "$verdict"
}

# stage NAME COMMAND...: later stages run even if this one fails, so that one run shows all there is to mend.
stage() {
    local name=$1 start=$SECONDS verdict=ok
    shift
    say "== $name: $*"
    if ! "$@"; then
        verdict=FAILED
        failed=1
    fi
    summary+=("$(printf '%-10s %-6s %5d s' "$name" "$verdict" $((SECONDS - start)))")
}

# programs_except NAME...: the other programs of tests, as cargo's arguments. `adapters` has the tests of kernels, session and
# train in one, for scripts/gpu_day.sh.
programs_except() {
    local path name
    for path in tests/*.rs tests/*/main.rs; do
        name=${path#tests/} name=${name%/main.rs} name=${name%.rs}
        case " $* " in
            *" $name "*) ;;
            *) printf '%s\n' --test "$name" ;;
        esac
    done
}

# shellcheck disable=SC2329 # called through stage
run_tests() {
    local others verdict=0
    mapfile -t others < <(programs_except "${longest[@]}" adapters)
    start longest cargo test "${tested[@]}" "${longest[@]/#/--test=}" --no-fail-fast -- "$@"
    cargo test "${tested[@]}" --lib --bins "${others[@]}" --no-fail-fast -- "$@" 2>&1 | tee -a "$log" || verdict=1
    finish longest || verdict=1
    cat "$logs/longest" >>"$log"
    return "$verdict"
}

# shellcheck disable=SC2329
test_python() {
    if ! has_python; then
        say "SKIPPED: the Python package: python3 with venv is missing (apt-get install python3-venv)"
        return
    fi
    cargo fmt --check --manifest-path python/Cargo.toml || return
    local -x CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off
    WGRAD_PROGRAM=$(realpath -m "${CARGO_TARGET_DIR:-target}")/release/wgrad "$here/python.sh"
}

# shellcheck disable=SC2329
build_page() {
    if ! has_wasm_compiler; then
        say "SKIPPED: the page for browsers: there is no compiler for them (scripts/setup.sh --web)"
        return
    fi
    cargo fmt --check --manifest-path web/Cargo.toml || return
    "$here/web.sh" --out "$site"
}

# The features with which docs.rs makes its pages, by Cargo.toml.
docs_rs_features() { sed -n '/^\[package.metadata.docs.rs\]/,/^$/s/^features = \[\(.*\)\]/\1/p' Cargo.toml | tr -d '" '; }

# shellcheck disable=SC2329
make_documents() {
    local -x RUSTDOCFLAGS="-D warnings"
    cargo doc "$@" --no-deps
}

# rustdoc's list of public items: functions, types, traits, constants and macros.
# shellcheck disable=SC2329
few_public_items() {
    local most=450 count
    count=$(grep -o '<li><a href="' "${CARGO_TARGET_DIR:-target}/doc/wgrad/all.html" | wc -l)
    say "$count public items, $most are allowed"
    [ "$count" -gt 0 ] && [ "$count" -le "$most" ]
}

has_components() { cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1; }
can_lint() { find_cargo && has_components && command -v cc >/dev/null 2>&1; }

# The library without the feature `gpu`, and the pages as docs.rs shows them: they need cargo and a linker, and no packages.
check_without_packages() {
    stage fmt cargo fmt --check
    stage no-gpu cargo clippy "${profile[@]}" --no-default-features --lib --tests -- -D warnings
    stage docs.rs make_documents "${profile[@]}" --features "$(docs_rs_features)"
    stage items few_public_items
}

cd "$here/.."
profile=(--release --config 'profile.release.lto="off"')
profile+=(--config "$checked.overflow-checks=true" --config "$checked.debug-assertions=true")
profile+=(--config "$checked.opt-level=2" --config "$checked.codegen-units=4")
for crate in "${rarely_run[@]}"; do profile+=(--config "profile.release.package.$crate.opt-level=0"); done

set_up=("$here/setup.sh" --software --swiftshader --browser --mpi --spirv --web)
if can_lint; then
    # What needs no packages runs while the set-up waits for downloads.
    start setup "${set_up[@]}"
    check_without_packages
    start=$SECONDS
    finish setup
else
    start=$SECONDS
    "${set_up[@]}"
    find_cargo
    if ! has_components && command -v rustup >/dev/null 2>&1; then
        say "adding rustfmt and clippy through rustup"
        rustup component add rustfmt clippy
    fi
    has_components ||
        fail "cargo fmt or cargo clippy is missing. This command would help: rustup component add rustfmt clippy"
fi
summary+=("$(printf '%-10s %-6s %5d s' setup ok $((SECONDS - start)))")
[ -n "${started[setup]:-}" ] || check_without_packages

built=("${profile[@]}" --features "$(features)")
tested=("${built[@]}" --config "build.rustc-workspace-wrapper=\"$here/rustc_linted.sh\"")
quiet_mesa
if has_mpi; then export WGRAD_REQUIRE_MPI=1; fi

if uses_vulkan; then
    required=llvmpipe
    if swiftshader_icd >/dev/null; then required=llvmpipe,SwiftShader; fi
    # Both spellings: loaders before 1.3.207 know only the second.
    VK_DRIVER_FILES=$(all_icds | paste -sd : -)
    export VK_DRIVER_FILES VK_ICD_FILENAMES="$VK_DRIVER_FILES"
    export WGRAD_REQUIRE_ADAPTERS="${WGRAD_REQUIRE_ADAPTERS:-$required}"
    say "drivers: $VK_DRIVER_FILES"
    say "adapters that must be there: $WGRAD_REQUIRE_ADAPTERS"
fi

# Named, it must be there: the tests of pages cannot pass as a skip.
if WGRAD_BROWSER=$(find_browser); then
    export WGRAD_BROWSER
    say "browser for the tests of pages: $WGRAD_BROWSER"
fi

if command -v spirv-val >/dev/null 2>&1; then export WGRAD_REQUIRE_SPIRV_VAL=1; fi

site=$(realpath -m "${CARGO_TARGET_DIR:-target}")/web/site
if has_wasm_compiler; then export WGRAD_WEB=$site; fi
start web build_page
stage clippy cargo clippy "${built[@]}" --lib --examples --benches --test adapters -- -D warnings
stage doc make_documents "${built[@]}"
stage build cargo test "${tested[@]}" --lib --bins --tests --no-run
stage doctests cargo test "${tested[@]}" --doc
stage web finish web
start python test_python
stage test run_tests "$@"
stage python finish python

printf '\n%s\n' 'stage      result   wall'
printf '%s\n' "${summary[@]}"
printf '\n'
# What tests left out here, each once; some programs say it while the harness has a line half written.
grep -o 'SKIPPED: .*' "$log" | sort -u || true
printf '\n'
# Last, cargo's own lines, one for each test program.
grep '^test result:' "$log" || echo 'no test ran'
exit "$failed"
