//! Reductions over axes, element by element.

use super::{Array, offsets};
use crate::graph::{Reduction, largest};
use crate::shape::Shape;

pub(super) fn reduce(kind: Reduction, axes: u8, x: Array) -> Vec<f64> {
    let mut kept = x.shape;
    for axis in (0..x.shape.rank()).filter(|axis| axes >> axis & 1 == 1) {
        kept = kept.with(axis, 1);
    }
    let start = if kind == Reduction::Max { f64::NEG_INFINITY } else { 0.0 };
    let mut y = vec![start; kept.numel() as usize];
    for (to, &v) in offsets(x.shape.dims(), &kept.broadcast_strides(&x.shape)).into_iter().zip(x.data) {
        y[to] = match kind {
            Reduction::Sum | Reduction::Mean => y[to] + v,
            Reduction::Max => largest(y[to], v),
            Reduction::SumSquares => y[to] + v * v,
        };
    }
    if kind == Reduction::Mean {
        let count = x.data.len() as f64 / y.len() as f64;
        y.iter_mut().for_each(|v| *v /= count);
    }
    y
}

/// Adds parts of this shape, one after another, to a sum.
pub(super) fn sum_parts(part: Shape, x: Array, sum: Option<Array>) -> Vec<f64> {
    let mut y = sum.map_or_else(|| vec![0.0; part.numel() as usize], |sum| sum.data.to_vec());
    for part in x.data.chunks(y.len().max(1)) {
        y.iter_mut().zip(part).for_each(|(sum, v)| *sum += v);
    }
    y
}
