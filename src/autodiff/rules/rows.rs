//! Rows. An embedding keeps its ids; a norm its input and one or two numbers for each row; rotary embedding nothing.

use std::panic::Location;

use super::Site;
use crate::graph::{Op, RowNorm, Tensor};

/// Added to what the table has from elsewhere, such as tied output weights: no second gradient of its size.
pub(super) fn embedding(site: &Site) -> Tensor {
    let op = Op::EmbeddingGrad { rows: site.inputs[0].dim(0) };
    let inputs: Vec<&Tensor> = [&site.inputs[1], site.dy()].into_iter().chain(&site.earlier).collect();
    site.dy().one(op, &inputs, Location::caller())
}

pub(super) fn norm(site: &Site, kind: RowNorm) -> Vec<Option<Tensor>> {
    let [x, gamma, statistics] = [&site.inputs[0], &site.inputs[1], &site.outputs[1]];
    let op = Op::RowNormGrad { kind };
    let gradients = x.trace().emit(op, &[x, statistics, gamma, site.dy()], Location::caller());
    gradients.into_iter().zip(site.wants).map(|(dx, &wanted)| wanted.then_some(dx)).collect()
}

/// The rotation back.
pub(super) fn rotary(site: &Site, op: &Op) -> Tensor {
    let Op::Rotary { heads, base, back } = *op else { unreachable!("the rule of rotary embedding") };
    site.dy().one(Op::Rotary { heads, base, back: !back }, &[site.dy()], Location::caller())
}
