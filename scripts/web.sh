#!/usr/bin/env bash
# Builds the pages that plan networks and train some in a browser, and the npm package that it is made of, and serves them.
#
#   scripts/web.sh [--port N]     builds into target/web/site and serves that on http://localhost:8080
#   scripts/web.sh --out DIR      builds into DIR, and does not serve: DIR holds static files for any server
#   scripts/web.sh --plan-only    leaves out training, which is a third of the program
#
# A compiler for browsers is added by scripts/setup.sh --web. wasm-bindgen is installed by cargo below target/, at the version of web/Cargo.lock.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=scripts/common.sh
. "$here/common.sh"

out='' port=8080 train=1
while [ $# -gt 0 ]; do
    case "$1" in
        --out) out=$(realpath -m "${2:?--out needs a folder}") && shift 2 ;;
        --plan-only) train='' && shift ;;
        --port) port=${2:?--port needs a number} && shift 2 ;;
        *) fail "unknown argument $1; known: --out DIR, --port N, --plan-only" ;;
    esac
done

cd "$here/.."
if ! has_wasm_compiler; then "$here/setup.sh" --web; fi
has_wasm_compiler || fail "there is no compiler for browsers"
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")/web
site=${out:-$target/site}

# build: compiles web/ with whichever toolchain can; Debian's builds the standard library from its source.
build() {
    local arguments=(build --release --locked --manifest-path web/Cargo.toml --target "$wasm_target")
    [ -n "$train" ] || arguments+=(--no-default-features)
    local -x CARGO_TARGET_DIR=$target
    # Code that is inlined less is downloaded faster.
    local -x CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS="-Cllvm-args=--inline-threshold=75"
    if has_wasm_target; then
        cargo "${arguments[@]}"
        return
    fi
    local -x RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER
    CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=$(packaged_wasm_linker)
    /usr/bin/cargo "${arguments[@]}" -Zbuild-std=std,panic_abort
}

# The version of a crate in web/Cargo.lock.
version_of() { sed -n "/^name = \"$1\"\$/{n;s/^version = \"\\(.*\\)\"\$/\\1/p}" web/Cargo.lock; }

version=$(version_of wasm-bindgen)
bindgen=$target/tools/bin/wasm-bindgen
if [ "$("$bindgen" --version 2>/dev/null)" != "wasm-bindgen $version" ]; then
    say "installing wasm-bindgen $version below $target/tools"
    # It runs for half a second: not worth the time of optimizations.
    CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off cargo install --quiet wasm-bindgen-cli --version "$version" \
        --bin wasm-bindgen --root "$target/tools" --target-dir "$target/tools/build"
fi
build

mkdir -p "$site"
"$bindgen" --target web --remove-name-section --remove-producers-section --out-dir "$site" "$target/$wasm_target/release/wgrad_web.wasm"
cp web/package.json web/README.md web/page/{app,panics,planner,worker}.js web/page/app.css "$site/"
# The pictures are those of every page that wgrad makes.
cp src/report/page/*.js src/report/page/page.css "$site/"
sed -e '/<!-- pictures -->/{r src/report/page/pictures.html
d}' web/page/index.html >"$site/index.html"
if [ -n "$train" ]; then
    cp web/page/{train.html,train.js,trainer.js} "$site/"
    # What is learnt: the digits, and the planner's source, without lines whose characters are too rare.
    cp examples/data/digits.csv.gz "$site/"
    find src/memory -name '*.rs' | LC_ALL=C sort | xargs cat | LC_ALL=C grep -v '[^ -~]' >"$site/text.txt"
else
    sed -i '/train.html/d' "$site/index.html"
fi
say "built $site: $(gzip -9 -c "$site/wgrad_web_bg.wasm" | wc -c) bytes of wasm when compressed"

if [ -z "$out" ]; then
    command -v python3 >/dev/null 2>&1 || fail "python3 is missing, which serves the files; $site is for any other server"
    say "serving http://localhost:$port"
    exec python3 -m http.server --bind 127.0.0.1 --directory "$site" "$port"
fi
