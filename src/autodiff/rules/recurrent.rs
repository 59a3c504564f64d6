//! Gates of recurrent layers. The gradient computes the gates again from their operands, and from the memory.

use super::Site;
use crate::graph::{Gates, Tensor};

pub(super) fn gates(site: &Site, gates: Gates) -> Vec<Option<Tensor>> {
    let x = &site.inputs;
    let dy = |i: usize| {
        site.dys[i].clone().unwrap_or_else(|| site.outputs[i].fill_like(site.outputs[i].shape(), 0.0))
    };
    let all = match gates {
        Gates::Lstm => x[0].lstm_gates_grad(&x[1], &site.outputs[1], &dy(0), &dy(1)).to_vec(),
        Gates::Gru => x[0].gru_gates_grad(&x[1], &x[2], &dy(0)).to_vec(),
    };
    all.into_iter().enumerate().map(|(i, dx)| site.want(i, || dx)).collect()
}
