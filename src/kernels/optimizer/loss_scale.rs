//! Dynamic loss scaling: one thread updates the scale; gradients that are not finite are counted in chunks.

use crate::dtype::DType;
use crate::graph::{Counting, LossScale};
use crate::kernels::grid::per_thread;
use crate::kernels::{Kernel, Launch, Lowered, Operand, Site};

static SEED: Kernel = Kernel::new("loss_scale_seed", "optimizer/loss_scale", &["SEED"], &[1, 2], 1, &[&[]]);
static LOSS_SCALE: Kernel =
    Kernel::new("loss_scale", "optimizer/loss_scale", &[], &[1, 2, 3, 4, 5], 1, &[&[]]);
static NOT_FINITE: Kernel = Kernel::new("not_finite", "optimizer/not_finite", &[], &[1, 2], 8, &[&[]]);
static NOT_FINITE_END: Kernel =
    Kernel::new("not_finite_end", "optimizer/not_finite", &["END"], &[1, 2], 1, &[&[]]);

pub(super) fn kernels() -> Vec<Kernel> {
    [&SEED, &LOSS_SCALE, &NOT_FINITE, &NOT_FINITE_END].map(Kernel::clone).to_vec()
}

fn one_thread(kernel: &Kernel, memory: Vec<Operand>, params: Vec<u32>) -> Launch<Operand> {
    Launch { kernel: kernel.clone(), constants: Vec::new(), memory, params, grid: [1, 1, 1] }
}

pub(in crate::kernels) fn seed(site: &Site, start: f32) -> Launch<Operand> {
    debug_assert_eq!(site.inputs[0].0.numel(), 4);
    let memory = vec![Operand::Input(0), Operand::Output(0)];
    one_thread(&SEED, memory, vec![start.to_bits()])
}

/// Elements that one thread checks, unless there would be more chunks than the last thread may add up.
const CHUNK: u64 = 1024;
const MOST_CHUNKS: u64 = 32_768;

pub(in crate::kernels) fn not_finite(site: &Site, held: DType) -> Lowered {
    let n = site.inputs[0].0.numel();
    let chunk = CHUNK.max(n.div_ceil(MOST_CHUNKS));
    let chunks = n.div_ceil(chunk);
    let counts = Operand::Workspace(0);
    let params = [n as u32, chunk as u32, chunks as u32, held.largest().to_bits()];
    let count = per_thread(site, &NOT_FINITE, chunks, vec![Operand::Input(0), counts], &params);
    let end = one_thread(&NOT_FINITE_END, vec![counts, Operand::Output(0)], vec![chunks as u32]);
    Lowered { launches: vec![count, end], workspace: vec![chunks * 4] }
}

pub(in crate::kernels) fn judge(settings: LossScale, counting: Counting, early: bool) -> Launch<Operand> {
    // ln 0 = -∞ becomes -1000: β = 0 still forgets everything in one step.
    let ln = |beta: f32| f64::from(beta).ln().max(-1e3);
    let (kind, [a, b, c, d]) = match counting {
        Counting::Nothing => (0, [0.0; 4]),
        Counting::Adam(beta1, beta2) => (1, [ln(beta1), ln(beta2), 0.0, 0.0]),
        Counting::Adafactor(exponent) => (2, [f64::from(exponent), 0.0, 0.0, 0.0]),
        Counting::NAdam(beta1, beta2, decay) => {
            (3, [ln(beta1), ln(beta2), f64::from(decay) * 0.96f64.ln(), 0.0])
        }
        Counting::RAdam(beta1, beta2) => {
            let most = 2.0 / (1.0 - f64::from(beta2)) - 1.0;
            (4, [ln(beta1), ln(beta2), most, most + 2.0 / ln(beta2)])
        }
        Counting::Adagrad(growth) => (5, [f64::from(growth), 0.0, 0.0, 0.0]),
    };
    let interval = settings.interval as f32;
    let [a, b, c, d] = [a, b, c, d].map(|x| (x as f32).to_bits());
    let params = vec![settings.start.to_bits(), interval.to_bits(), kind, a, b, c, d, u32::from(early)];
    let mut memory: Vec<Operand> = (0..3).map(Operand::Input).collect();
    memory.extend([Operand::Output(0), Operand::Output(1)]);
    one_thread(&LOSS_SCALE, memory, params)
}
