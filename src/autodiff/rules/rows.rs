//! Rows. An embedding saves its ids; a norm saves its input and one or two numbers for each row; rotary
//! embedding saves nothing.

use std::panic::Location;

use super::Site;
use crate::graph::{Op, RowNorm, Tensor};

/// Adds to the table's accumulated gradient, such as that of tied output weights, so that no second gradient
/// of the table's size is needed.
pub(super) fn embedding(site: &Site) -> Tensor {
    let op = Op::EmbeddingGrad { rows: site.inputs[0].dim(0), share: None };
    let inputs: Vec<&Tensor> = [&site.inputs[1], site.dy()].into_iter().chain(&site.earlier).collect();
    site.dy().one(op, &inputs, Location::caller())
}

pub(super) fn norm(site: &Site, kind: RowNorm) -> Vec<Option<Tensor>> {
    let [x, gamma, statistics] = [&site.inputs[0], &site.inputs[1], &site.outputs[1]];
    let op = Op::RowNormGrad { kind };
    let gradients = x.trace().emit(op, &[x, statistics, gamma, site.dy()], Location::caller());
    gradients.into_iter().zip(site.wants).map(|(dx, &wanted)| wanted.then_some(dx)).collect()
}

/// Rotates in the opposite direction.
pub(super) fn rotary(site: &Site, op: &Op) -> Tensor {
    let Op::Rotary { heads, rope, back } = *op else { unreachable!("the rule of rotary embedding") };
    let operands: Vec<&Tensor> = [site.dy()].into_iter().chain(site.inputs.get(1)).collect();
    site.dy().one(Op::Rotary { heads, rope, back: !back }, &operands, Location::caller())
}
