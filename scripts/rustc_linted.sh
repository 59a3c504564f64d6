#!/bin/sh
# In place of rustc for this project's own crates, which scripts/test.sh tells cargo (build.rustc-workspace-wrapper):
#
# - The library is compiled as it is asked for. It is where tests spend their time, its own ones included.
# - Programs and tests are compiled without optimizations, which takes a fifth of the time, and read by Clippy as they
#   are compiled, so that they are not compiled a second time for its sake. The library is not: Clippy compiles without
#   optimizations of MIR. The program that interprets the loops of all kernels is compiled with some.
#
# clippy-driver takes the lints' levels from CLIPPY_ARGS, in the form in which cargo clippy writes them.
case " $* " in
    *" --crate-type lib "* | *" --crate-name wgrad "*" src/lib.rs "*) exec "$@" ;;
    *" --crate-name "*)
        export CLIPPY_ARGS="-Dwarnings__CLIPPY_HACKERY__"
        case " $* " in
            *" --crate-name shaders "*) level=1 ;;
            *) level=0 ;;
        esac
        exec clippy-driver "$@" -C opt-level=$level -C codegen-units=16
        ;;
esac
exec "$@"
