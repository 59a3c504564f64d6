#!/usr/bin/env bash
# Trains the same networks from the same weights on the same batch with wgrad and other libraries, one after the other on
# the adapter that the environment leaves them, and prints what each step took, with ratios.
#
#   run.sh [--rounds N] [--steps N] [--build] [LIBRARY...]    libraries: wgrad meganeura burn (the first two)
#
# --build also builds each library in an empty folder and counts the CPU seconds: minutes each, for burn half an hour.
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
lines=$(mktemp)
trap 'rm -f "$lines"' EXIT
packages=(-p compare-shared)
for library in "${libraries[@]}"; do packages+=(-p "compare-$library"); done
cargo build --release "${packages[@]}"
if [ "$build" = yes ]; then
    for library in "${libraries[@]}"; do
        folder=$(mktemp -d)
        TIMEFORMAT="{\"built\":\"$library\",\"build_cpu_s\":%U}"
        { time cargo build --quiet --release -p "compare-$library" --target-dir "$folder" 2>/dev/null; } 2>>"$lines"
        rm -rf "$folder"
    done
fi
export MESA_SHADER_CACHE_DISABLE=true NODEVICE_SELECT=1
for _ in $(seq "$rounds"); do
    for model in mlp cnn; do
        for library in "${libraries[@]}"; do
            "../../target/compare/release/compare-$library" "$model" "$steps" 2>/dev/null >>"$lines"
        done
    done
done
../../target/compare/release/table "$lines"
