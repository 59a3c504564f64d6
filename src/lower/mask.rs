//! Where gradients pass, as bits.

use super::grid::{per_thread, quads};
use super::{Operand, Site, elementwise};
use crate::graph::Unary;
use crate::kernels::{Launch, table};
use crate::limits::AdapterClass;

pub(super) fn mask(site: &Site, f: Unary) -> Launch<Operand> {
    let (code, [a, b]) = f.code();
    let (words, quads) = (site.output().numel(), quads(site.inputs[0].0.numel()));
    let (kernel, threads) = match site.limits.class {
        AdapterClass::Cpu => (&table::MASK, words),
        AdapterClass::Integrated | AdapterClass::Discrete => (&table::MASK_WG, words * 8),
    };
    let params = [words as u32, quads, a.to_bits(), b.to_bits()];
    let memory = vec![Operand::Input(0), Operand::Output(0)];
    let mut launch = per_thread(site, kernel, threads, memory, &params);
    launch.constants = vec![("F", f64::from(code))];
    launch
}

pub(super) fn grad(site: &Site, f: Unary) -> Launch<Operand> {
    let slope = if let Unary::LeakyRelu(slope) = f { slope } else { 0.0 };
    let memory = site.placed(1, &[Operand::Input(0)]);
    let kernels = [&table::MASK_GRAD, &table::MASK_GRAD_IN_PLACE];
    elementwise::in_fours(site, kernels, memory, &[slope.to_bits()])
}
