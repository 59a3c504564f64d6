//! Any bytes as an ONNX file: refused with a typed error, or a network whose step and forward pass can be traced or are
//! refused; a forward pass that fits can be exported or is refused, and what was exported is read.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/pure/fuzz/onnx.rs"]
mod body;

fuzz_target!(|bytes: &[u8]| {
    body::run(bytes);
});
