//! Dynamic loss scaling: one thread updates the scale; gradients that are not finite set a flag.

use crate::dtype::DType;
use crate::graph::{Counting, LossScale};
use crate::kernels::grid::per_thread;
use crate::kernels::split::threads_fill;
use crate::kernels::{Kernel, Launch, Lowered, Operand, Site, movement};
use crate::limits::AdapterClass;

static SEED: Kernel = Kernel::new("loss_scale_seed", "optimizer/loss_scale", &["SEED"], &[1, 2], 1, &[&[]]);
static LOSS_SCALE: Kernel =
    Kernel::new("loss_scale", "optimizer/loss_scale", &[], &[1, 2, 3, 4, 5], 1, &[&[]]);
static NOT_FINITE: Kernel = Kernel::new("not_finite", "optimizer/not_finite", &[], &[1, 2], 64, &[&[]]);

/// Names for which a kernel reads a second tensor, a third, and so on: as many as there are bindings on every
/// adapter, with the flag.
const MORE: [&str; 6] = ["X1", "X2", "X3", "X4", "X5", "X6"];

/// Returns the kernel that checks this many tensors.
fn checking(tensors: usize) -> Kernel {
    let more = MORE.iter().zip(3..).take(tensors - 1);
    let kernel = more.fold(NOT_FINITE.clone(), |kernel, (name, slot)| kernel.with(name).with_slots(&[slot]));
    if tensors == 1 { kernel } else { kernel.suffixed(&tensors.to_string()) }
}

pub(super) fn kernels() -> Vec<Kernel> {
    let checks = (1..=MORE.len() + 1).map(checking);
    [&SEED, &LOSS_SCALE].into_iter().cloned().chain(checks).collect()
}

fn one_thread(kernel: &Kernel, memory: Vec<Operand>, params: Vec<u32>) -> Launch<Operand> {
    Launch { kernel: kernel.clone(), constants: Vec::new(), memory, params, grid: [1, 1, 1] }
}

pub(in crate::kernels) fn seed(site: &Site, start: f32) -> Launch<Operand> {
    debug_assert_eq!(site.inputs[0].0.numel(), 4);
    let memory = vec![Operand::Input(0), Operand::Output(0)];
    one_thread(&SEED, memory, vec![start.to_bits()])
}

/// Most threads of a check, and most vec4s of one thread: below the 65,535 iterations at which lavapipe ends loops.
const THREADS: u64 = 1 << 17;
const MOST: u64 = 50_000;

/// Returns the bits of the smallest magnitude that counts: infinity, or of 16 bits the largest number.
fn least(dtype: DType) -> u32 {
    match dtype {
        DType::F16 => u32::from(half::f16::MAX.to_bits()),
        DType::BF16 => u32::from(half::bf16::MAX.to_bits()),
        _ => f32::INFINITY.to_bits(),
    }
}

/// Copies the flag if it is not in place, and checks a few tensors in each launch.
pub(in crate::kernels) fn not_finite(site: &Site) -> Lowered {
    let mut launches = Vec::new();
    if site.in_place.is_none() {
        launches.push(movement::copy(site, 0));
    }
    let tensors: Vec<usize> = (1..site.inputs.len()).filter(|&i| site.inputs[i].0.numel() > 0).collect();
    for few in tensors.chunks(MORE.len() + 1) {
        let lengths = few.iter().map(|&i| site.inputs[i].0.numel());
        let quads: u64 =
            few.iter().map(|&i| site.inputs[i].1.bytes(site.inputs[i].0.numel()).div_ceil(16)).sum();
        let kernel = checking(few.len());
        let class = site.limits.class;
        let own = match class {
            AdapterClass::Cpu => 256,
            class if threads_fill(class, quads.div_ceil(8), kernel.workgroup) => 8,
            _ => 1,
        };
        let threads = quads.div_ceil(own).min(THREADS).max(quads.div_ceil(MOST));
        let threads = threads.next_multiple_of(u64::from(kernel.workgroup));
        let mut params = vec![threads as u32];
        params.extend(lengths.map(|n| n as u32));
        params.resize(2 + MORE.len(), 0);
        params.extend(few.iter().map(|&i| least(site.inputs[i].1)));
        let memory =
            std::iter::once(Operand::Output(0)).chain(few.iter().map(|&i| Operand::Input(i))).collect();
        launches.push(per_thread(site, &kernel, threads, memory, &params));
    }
    Lowered { launches, workspace: Vec::new() }
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
