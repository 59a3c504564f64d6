//! Operations that move elements. Their gradients move them back; nothing is saved.

use std::panic::Location;

use super::Site;
use crate::graph::{Op, Tensor};

/// Applies the inverse permutation.
pub(super) fn permute(site: &Site, perm: &[usize]) -> Tensor {
    let mut inverse = vec![0; perm.len()];
    for (to, &from) in perm.iter().enumerate() {
        inverse[from] = to;
    }
    site.dy().permute(&inverse)
}

/// Pads with zeros outside the slice.
pub(super) fn slice(site: &Site, axis: usize, start: usize, len: usize) -> Tensor {
    let whole = site.inputs[0].dim(axis);
    site.dy().pad(axis, start, whole - start - len)
}

/// Zeros between and around the elements.
pub(super) fn stride(site: &Site, axis: usize, start: usize, step: isize) -> Tensor {
    let op = Op::Place { axis, start, step, len: site.inputs[0].dim(axis) };
    site.dy().one(op, &[site.dy()], Location::caller())
}

/// Takes the elements back out of the zeros.
pub(super) fn place(site: &Site, axis: usize, start: usize, step: isize) -> Tensor {
    let len = site.inputs[0].dim(axis);
    if step == 1 {
        return site.dy().slice(axis, start..start + len);
    }
    site.dy().one(Op::Stride { axis, start, step, len }, &[site.dy()], Location::caller())
}

/// Adds each element where it came from.
pub(super) fn gather(site: &Site, axis: usize) -> Tensor {
    let op = Op::ScatterAdd { axis, len: site.inputs[0].dim(axis) };
    site.dy().one(op, &[&site.inputs[1], site.dy()], Location::caller())
}

pub(super) fn scatter_add(site: &Site, axis: usize) -> Tensor {
    site.dy().one(Op::Gather { axis }, &[site.dy(), &site.inputs[0]], Location::caller())
}

/// Each operand gets its own slice.
pub(super) fn concat(site: &Site, axis: usize) -> Vec<Option<Tensor>> {
    let mut start = 0;
    let part = |(i, x): (usize, &Tensor)| {
        let range = start..start + x.dim(axis);
        start = range.end;
        site.want(i, || site.dy().slice(axis, range))
    };
    site.inputs.iter().enumerate().map(part).collect()
}
