//! Gates and states of the steps of recurrent layers.

use super::grid::per_thread;
use super::{Kernel, Launch, Operand, Site};
use crate::graph::Gates;

static LSTM: Kernel = Kernel::new("lstm_gates", "recurrent/gates", &["LSTM"], &[1, 2, 3, 4], 64, &[&[]]);
static LSTM_GRAD: Kernel = Kernel::new(
    "lstm_gates_grad",
    "recurrent/gates",
    &["LSTM", "GRADIENT"],
    &[1, 2, 3, 4, 5, 6, 7],
    64,
    &[&[]],
);
static GRU: Kernel = Kernel::new("gru_gates", "recurrent/gates", &[], &[1, 2, 3, 4], 64, &[&[]]);
static GRU_GRAD: Kernel =
    Kernel::new("gru_gates_grad", "recurrent/gates", &["GRADIENT"], &[1, 2, 3, 4, 5, 6, 7], 64, &[&[]]);

pub(super) fn kernels() -> Vec<Kernel> {
    [&LSTM, &LSTM_GRAD, &GRU, &GRU_GRAD].map(Kernel::clone).to_vec()
}

pub(super) fn gates(site: &Site, gates: Gates) -> Launch<Operand> {
    launch(site, if gates == Gates::Lstm { &LSTM } else { &GRU }, gates)
}

pub(super) fn gates_grad(site: &Site, gates: Gates) -> Launch<Operand> {
    launch(site, if gates == Gates::Lstm { &LSTM_GRAD } else { &GRU_GRAD }, gates)
}

fn launch(site: &Site, kernel: &Kernel, gates: Gates) -> Launch<Operand> {
    let size = site.inputs[0].0.last() / gates.count();
    let (rows, quads) = (site.inputs[0].0.dims()[0], size.div_ceil(4));
    let jobs = rows as u64 * quads as u64;
    let inputs = (0..site.inputs.len()).map(Operand::Input);
    let memory = inputs.chain((0..site.outputs.len()).map(Operand::Output)).collect();
    per_thread(site, kernel, jobs, memory, &[jobs as u32, quads as u32, size as u32])
}
