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
    let dloss_step = u64::from(site.inputs[3].0.numel() > 1);
    let params = [quads, rows, logits.last() as u64, run, dloss_step].map(|n| n as u32);
    per_thread(site, kernel, quads.div_ceil(run), memory, &params)
}

pub(super) fn label_share(site: &Site) -> Lowered {
    let labels = site.inputs[0].0.numel();
    // A thread of a GPU waits long for each label.
    let least = if site.limits.class.is_cpu() { 4096 } else { 128 };
    let chunk = labels.isqrt().max(least);
    let launch = |from, to, n: u64, chunk: u64, counts: bool| {
        // Of no labels one thread makes a share, too.
        let threads = n.div_ceil(chunk).max(1);
        let params = [n, chunk, threads, u64::from(counts)].map(|n| n as u32);
        per_thread(site, &table::LABEL_SHARE, threads, vec![from, to], &params)
    };
    let (from, share) = (Operand::Input(0), Operand::Output(0));
    if labels <= chunk {
        return launch(from, share, labels, chunk, false).into();
    }
    let (counts, chunks) = (Operand::Workspace(0), labels.div_ceil(chunk));
    let launches =
        vec![launch(from, counts, labels, chunk, false), launch(counts, share, chunks, chunks, true)];
    Lowered { launches, workspace: vec![chunks * 4] }
}
