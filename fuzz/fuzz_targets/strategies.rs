//! Any sequence of operations on any strategy: live blocks never overlap or leave their page, are aligned, and cover
//! with the holes every byte once; a handle is good for one free; after the last free every page can go.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/pure/fuzz/strategies.rs"]
mod body;

fuzz_target!(|bytes: &[u8]| body::run(bytes));
