# shellcheck shell=bash
# Sourced by setup.sh, run.sh and test.sh: defines functions and does nothing by itself.

say() { printf 'wgrad: %s\n' "$*" >&2; }

fail() {
    say "error: $*"
    exit 1
}

# Where there is no desktop, a layer of Mesa's that looks for one prints errors that mean nothing.
quiet_mesa() {
    if [ -z "${XDG_RUNTIME_DIR:-}" ]; then export NODEVICE_SELECT="${NODEVICE_SELECT:-1}"; fi
}

# rustup's installer changes PATH only for later logins, so a cargo in its usual place counts too.
find_cargo() {
    local bin="${CARGO_HOME:-${HOME:-/root}/.cargo}/bin"
    if ! command -v cargo >/dev/null 2>&1 && [ -x "$bin/cargo" ]; then
        PATH="$bin:$PATH"
        export PATH
    fi
    command -v cargo >/dev/null 2>&1
}

# Whether python3 can make virtual environments.
has_python() { python3 -c 'import ensurepip, venv' >/dev/null 2>&1; }

# Platforms whose adapters are not Vulkan's (Metal, DirectX 12) need no driver from us.
uses_vulkan() {
    case "$(uname -s)" in
        Darwin | MINGW* | MSYS* | CYGWIN*) return 1 ;;
        *) return 0 ;;
    esac
}

# has_library NAME: whether dlopen would find it by its bare name.
has_library() {
    local ldconfig dir
    for ldconfig in ldconfig /sbin/ldconfig; do
        # A here-string rather than a pipe: grep -q would end ldconfig by SIGPIPE, which pipefail reports.
        grep -qF "$1 " <<<"$("$ldconfig" -p 2>/dev/null || true)" && return 0
    done
    for dir in /usr/lib /usr/lib64 /usr/local/lib; do # musl has no ldconfig -p
        [ -e "$dir/$1" ] && return 0
    done
    return 1
}

has_vulkan_loader() { has_library libvulkan.so.1; }

# Driver manifests (ICDs: JSON files) among the files and folders given, one path a line, each once.
manifests() {
    local entry file
    for entry in "$@"; do
        [ -n "$entry" ] || continue
        for file in "$entry" "$entry"/*.json; do
            if [ -f "$file" ]; then printf '%s\n' "$file"; fi
        done
    done | awk '!seen[$0]++'
}

# What the environment names. VK_DRIVER_FILES, by its old name VK_ICD_FILENAMES, replaces the system's folders.
chosen_icds() {
    local entries
    IFS=: read -ra entries <<<"${VK_DRIVER_FILES:-${VK_ICD_FILENAMES:-}}"
    manifests "${entries[@]}"
}

installed_icds() {
    local added home="${HOME:-/root}"
    IFS=: read -ra added <<<"${VK_ADD_DRIVER_FILES:-}"
    manifests "${XDG_CONFIG_HOME:-$home/.config}/vulkan/icd.d" /usr/local/etc/vulkan/icd.d /etc/vulkan/icd.d \
        "${XDG_DATA_HOME:-$home/.local/share}/vulkan/icd.d" /usr/local/share/vulkan/icd.d /usr/share/vulkan/icd.d \
        "${added[@]}"
}

lavapipe_icds() { installed_icds | grep -E '/lvp_icd[^/]*$' || true; }

# SwiftShader comes with Chromium and Chrome, outside the folders that the loader reads.
swiftshader_icd() {
    local dir
    for dir in /usr/lib/chromium /usr/lib64/chromium-browser /usr/lib/chromium-browser /opt/google/chrome; do
        if [ -f "$dir/vk_swiftshader_icd.json" ]; then
            printf '%s\n' "$dir/vk_swiftshader_icd.json"
            return 0
        fi
    done
    return 1
}

# Whether the feature mpi can be built and tested: MPI's compiler wrapper and launcher, and libclang.
has_mpi() {
    command -v mpicc >/dev/null 2>&1 && command -v mpirun >/dev/null 2>&1 &&
        { [ -n "${LIBCLANG_PATH:-}" ] || compgen -G '/usr/lib*/libclang*.so*' >/dev/null ||
            compgen -G '/usr/lib/*/libclang*.so*' >/dev/null || compgen -G '/usr/lib/llvm-*/lib/libclang*.so*' >/dev/null; }
}

wasm_target=wasm32-unknown-unknown

# Whether cargo's own toolchain has the standard library for browsers, which rustup adds.
has_wasm_target() { [ -d "$(rustc --print sysroot)/lib/rustlib/$wasm_target/lib" ]; }

# The linker of Debian's and Ubuntu's compiler for browsers, if that is here: rustc-web, cargo-web, rust-web-src and an lld.
packaged_wasm_linker() {
    [ -x /usr/bin/rustc ] && [ -x /usr/bin/cargo ] && compgen -G '/usr/src/rustc-*/library/std' >/dev/null &&
        compgen -c wasm-ld- | sort -V | tail -n 1 | grep .
}

has_wasm_compiler() { find_cargo && { has_wasm_target || packaged_wasm_linker >/dev/null; }; }

# Every feature that can be built here.
features() { if has_mpi; then echo full,mpi; else echo full; fi; }

# A browser of Chromium's family, which the tests of pages run without a screen; as in tests/pure/page.rs.
find_browser() {
    local name
    if [ -n "${WGRAD_BROWSER:-}" ]; then
        printf '%s\n' "$WGRAD_BROWSER"
        return 0
    fi
    for name in chromium chromium-browser google-chrome google-chrome-stable; do
        command -v "$name" && return 0
    done
    return 1
}

all_icds() { { chosen_icds; installed_icds; swiftshader_icd || true; } | awk '!seen[$0]++'; }

# A driver for hardware counts only where the kernel shows a GPU: distributions install several in advance.
has_gpu_node() { compgen -G '/dev/dri/renderD*' >/dev/null || [ -e /dev/nvidiactl ] || [ -e /dev/dxg ]; }

# Whether the driver library that a manifest names is there: containers are often given the manifest without it.
has_driver_library() {
    local library
    library=$(sed -n 's/.*"library_path" *: *"\([^"]*\)".*/\1/p' "$1")
    case "$library" in
        "") return 1 ;;
        /*) [ -e "$library" ] ;;
        */*) [ -e "${1%/*}/$library" ] ;;
        *) has_library "$library" ;;
    esac
}

# Whether the Vulkan loader will find something to run on, as far as files can tell.
has_adapter() {
    local icd icds
    has_vulkan_loader || return 1
    if [ -n "${VK_DRIVER_FILES:-}${VK_ICD_FILENAMES:-}" ]; then
        icds=$(chosen_icds)
    elif has_gpu_node; then
        icds=$(installed_icds)
    else
        icds=$(lavapipe_icds)
    fi
    while IFS= read -r icd; do
        if [ -n "$icd" ] && has_driver_library "$icd"; then return 0; fi
    done <<<"$icds"
    return 1
}
