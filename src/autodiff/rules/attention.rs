//! Attention saves its operands, its result and one number for each row of scores.

use std::panic::Location;

use super::Site;
use crate::graph::{Attend, Op, Tensor};

pub(super) fn attention(site: &Site, attend: Attend) -> Vec<Option<Tensor>> {
    let own = attend.operands();
    let [o, lse] = [&site.outputs[0], &site.outputs[1]];
    let mut inputs: Vec<&Tensor> = site.inputs[..own].iter().collect();
    inputs.extend([o, lse, site.dy()]);
    inputs.extend(&site.inputs[own..]);
    let gradients = o.trace().emit(Op::AttentionGrad(attend), &inputs, Location::caller());
    let wanted = gradients.into_iter().zip(site.wants).map(|(d, wanted)| wanted.then_some(d));
    wanted.chain(site.inputs[own..].iter().map(|_| None)).collect()
}
