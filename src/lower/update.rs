//! Optimizer updates: one dispatch for each parameter, over its elements in fours.

use super::grid::{per_thread, quads};
use super::{Operand, Site};
use crate::graph::Update;
use crate::kernels::{Launch, table};

pub(super) fn update(site: &Site, update: &Update) -> Launch<Operand> {
    let count = quads(site.inputs[0].0.numel());
    let memory: Vec<Operand> = (0..site.inputs.len()).map(Operand::Input).collect();
    let flag = |on: bool| f64::from(u8::from(on));
    let (kernel, constants, settings) = match *update {
        Update::Sgd { weight_decay } => (&table::SGD, vec![], vec![weight_decay, 0.0]),
        Update::Momentum { momentum, weight_decay, nesterov } => {
            (&table::MOMENTUM, vec![("NESTEROV", flag(nesterov))], vec![weight_decay, momentum])
        }
        Update::Adam { beta1, beta2, eps, weight_decay, decoupled } => {
            (&table::ADAM, vec![("DECOUPLED", flag(decoupled))], vec![beta1, beta2, eps, weight_decay])
        }
    };
    let mut params = vec![count];
    params.extend(settings.iter().map(|setting| setting.to_bits()));
    let mut launch = per_thread(site, kernel, u64::from(count), memory, &params);
    launch.constants = constants;
    launch
}
