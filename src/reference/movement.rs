//! Operations that move elements.

use super::{Array, offsets};
use crate::shape::Shape;

pub(super) fn permute(x: Array, perm: &[usize]) -> Vec<f64> {
    let strides = x.shape.strides();
    let dims: Vec<usize> = perm.iter().map(|&axis| x.shape.dims()[axis]).collect();
    let strides: Vec<u64> = perm.iter().map(|&axis| strides[axis]).collect();
    offsets(&dims, &strides).into_iter().map(|i| x.data[i]).collect()
}

pub(super) fn expand(x: Array, to: Shape) -> Vec<f64> {
    offsets(to.dims(), &x.shape.broadcast_strides(&to)).into_iter().map(|i| x.data[i]).collect()
}

/// Returns the number of elements before, along and after `axis`. Operations along `axis` move blocks of the
/// last.
fn around(shape: Shape, axis: usize) -> (usize, usize, usize) {
    let dims = shape.dims();
    (dims[..axis].iter().product(), dims[axis], dims[axis + 1..].iter().product())
}

pub(super) fn slice(x: Array, axis: usize, start: usize, len: usize) -> Vec<f64> {
    let (outer, along, inner) = around(x.shape, axis);
    let block = |o: usize| &x.data[(o * along + start) * inner..(o * along + start + len) * inner];
    (0..outer).flat_map(block).copied().collect()
}

pub(super) fn pad(x: Array, axis: usize, before: usize, after: usize) -> Vec<f64> {
    let (outer, along, inner) = around(x.shape, axis);
    let mut y = Vec::new();
    for o in 0..outer {
        y.extend(std::iter::repeat_n(0.0, before * inner));
        y.extend_from_slice(&x.data[o * along * inner..(o + 1) * along * inner]);
        y.extend(std::iter::repeat_n(0.0, after * inner));
    }
    y
}

pub(super) fn concat(parts: &[Array], axis: usize) -> Vec<f64> {
    let (outer, ..) = around(parts[0].shape, axis);
    let mut y = Vec::new();
    for o in 0..outer {
        for part in parts {
            let (_, along, inner) = around(part.shape, axis);
            y.extend_from_slice(&part.data[o * along * inner..(o + 1) * along * inner]);
        }
    }
    y
}
