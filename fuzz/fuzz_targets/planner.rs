//! Any bytes are either refused with a typed error or packed into a valid solution: no panic, no hang.

#![no_main]

use libfuzzer_sys::fuzz_target;
use wgrad::memory::planner::{Effort, Options, PackError, read_problem, solve};

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(mut problem) = read_problem(text) else { return };
    problem.items.truncate(64);
    let checksum = bytes.iter().fold(0u64, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    problem.max_arena = (checksum % 3 == 0).then_some(checksum % 5000);
    let options = Options { effort: Effort::Fast, ..Options::default() };
    // `solve` validates what it returns.
    if let Err(PackError::Invalid(violation)) = solve(&problem, &options) {
        panic!("{violation}");
    }
});
