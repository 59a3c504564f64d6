//! Matrix products. Both operands are saved, each for the gradient of the other.

use super::Site;
use crate::graph::Tensor;

/// For `C = op(A) op(B)`: `d op(A) = dC op(B)ᵀ`, `d op(B) = op(A)ᵀ dC`; transposes are flags and move no
/// memory. Computes the gradient of `B` first, so that a weight's gradient can be consumed before that of the
/// activations is needed.
pub(super) fn matmul(site: &Site, ta: bool, tb: bool) -> Vec<Option<Tensor>> {
    let (dy, a, b) = (site.dy(), &site.inputs[0], &site.inputs[1]);
    let db = site.want(1, || {
        let db = if tb { dy.matmul_transposed(a, true, ta) } else { a.matmul_transposed(dy, !ta, false) };
        db.sum_to(b.shape())
    });
    let da = site.want(0, || {
        let da = if ta { b.matmul_transposed(dy, tb, true) } else { dy.matmul_transposed(b, false, !tb) };
        da.sum_to(a.shape())
    });
    vec![da, db]
}
