//! Bit masks of the elements where gradients pass.

use super::in_vec4;
use crate::graph::Unary;
use crate::kernels::grid::{per_thread, quads};
use crate::kernels::kernel::Variants;
use crate::kernels::{Kernel, Launch, Operand, Site};
use crate::limits::AdapterClass;

/// Codes of clamp, ReLU and leaky ReLU.
const FUNCTIONS: Variants = &[&[("F", 8.0)], &[("F", 9.0)], &[("F", 10.0)]];

pub(super) static MASK: Kernel = Kernel::new("mask", "elementwise/mask", &["VEC4"], &[1, 2], 64, FUNCTIONS);
pub(super) static MASK_WG: Kernel =
    Kernel::new("mask_wg", "elementwise/mask", &["VEC4", "WORKGROUP"], &[1, 2], 64, FUNCTIONS);
pub(super) static GRAD: Kernel =
    Kernel::new("mask_grad", "elementwise/mask", &["VEC4", "GRADIENT"], &[1, 2, 3], 64, &[&[]]);

pub(in crate::kernels) fn mask(site: &Site, f: Unary) -> Launch<Operand> {
    let (code, [a, b]) = f.code();
    let (words, quads) = (site.output().numel(), quads(site.inputs[0].0.numel()));
    let (kernel, threads) = match site.limits.class {
        AdapterClass::Cpu => (&MASK, words),
        AdapterClass::Integrated | AdapterClass::Discrete => (&MASK_WG, words * 8),
    };
    let params = [words as u32, quads, a.to_bits(), b.to_bits()];
    let memory = vec![Operand::Input(0), Operand::Output(0)];
    let mut launch = per_thread(site, kernel, threads, memory, &params);
    launch.constants = vec![("F", f64::from(code))];
    launch
}

pub(in crate::kernels) fn grad(site: &Site, f: Unary) -> Launch<Operand> {
    let slope = if let Unary::LeakyRelu(slope) = f { slope } else { 0.0 };
    let memory = site.placed(1, &[Operand::Input(0)]);
    in_vec4(site, &site.variant(&GRAD), memory, &[slope.to_bits()])
}
