#!/usr/bin/env bash
# Trains the same networks from the same weights on the same batch with wgrad and other libraries, one after the other on
# the adapter that the environment leaves them, and prints what each step took, with ratios.
#
#   run.sh [--rounds N] [--steps N] [--build] [--lines FILE] [LIBRARY...]
#
# Libraries: wgrad, pytorch, meganeura, burn; by default wgrad and pytorch. In each round they take turns; the table has medians of
# the rounds, with the least and the most. pytorch is its eager mode on the CPU: `PYTHON` names a Python with torch.
# --lines keeps what each run printed; `table FILE...` makes the table of such files again. Committed lines are in
# benches/results/compare, the table of all of them in benches/results/compare.md; tests/tables compares the two.
# --build builds each library in an empty folder and counts the CPU seconds: minutes each, for burn half an hour.
# Which adapter: VK_DRIVER_FILES names one driver. CARGO_TARGET_DIR says where to build. Nothing is cached by Mesa, so the first
# step is that of a new machine; burn's own tuning cache is left as it is.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
command="benches/compare/run.sh $*"
rounds=5 steps=20 build=no kept= libraries=()
while [ $# -gt 0 ]; do
    case "$1" in
        --rounds) rounds=$2 && shift ;;
        --steps) steps=$2 && shift ;;
        --build) build=yes ;;
        --lines) kept=$2 && shift ;;
        wgrad | pytorch | meganeura | burn) libraries+=("$1") ;;
        *) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' run.sh && exit 1 ;;
    esac
    shift
done
[ ${#libraries[@]} -gt 0 ] || libraries=(wgrad pytorch)
lines=$(mktemp) folders=$(mktemp -d)
trap 'rm -rf "$lines" "$folders"' EXIT
[ -z "$kept" ] || kept=$(cd "$OLDPWD" && realpath -m "$kept")
built=${CARGO_TARGET_DIR:-../../target/compare}/release
cargo build --release -p compare-shared
commit=$(git rev-parse --short HEAD)
[ -z "$(git status --porcelain -- ../../src ../../shaders)" ] || commit="$commit, changed"
printf '{"commit":"%s","command":"%s","date":"%s","load":"%s"}\n' \
    "$commit" "$command" "$(date -I)" "$(cut -d ' ' -f 1 /proc/loadavg)" >>"$lines"

# A command, silent unless it fails.
quietly() {
    "$@" 2>"$folders/log" || { cat "$folders/log" >&2 && return 1; }
}

declare -A program
for library in "${libraries[@]}"; do
    if [ "$library" = pytorch ]; then
        "${PYTHON:-python3}" -c 'import torch' || { echo "pytorch: PYTHON names a Python with torch" >&2 && exit 1; }
    elif [ "$build" = yes ]; then
        into=(--release --target-dir "$folders/$library")
        # What all programs have in common, wgrad's half without a GPU in it, is not the library's.
        quietly cargo build "${into[@]}" -p compare-shared
        TIMEFORMAT="{\"built\":\"$library\",\"build_cpu_s\":%U}"
        { time quietly cargo build "${into[@]}" -p "compare-$library"; } 2>>"$lines"
        program[$library]=$folders/$library/release/compare-$library
    else
        cargo build --release -p "compare-$library"
        program[$library]=$built/compare-$library
    fi
done
export MESA_SHADER_CACHE_DISABLE=true NODEVICE_SELECT=1
for _ in $(seq "$rounds"); do
    for model in mlp cnn; do
        for library in "${libraries[@]}"; do
            if [ "$library" = pytorch ]; then
                "$built/work" "$model" >"$folders/work"
                quietly "${PYTHON:-python3}" pytorch/step.py "$model" "$steps" <"$folders/work" >>"$lines"
            else
                quietly "${program[$library]}" "$model" "$steps" >>"$lines"
            fi
        done
    done
done
[ -z "$kept" ] || cp "$lines" "$kept"
"$built/table" "$lines"
