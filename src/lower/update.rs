//! Optimizer updates: one dispatch for each parameter, or for a segment of small ones, over elements in fours or in blocks.

use super::grid::{per_thread, quads};
use super::{Operand, Site, flag};
use crate::dtype::DType;
use crate::graph::{Stored, Update};
use crate::kernels::{Kernel, Launch, table};
use crate::limits::AdapterClass;

pub(super) fn update(site: &Site, update: &Update, stored: Stored) -> Launch<Operand> {
    let count = quads(site.inputs[0].0.numel());
    let memory: Vec<Operand> = (0..site.inputs.len()).map(Operand::Input).collect();
    let (kernel, constants, settings) = match *update {
        Update::Sgd { weight_decay } => (&table::SGD, vec![], vec![weight_decay, 0.0]),
        Update::Momentum { momentum, weight_decay, nesterov } => {
            (&table::MOMENTUM, vec![("NESTEROV", flag(nesterov))], vec![weight_decay, momentum])
        }
        Update::Adam { beta1, beta2, eps, weight_decay, decoupled } => {
            (&table::ADAM, vec![("DECOUPLED", flag(decoupled))], vec![beta1, beta2, eps, weight_decay])
        }
        Update::Lion { beta1, beta2, weight_decay } => {
            (&table::LION, vec![], vec![beta1, beta2, weight_decay])
        }
        Update::Adafactor { eps, clip, weight_decay } => {
            let n = site.inputs[0].0.numel() as f32;
            (&table::ADAFACTOR, vec![], vec![n, eps, clip, weight_decay])
        }
        Update::Adam8bit { beta1, beta2, eps, weight_decay } => {
            return adam8(site, memory, &[beta1, beta2, eps, weight_decay], stored);
        }
    };
    let threads = match update {
        // A workgroup owns four times as many as it has threads.
        Update::Adam { .. } => count.div_ceil(4 * kernel[0].workgroup) * kernel[0].workgroup,
        _ => count,
    };
    launch(site, kernel, (count, u64::from(threads)), memory, &settings, constants, stored)
}

/// The kernel for how the weight is held, over so many fours by so many threads.
fn launch(
    site: &Site,
    kernels: &'static [Kernel; 3],
    (quads, threads): (u32, u64),
    memory: Vec<Operand>,
    settings: &[f32],
    mut constants: Vec<(&'static str, f64)>,
    stored: Stored,
) -> Launch<Operand> {
    let (held, key) = match (site.inputs[0].1, stored) {
        (DType::F32 | DType::U32, _) => (0, 0),
        (half, Stored::Nearest) => (if half == DType::F16 { 1 } else { 2 }, 0),
        (half, Stored::Stochastic(key)) => (if half == DType::F16 { 1 } else { 2 }, key),
    };
    if held > 0 {
        constants.push(("STOCHASTIC", f64::from(u8::from(stored != Stored::Nearest))));
    }
    let mut params = vec![quads];
    params.extend(settings.iter().map(|setting| setting.to_bits()));
    params.push(key);
    let mut launch = per_thread(site, &kernels[held], threads, memory, &params);
    launch.constants = constants;
    launch
}

/// Fours in a block of 256 elements.
const BLOCK_QUADS: u32 = 64;

fn adam8(site: &Site, memory: Vec<Operand>, settings: &[f32], stored: Stored) -> Launch<Operand> {
    let n = site.inputs[0].0.numel();
    let blocks = u64::from(quads(n).div_ceil(BLOCK_QUADS));
    let (kernel, threads) = match site.limits.class {
        AdapterClass::Cpu => (&table::ADAM8, blocks),
        AdapterClass::Integrated | AdapterClass::Discrete => {
            (&table::ADAM8_WG, blocks * u64::from(BLOCK_QUADS))
        }
    };
    let constants = vec![("TAIL", ((n - 1) % 4 + 1) as f64)];
    launch(site, kernel, (quads(n), threads), memory, settings, constants, stored)
}

pub(super) fn moving_average(site: &Site, scale: f32) -> Launch<Operand> {
    let count = quads(site.output().numel());
    let mut memory: Vec<Operand> = (0..site.inputs.len()).map(Operand::Input).collect();
    memory.push(Operand::Output(0));
    per_thread(site, &table::MOVING_AVERAGE, u64::from(count), memory, &[count, scale.to_bits()])
}
