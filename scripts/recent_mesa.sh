#!/usr/bin/env bash
# Runs a program on the newest Mesa, Debian sid's, and leaves the system's as it is. Its software adapter lists cooperative
# matrices of 8x8x8, so that the kernels which use them can be run and tested without a GPU.
#
#   scripts/recent_mesa.sh                                                        builds it and says where it is
#   scripts/recent_mesa.sh cargo test --release --features full --test kernels cooperative
#   scripts/recent_mesa.sh target/release/wgrad bench matmul --dtype f16
#
# What cargo starts and programs named by a path run with the libraries of that system, under its own dynamic loader; nothing
# is mounted. A program that starts others by itself is none of this script's business.
#
# It lies in the folder WGRAD_RECENT_MESA, by default ~/.cache/wgrad-recent-mesa: about 600 MB, built in a minute or two by
# debootstrap, which needs root (for building alone). What is there is used again; remove the folder for a newer Mesa.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=scripts/common.sh
. "$here/common.sh"

case "${1:-}" in
    -h | --help)
        sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
        exit 0
        ;;
esac

place=${WGRAD_RECENT_MESA:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/wgrad-recent-mesa}

# Written last: a folder without it is half built.
icd=$place/recent_lvp_icd.json

install_debootstrap() {
    command -v debootstrap >/dev/null 2>&1 && return 0
    command -v apt-get >/dev/null 2>&1 ||
        fail "debootstrap is missing, and there is no apt-get to install it with; please install debootstrap by hand"
    say "installing debootstrap through apt-get"
    DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends \
        debootstrap debian-archive-keyring >/dev/null ||
        fail "the installation failed. This command would help: apt-get update && apt-get install -y debootstrap"
}

build() {
    local driver log mirror
    [ "$(uname -s)" = Linux ] || fail "this builds a Linux system, and here is $(uname -s)"
    [ "$(id -u)" = 0 ] ||
        fail "building needs root. This command would help: sudo WGRAD_RECENT_MESA='$place' $here/recent_mesa.sh"
    install_debootstrap
    say "building Debian sid with Mesa in $place: a minute or two, about 600 MB"
    rm -rf "$place"
    mkdir -p "$place"
    log=$(mktemp)
    # Where this system takes Debian's packages from; debootstrap's own choice on another system.
    # shellcheck disable=SC2016 # apt-get's words
    mirror=$(apt-get indextargets --format '$(ORIGIN) $(SUITE) $(SITE)' 2>/dev/null |
        awk '$1 == "Debian" && $2 !~ /security/ && !seen++ { print $3 }' || true)
    if ! debootstrap --variant=minbase --include=mesa-vulkan-drivers,libvulkan1 sid "$place" ${mirror:+"$mirror"} >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        fail "debootstrap did not succeed, see $log"
    fi
    rm -rf "$log" "$place"/var/cache/apt/archives/*.deb "$place"/var/lib/apt/lists/*
    driver=$(compgen -G "$place/usr/lib/*-linux-gnu/libvulkan_lvp.so") || fail "$place has no lavapipe"
    printf '{"file_format_version": "1.0.1", "ICD": {"api_version": "1.4.0", "library_path": "%s"}}\n' "$driver" >"$icd"
}

[ -f "$icd" ] || build

libraries=$(dirname "$(compgen -G "$place/usr/lib/*-linux-gnu/libvulkan_lvp.so")")
loader=$(compgen -G "$libraries/ld-linux*.so.*" | head -n 1)
version=$(sed -n '/^Package: mesa-vulkan-drivers$/,/^$/s/^Version: //p' "$place/var/lib/dpkg/status")
say "Mesa $version in $place"
[ "$#" -gt 0 ] || exit 0

export VK_DRIVER_FILES=$icd VK_ICD_FILENAMES=$icd NODEVICE_SELECT=1
# Tests that find no cooperative matrices here fail instead of being skipped.
export WGRAD_REQUIRE_ADAPTERS=llvmpipe WGRAD_REQUIRE_COOPERATIVE=1

if [ "${1##*/}" = cargo ]; then
    find_cargo || fail "Rust's cargo is missing; scripts/setup.sh says how to get it"
    target=$(rustc -vV | sed -n 's/^host: //p' | tr '[:lower:]-' '[:upper:]_')
    export "CARGO_TARGET_${target}_RUNNER=$loader --library-path $libraries"
    exec "$@"
fi
exec "$loader" --library-path "$libraries" "$@"
