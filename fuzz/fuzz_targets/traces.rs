//! Any bytes as a snapshot and as a trace: read or refused with a typed error; what was read can be replayed.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/pure/fuzz/traces.rs"]
mod body;

fuzz_target!(|bytes: &[u8]| {
    body::run(bytes);
});
