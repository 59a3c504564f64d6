//! The gradient of cross-entropy, and how many labels count.

use super::grid::per_thread;
use super::{Lowered, Operand, Site};
use crate::kernels::{Launch, table};
use crate::limits::AdapterClass;

pub(super) fn cross_entropy_grad(site: &Site) -> Launch<Operand> {
    let kernel = match site.in_place {
        Some(_) => &table::CROSS_ENTROPY_GRAD_IN_PLACE,
        None => &table::CROSS_ENTROPY_GRAD,
    };
    let (logits, rows) = (site.inputs[0].0, site.inputs[1].0.numel());
    let memory = site.placed(0, &[Operand::Input(1), Operand::Input(2), Operand::Input(3)]);
    let quads = logits.numel().div_ceil(4);
    // Threads of GPUs lie beside each other; on a CPU one thread keeps what a row's elements share.
    let run = match site.limits.class {
        AdapterClass::Cpu => 256,
        AdapterClass::Integrated | AdapterClass::Discrete => 1,
    };
    let params = [quads, rows, logits.last() as u64, run].map(|n| n as u32);
    per_thread(site, kernel, quads.div_ceil(run), memory, &params)
}

/// Labels that one thread counts.
const CHUNK: u64 = 4096;

pub(super) fn label_share(site: &Site) -> Lowered {
    let labels = site.inputs[0].0.numel();
    let chunks = labels.div_ceil(CHUNK);
    let counts = Operand::Workspace(0);
    let params = [labels as u32, CHUNK as u32, chunks as u32];
    let count = per_thread(site, &table::LABEL_COUNT, chunks, vec![Operand::Input(0), counts], &params);
    let share = Launch {
        kernel: &table::LABEL_SHARE,
        constants: Vec::new(),
        memory: vec![counts, Operand::Output(0)],
        params: vec![chunks as u32],
        grid: [1, 1, 1],
    };
    Lowered { launches: vec![count, share], workspace: vec![chunks * 4] }
}
