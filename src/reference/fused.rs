//! Element-wise functions, alone or chained.

use super::elementwise::{binary, cast, dropout, unary_grad};
use super::noise::Noise;
use super::{Array, batch_norm, movement};
use crate::graph::{Arg, FusedElementwise, Op};
use crate::shape::Shape;

/// Whether [`link`] implements the operation.
pub(super) fn can_fuse(op: &Op) -> bool {
    matches!(
        op,
        Op::Unary(_)
            | Op::UnaryGrad(_)
            | Op::Binary(_)
            | Op::Dropout { .. }
            | Op::BatchNorm(_)
            | Op::Expand(_)
            | Op::Cast(_)
    )
}

/// Computes an operation, alone or as a link of a chain.
pub(super) fn link(op: &Op, x: &[Array], to: Shape) -> Vec<f64> {
    match op {
        Op::Unary(f) => x[0].data.iter().map(|&v| f.value(v)).collect(),
        Op::UnaryGrad(f) => unary_grad(*f, x[0], x[1]),
        Op::Binary(f) => binary(*f, x[0], x[1], to),
        Op::Dropout { p, key, every } => dropout(x[0], x[1], *p, [*key, *every]),
        Op::BatchNorm(activation) => batch_norm::norm(x, *activation),
        Op::Expand(to) => movement::expand(x[0], *to),
        Op::Cast(to) => cast(x[0], *to),
        _ => unreachable!("`can_fuse` names all"),
    }
}

/// Computes every link in order.
pub(super) fn chain(chain: &FusedElementwise, operands: &[Array], noise: Noise) -> Vec<f64> {
    let mut results: Vec<Vec<f64>> = Vec::new();
    for one in chain.links() {
        let args: Vec<Array> = one
            .args
            .iter()
            .map(|arg| match *arg {
                Arg::Operand(k) => operands[k],
                Arg::Result(j) => Array { shape: chain.shape(), data: &results[j] },
            })
            .collect();
        let mut result = [link(&one.op, &args, chain.shape())];
        noise.change_results(&one.op, &mut result);
        results.extend(result);
    }
    results.pop().unwrap_or_default()
}
