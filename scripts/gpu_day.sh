#!/usr/bin/env bash
# Builds a bundle for a first day on a GPU: one archive that runs on a machine with a driver but neither cargo nor network.
# docs/gpu-day.md says how to run it and what it answers.
#
#   scripts/gpu_day.sh [ARCHIVE]        by default gpu-day.tar.gz
#
# In the archive: the program `wgrad`, every test that needs an adapter as one program, both stripped; the files that these
# tests read; run.sh with its rows; a Vulkan loader, for machines that have a driver and no loader. They need the glibc of
# this machine or a later one. WGRAD_BUILD replaces the options of cargo build.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=scripts/common.sh
. "$here/common.sh"
MOST=$((60 * 1000 * 1000))

case "${1:-}" in
    -*)
        sed -n '2,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
        exit 2
        ;;
esac
archive=$(realpath -m "${1:-gpu-day.tar.gz}")
find_cargo || fail "cargo is missing: scripts/setup.sh says how to get it"
cd "$here/.."
read -ra build <<<"${WGRAD_BUILD:---release --features full}"

# built KIND NAME ARGUMENTS...: the path of what cargo builds, from its messages.
built() {
    local kind=$1 name=$2 path
    shift 2
    path=$(cargo "$@" "${build[@]}" --message-format json-render-diagnostics |
        grep -F "\"kind\":[\"$kind\"]" | grep -F "\"name\":\"$name\"" |
        sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1) || true
    [ -n "$path" ] || fail "cargo $* built no program $name"
    printf '%s\n' "$path"
}

program=$(built bin wgrad build --bin wgrad)
tests=$(built test adapters test --test adapters --no-run)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bundle=$work/gpu-day
mkdir -p "$bundle/fixtures/tests" "$bundle/lib"
cp "$program" "$bundle/wgrad"
cp "$tests" "$bundle/adapter_tests"
strip "$bundle/wgrad" "$bundle/adapter_tests"
cp -r tests/golden "$bundle/fixtures/tests/"
rm -f "$bundle"/fixtures/tests/golden/*.py
cp benches/day/run.sh benches/day/rows.txt benches/day/pytorch.py docs/gpu-day.md LICENSE-MIT LICENSE-APACHE "$bundle/"
git describe --always --dirty >"$bundle/commit" 2>/dev/null || echo unknown >"$bundle/commit"
# A here-string: awk ends before ldconfig does, which pipefail would report.
loader=$(awk '/libvulkan\.so\.1 / { print $NF; exit }' <<<"$(ldconfig -p 2>/dev/null || /sbin/ldconfig -p)")
if [ -n "$loader" ]; then
    cp -L "$loader" "$bundle/lib/libvulkan.so.1"
else
    say "no Vulkan loader here: machines without one cannot run the bundle"
fi

tar -C "$work" -czf "$archive" gpu-day
size=$(wc -c <"$archive")
if [ "$size" -gt "$MOST" ]; then
    fail "$archive has $size bytes, more than $MOST: is a program not stripped?"
fi
say "$archive: $((size / 1000)) kB. There: tar xzf ${archive##*/} && gpu-day/run.sh all"
