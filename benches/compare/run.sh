#!/usr/bin/env bash
# Trains the same networks from the same weights on the same batch with wgrad and other libraries, one after the other on
# the adapter that the environment leaves them, and prints what each step took, with ratios.
#
#   run.sh [--rounds N] [--steps N] [--build] [LIBRARY...]    libraries: wgrad meganeura burn (the first two)
#
# --build builds each library in an empty folder and counts the CPU seconds: minutes each, for burn half an hour.
# Which adapter: VK_DRIVER_FILES names one driver. Nothing is cached by Mesa, so the first step is that of a new machine;
# burn's own tuning cache is left as it is.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
rounds=3 steps=20 build=no libraries=()
while [ $# -gt 0 ]; do
    case "$1" in
        --rounds) rounds=$2 && shift ;;
        --steps) steps=$2 && shift ;;
        --build) build=yes ;;
        wgrad | meganeura | burn) libraries+=("$1") ;;
        *) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' run.sh && exit 1 ;;
    esac
    shift
done
[ ${#libraries[@]} -gt 0 ] || libraries=(wgrad meganeura)
lines=$(mktemp) folders=$(mktemp -d)
trap 'rm -rf "$lines" "$folders"' EXIT
cargo build --release -p compare-shared

# A command, silent unless it fails.
quietly() {
    "$@" 2>"$folders/log" || { cat "$folders/log" >&2 && return 1; }
}

declare -A program
for library in "${libraries[@]}"; do
    if [ "$build" = yes ]; then
        into=(--release --target-dir "$folders/$library")
        # What all programs have in common, wgrad's half without a GPU in it, is not the library's.
        quietly cargo build "${into[@]}" -p compare-shared
        TIMEFORMAT="{\"built\":\"$library\",\"build_cpu_s\":%U}"
        { time quietly cargo build "${into[@]}" -p "compare-$library"; } 2>>"$lines"
        program[$library]=$folders/$library/release/compare-$library
    else
        cargo build --release -p "compare-$library"
        program[$library]=../../target/compare/release/compare-$library
    fi
done
export MESA_SHADER_CACHE_DISABLE=true NODEVICE_SELECT=1
for _ in $(seq "$rounds"); do
    for model in mlp cnn; do
        for library in "${libraries[@]}"; do
            quietly "${program[$library]}" "$model" "$steps" >>"$lines"
        done
    done
done
../../target/compare/release/table "$lines"
