//! The kernels and the gradient of cross-entropy, and the share of labels that count.

use crate::kernels::grid::per_thread;
use crate::kernels::{Kernel, Launch, Lowered, Operand, Site, and_in_place};
use crate::limits::AdapterClass;

pub(super) static CROSS_ENTROPY: Kernel =
    Kernel::new("cross_entropy", "softmax/cross_entropy", &["VEC4"], &[1, 2, 3, 4], 8, &[&[]]);
pub(super) static CROSS_ENTROPY_WG: Kernel =
    Kernel::new("cross_entropy_wg", "softmax/cross_entropy", &["WORKGROUP"], &[1, 2, 3, 4], 128, &[&[]]);
static GRAD: Kernel =
    Kernel::new("cross_entropy_grad", "softmax/cross_entropy_grad", &["VEC4"], &[1, 2, 3, 4, 5], 64, &[&[]]);
static LABEL_SHARE: Kernel =
    Kernel::new("label_share", "softmax/cross_entropy", &["LABEL_SHARE"], &[1, 2], 8, &[&[]]);

pub(super) fn kernels() -> Vec<Kernel> {
    let others = [&CROSS_ENTROPY, &CROSS_ENTROPY_WG, &LABEL_SHARE].map(Kernel::clone);
    [and_in_place(std::slice::from_ref(&GRAD)), others.to_vec()].concat()
}

pub(in crate::kernels) fn grad(site: &Site) -> Launch<Operand> {
    let (logits, rows) = (site.inputs[0].0, site.inputs[1].0.numel());
    let memory = site.placed(0, &[Operand::Input(1), Operand::Input(2), Operand::Input(3)]);
    let quads = logits.numel().div_ceil(4);
    // Consecutive vec4s per thread: on GPUs one, for coalesced access; on a CPU many, because a thread reuses
    // the values that the elements of a row share.
    let run = match site.limits.class {
        AdapterClass::Cpu => 256,
        AdapterClass::Integrated | AdapterClass::Discrete => 1,
    };
    let dloss_step = u64::from(site.inputs[3].0.numel() > 1);
    let params = [quads, rows, logits.last() as u64, run, dloss_step].map(|n| n as u32);
    per_thread(site, &site.variant(&GRAD), quads.div_ceil(run), memory, &params)
}

pub(in crate::kernels) fn label_share(site: &Site) -> Lowered {
    let labels = site.inputs[0].0.numel();
    // On GPUs a thread waits long for each label, so that chunks are smaller.
    let least = if site.limits.class.is_cpu() { 4096 } else { 128 };
    let chunk = labels.isqrt().max(least);
    let launch = |from, to, n: u64, chunk: u64, counts: bool| {
        // With no labels one thread still writes the share.
        let threads = n.div_ceil(chunk).max(1);
        let params = [n, chunk, threads, u64::from(counts)].map(|n| n as u32);
        per_thread(site, &LABEL_SHARE, threads, vec![from, to], &params)
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
