//! Operations that move elements. Their gradients move them back; nothing is saved.

use super::Site;
use crate::graph::Tensor;

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

/// Slices off the padding.
pub(super) fn pad(site: &Site, axis: usize, before: usize) -> Tensor {
    site.dy().slice(axis, before..before + site.inputs[0].dim(axis))
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
