//! Operations that move elements.

use std::cmp::Ordering;

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

pub(super) fn stride(x: Array, axis: usize, start: usize, step: isize, len: usize) -> Vec<f64> {
    let (outer, along, inner) = around(x.shape, axis);
    let at = |o: usize, i: usize| (o * along + (start as isize + step * i as isize) as usize) * inner;
    let block = |(o, i): (usize, usize)| &x.data[at(o, i)..at(o, i) + inner];
    (0..outer).flat_map(|o| (0..len).map(move |i| (o, i))).flat_map(block).copied().collect()
}

pub(super) fn place(x: Array, axis: usize, start: usize, step: isize, len: usize) -> Vec<f64> {
    let (outer, along, inner) = around(x.shape, axis);
    let mut y = vec![0.0; outer * len * inner];
    for (o, i) in (0..outer).flat_map(|o| (0..along).map(move |i| (o, i))) {
        let to = (o * len + (start as isize + step * i as isize) as usize) * inner;
        y[to..to + inner].copy_from_slice(&x.data[(o * along + i) * inner..][..inner]);
    }
    y
}

pub(super) fn iota(shape: Shape, axis: usize) -> Vec<f64> {
    let (outer, along, inner) = around(shape, axis);
    (0..outer * along * inner).map(|i| (i / inner % along) as f64).collect()
}

/// Calls `each` with the place of every element of `y`, the place of its id in `x`, with `len` elements along
/// `axis`, in order.
fn by_ids(ids: Array, y: Shape, axis: usize, len: usize, mut each: impl FnMut(usize, usize)) {
    let (_, count, inner) = around(y, axis);
    for (i, id) in offsets(y.dims(), &ids.shape.broadcast_strides(&y)).into_iter().enumerate() {
        let (o, within) = (i / (count * inner), i % inner);
        each(i, (o * len + (ids.data[id] as usize).min(len - 1)) * inner + within);
    }
}

pub(super) fn gather(x: Array, ids: Array, axis: usize) -> Vec<f64> {
    let y = x.shape.with(axis, ids.shape.dims()[axis]);
    let mut result = vec![0.0; y.numel() as usize];
    by_ids(ids, y, axis, x.shape.dims()[axis], |i, from| result[i] = x.data[from]);
    result
}

pub(super) fn scatter_add(ids: Array, dy: Array, axis: usize, len: usize) -> Vec<f64> {
    let mut result = vec![0.0; dy.shape.with(axis, len).numel() as usize];
    by_ids(ids, dy.shape, axis, len, |i, to| result[to] += dy.data[i]);
    result
}

pub(super) fn argsort(x: Array, descending: bool) -> Vec<f64> {
    let order =
        |a: f64, b: f64| a.is_nan().cmp(&b.is_nan()).then(a.partial_cmp(&b).unwrap_or(Ordering::Equal));
    let sorted = |row: &[f64]| {
        let mut ids: Vec<usize> = (0..row.len()).collect();
        ids.sort_by(|&i, &j| if descending { order(row[j], row[i]) } else { order(row[i], row[j]) });
        ids
    };
    x.data.chunks(x.shape.last().max(1)).flat_map(sorted).map(|i| i as f64).collect()
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
