//! The body of the fuzz target `pt`, which a plain test runs too.

use std::io::Cursor;

use wgrad::pt::read;

/// Reads the bytes as a state dict, checks that its tensors are within the bytes, and returns their number.
pub fn run(bytes: &[u8]) -> Option<usize> {
    let tensors = read(&mut Cursor::new(bytes)).ok()?;
    for (name, tensor) in &tensors {
        let (count, span) = (tensor.elements(), tensor.span());
        let end = tensor.start + span * tensor.element.bytes();
        assert!(end <= bytes.len() as u64 && count <= bytes.len() as u64, "{name}: {tensor:?}");
        let (mut seen, mut in_order, mut within) = (0, true, true);
        tensor.positions(|at| {
            within &= (at as u64) < span;
            in_order &= at as u64 == seen;
            seen += 1;
        });
        assert!(within && seen == count && in_order == tensor.is_contiguous(), "{name}: {tensor:?}");
    }
    Some(tensors.len())
}
