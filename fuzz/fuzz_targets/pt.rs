//! Any bytes as a state dict of PyTorch: refused with an error, or tensors that are within the bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/pure/fuzz/pt.rs"]
mod body;

fuzz_target!(|bytes: &[u8]| {
    body::run(bytes);
});
