//! Functions of single elements, alone or one after the other.

use super::elementwise::{binary, cast, dropout, unary, unary_grad};
use super::noise::Noise;
use super::{Array, batch_norm, movement};
use crate::graph::{Arg, Chain, Op};
use crate::shape::Shape;

/// Whether [`link`] knows it.
pub(super) fn is_link(op: &Op) -> bool {
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

/// An operation on its own, or as a link of a chain.
pub(super) fn link(op: &Op, x: &[Array], to: Shape) -> Vec<f64> {
    match op {
        Op::Unary(f) => x[0].data.iter().map(|&v| unary(*f, v)).collect(),
        Op::UnaryGrad(f) => unary_grad(*f, x[0], x[1]),
        Op::Binary(f) => binary(*f, x[0], x[1], to),
        Op::Dropout { p, key } => dropout(x[0], x[1], *p, *key),
        Op::BatchNorm(activation) => batch_norm::norm(x, *activation),
        Op::Expand(to) => movement::expand(x[0], *to),
        Op::Cast(to) => cast(x[0], *to),
        _ => unreachable!("`is_link` names all"),
    }
}

/// Every link in its order.
pub(super) fn chain(chain: &Chain, operands: &[Array], noise: Noise) -> Vec<f64> {
    let mut results: Vec<Vec<f64>> = Vec::new();
    for one in chain.links() {
        let args: Vec<Array> = one
            .args
            .iter()
            .map(|arg| match *arg {
                Arg::Operand(k) => operands[k],
                Arg::Link(j) => Array { shape: chain.shape(), data: &results[j] },
            })
            .collect();
        let mut result = [link(&one.op, &args, chain.shape())];
        noise.change_results(&one.op, &mut result);
        results.extend(result);
    }
    results.pop().unwrap_or_default()
}
