#!/usr/bin/env bash
# Makes sure that this machine can build wgrad and has an adapter to run it on, and says what it does.
#
#   scripts/setup.sh                  a toolchain, and any Vulkan driver (Mesa's software driver where there is none)
#   scripts/setup.sh --software       Mesa's software driver, lavapipe, beside whatever is there (for tests)
#   scripts/setup.sh --swiftshader    tries to add SwiftShader as well (for tests; going without it is no error)
#   scripts/setup.sh --browser        tries to add Chromium (for the tests of pages and of Tint; going without it is no error)
#   scripts/setup.sh --mpi            tries to add Open MPI and libclang (for the feature mpi; going without them is no error)
#   scripts/setup.sh --spirv          tries to add spirv-val (for the tests of SPIR-V; going without it is no error)
#   scripts/setup.sh --web            tries to add a compiler for browsers (for scripts/web.sh); alone, it looks for no driver
#
# Packages come from the system's package manager, as root or through sudo without a password. Where that is not
# possible, it prints the one command that would help and exits 1.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=scripts/common.sh
. "$here/common.sh"

software=no swiftshader=no browser=no mpi=no spirv=no web=no driver=yes
if [ "$*" = --web ]; then driver=no; fi
for arg in "$@"; do
    case "$arg" in
        --software) software=yes ;;
        --swiftshader) swiftshader=yes ;;
        --browser) browser=yes ;;
        --mpi) mpi=yes ;;
        --spirv) spirv=yes ;;
        --web) web=yes ;;
        -h | --help)
            sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
            exit 0
            ;;
        *) fail "unknown option '$arg' (known: --software, --swiftshader, --browser, --mpi, --spirv, --web, --help)" ;;
    esac
done

manager=none
for name in apt-get dnf pacman zypper apk; do
    if command -v "$name" >/dev/null 2>&1; then
        manager=$name
        break
    fi
done

# Names differ between distributions; the thing wanted does not.
packages_for() {
    case "$manager:$1" in
        apt-get:driver) echo mesa-vulkan-drivers libvulkan1 ;;
        dnf:driver) echo mesa-vulkan-drivers vulkan-loader ;;
        pacman:driver) echo vulkan-swrast vulkan-icd-loader ;;
        zypper:driver) echo libvulkan_lvp libvulkan1 ;;
        apk:driver) echo mesa-vulkan-swrast vulkan-loader ;;
        apt-get:linker) echo gcc libc6-dev ;;
        apk:linker) echo gcc musl-dev ;;
        *:linker) echo gcc ;;
    esac
}

# The command a person would type for the same packages.
command_for() {
    case "$manager" in
        apt-get) echo "sudo apt-get update && sudo apt-get install -y $*" ;;
        dnf) echo "sudo dnf install -y $*" ;;
        pacman) echo "sudo pacman -Sy --needed $*" ;;
        zypper) echo "sudo zypper install -y $*" ;;
        apk) echo "sudo apk add $*" ;;
    esac
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

can_be_root() {
    [ "$(id -u)" = 0 ] || { command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; }
}

# Runs quietly; shows the output only of a command that failed.
quietly() {
    local log
    log=$(mktemp)
    if "$@" >"$log" 2>&1 </dev/null; then
        rm -f "$log"
    else
        tail -n 20 "$log" >&2
        rm -f "$log"
        return 1
    fi
}

updated=no
update_apt() {
    [ "$updated" = no ] || return 0
    # One broken third-party source must not stop what the others can deliver.
    quietly as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 update ||
        say "apt-get update reported errors; going on with what is known"
    updated=yes
}

install_packages() {
    say "installing $* through $manager"
    case "$manager" in
        apt-get)
            update_apt
            quietly as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 \
                install --no-install-recommends "$@"
            ;;
        dnf) quietly as_root dnf install -y "$@" ;;
        pacman) quietly as_root pacman -Sy --needed --noconfirm "$@" ;;
        zypper) quietly as_root zypper --non-interactive install "$@" ;;
        apk) quietly as_root apk add "$@" ;;
    esac
}

# What the checks found missing, installed together so that a person is asked for one command only.
missing=() packages=()
want() {
    local names
    missing+=("$1")
    read -ra names <<<"$(packages_for "$2")"
    packages+=("${names[@]}")
}

give_up() {
    say "error: $1"
    printf '    %s\n' "$2" >&2
    exit 1
}

install_missing() {
    local what
    [ "${#missing[@]}" -gt 0 ] || return 0
    what=$(printf '%s and ' "${missing[@]}")
    what="missing: ${what% and }"
    say "$what"
    [ "$manager" != none ] ||
        fail "no package manager known here was found (apt-get, dnf, pacman, zypper, apk); please install by hand"
    can_be_root ||
        give_up "installing needs root. This command would help:" "$(command_for "${packages[@]}")"
    install_packages "${packages[@]}" ||
        give_up "the installation failed. The command was:" "$(command_for "${packages[@]}")"
}

rustup_command="curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y"

check_cargo() {
    local need have
    find_cargo || give_up "Rust's cargo is missing. This command would help:" "$rustup_command"
    need=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' "$here/../Cargo.toml")
    have=$(cd "$here/.." && cargo --version | awk '{print $2}')
    if [ "$(printf '%s\n' "$need" "$have" | sort -V | head -n 1)" != "$need" ]; then
        if command -v rustup >/dev/null 2>&1; then rustup_command="rustup update stable"; fi
        give_up "cargo $have is older than the $need that wgrad needs. This command would help:" "$rustup_command"
    fi
}

# cargo calls the C linker.
check_linker() {
    case "$(uname -s)" in
        MINGW* | MSYS* | CYGWIN*) return 0 ;; # there it finds Visual Studio's by itself
    esac
    if command -v cc >/dev/null 2>&1; then return 0; fi
    if [ "$(uname -s)" = Darwin ]; then
        give_up "the C linker, which cargo calls, is missing. This command would help:" "xcode-select --install"
    fi
    want "a C linker for cargo" linker
}

check_driver() {
    if [ "$software" = yes ]; then
        if has_vulkan_loader && [ -n "$(lavapipe_icds)" ]; then return 0; fi
    else
        if has_adapter; then return 0; fi
        [ -z "${VK_DRIVER_FILES:-}${VK_ICD_FILENAMES:-}" ] ||
            fail "'${VK_DRIVER_FILES:-$VK_ICD_FILENAMES}' names no Vulkan driver that is there;" \
                "unset VK_DRIVER_FILES and VK_ICD_FILENAMES to use the system's"
        say "no Vulkan driver for a GPU of this machine was found; Mesa's software driver will do"
    fi
    want "lavapipe, Mesa's software Vulkan driver" driver
}

check_driver_again() {
    has_vulkan_loader || fail "the packages are installed, and still there is no libvulkan.so.1"
    if [ "$software" = yes ]; then
        [ -n "$(lavapipe_icds)" ] ||
            fail "the packages are installed, and still there is no lvp_icd*.json among Vulkan's drivers"
    else
        has_adapter || fail "the packages are installed, and still no Vulkan driver is in place"
    fi
}

# True when apt knows the package and it is a real one: Ubuntu's is a stub that fetches a snap.
apt_has() {
    local candidate
    candidate=$(LC_ALL=C apt-cache policy "$1" 2>/dev/null | awk '/Candidate:/ {print $2}')
    case "$candidate" in
        "" | "(none)" | *snap*) return 1 ;;
    esac
}

# Chromium under the names that distributions give it.
try_browser() {
    local package
    find_browser >/dev/null && return 0
    if can_be_root; then
        for package in chromium chromium-browser; do
            case "$manager" in
                apt-get) update_apt && apt_has "$package" || continue ;;
                none) break ;;
            esac
            install_packages "$package" || true
            find_browser >/dev/null && return 0
        done
    fi
    say "SKIPPED: there is no Chromium or Chrome here, and none could be installed; the tests of pages need one." \
        "This command would help: $(command_for chromium)"
}

# The validator of Khronos's SPIR-V tools, whose package has the same name in most distributions.
try_spirv() {
    command -v spirv-val >/dev/null 2>&1 && return 0
    if [ "$manager" = apt-get ]; then update_apt; fi
    if [ "$manager" != none ] && can_be_root; then install_packages spirv-tools || true; fi
    command -v spirv-val >/dev/null 2>&1 && return 0
    say "SKIPPED: spirv-val is not here and could not be installed; the tests of SPIR-V need it." \
        "This command would help: $(command_for spirv-tools)"
}

# Open MPI with its compiler wrapper, and libclang, with which the bindings read its headers.
try_mpi() {
    local packages
    has_mpi && return 0
    case "$manager" in
        apt-get) packages="openmpi-bin libopenmpi-dev libclang-dev" ;;
        dnf) packages="openmpi-devel clang-devel" ;;
        pacman) packages="openmpi clang" ;;
        zypper) packages="openmpi4-devel clang-devel" ;;
        *) packages="openmpi-dev clang-dev" ;;
    esac
    if [ "$manager" = apt-get ]; then update_apt; fi
    # shellcheck disable=SC2086 # a list of names
    if [ "$manager" != none ] && can_be_root; then install_packages $packages || true; fi
    has_mpi && return 0
    say "SKIPPED: mpicc, mpirun or libclang is not here and could not be installed; the feature mpi needs them." \
        "This command would help: $(command_for "$packages")"
}

# The standard library for browsers, from rustup where it can be had, else with the compiler of Debian's and Ubuntu's packages.
try_web() {
    local packages="rustc-web cargo-web rust-web-src lld-19"
    has_wasm_compiler && return 0
    if command -v rustup >/dev/null 2>&1; then
        say "adding $wasm_target through rustup"
        (cd "$here/.." && quietly rustup target add "$wasm_target") && return 0
    fi
    if [ "$manager" = apt-get ] && can_be_root; then
        update_apt
        # shellcheck disable=SC2086 # a list of names
        install_packages $packages || true
    fi
    has_wasm_compiler && return 0
    say "SKIPPED: there is no compiler for browsers here, and none could be installed; the page of scripts/web.sh needs one." \
        "This command would help: rustup target add $wasm_target, or with Debian's packages: $(command_for "$packages")"
}

# Debian's chromium-common holds SwiftShader and is a third of the browser's download; should it move, chromium needs it.
try_swiftshader() {
    local package
    swiftshader_icd >/dev/null && return 0
    if [ "$manager" = apt-get ] && can_be_root; then
        update_apt
        for package in chromium-common chromium; do
            if apt_has "$package"; then
                install_packages "$package" || true
                swiftshader_icd >/dev/null && return 0
            fi
        done
    fi
    say "SKIPPED: SwiftShader is not here and could not be installed;" \
        "it comes with Debian's chromium-common and with Google Chrome. Tests will run without it."
}

check_cargo
check_linker
if [ "$driver" = yes ] && uses_vulkan; then check_driver; fi
install_missing
if [ "$driver" = no ]; then
    say "ready: $(cd "$here/.." && cargo --version)"
elif uses_vulkan; then
    check_driver_again
    if [ "$swiftshader" = yes ]; then try_swiftshader; fi
    drivers=$(all_icds | sed 's:.*/::; s/\.json$//' | paste -sd ' ' -)
    say "ready: $(cd "$here/.." && cargo --version), Vulkan drivers: $drivers"
else
    say "ready: $(cd "$here/.." && cargo --version), adapters through the system's own graphics API"
fi
if [ "$browser" = yes ]; then try_browser; fi
if [ "$mpi" = yes ]; then try_mpi; fi
if [ "$spirv" = yes ]; then try_spirv; fi
if [ "$web" = yes ]; then try_web; fi
