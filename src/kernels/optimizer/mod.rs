//! Optimizer updates: one dispatch per parameter, or per segment of small ones, over vec4s or over blocks of
//! elements.

pub(super) mod loss_scale;

use super::grid::{per_thread, quads};
use super::kernel::Variants;
use super::lower::flag;
use super::{Kernel, Launch, Operand, Site, split};
use crate::dtype::DType;
use crate::graph::{MomentCodes, Stored, Update};
use crate::limits::AdapterClass;

/// Binding of what corrects weights, after those of every update.
const CORRECTION_SLOT: u32 = 7;

/// The kernel of an update for weights of 32 bits, and the constants of its forms for weights of 16 bits.
struct UpdateKernel {
    kernel: Kernel,
    half_variants: Variants,
}

macro_rules! update {
    ($id:ident, $name:literal, $module:literal, [$($define:literal),*], $slots:expr, $workgroup:literal, $([$($constant:expr),*])*) => {
        static $id: UpdateKernel = UpdateKernel {
            kernel: Kernel::new($name, $module, &["VEC4", "HELD_SECOND", $($define),*], $slots, $workgroup, &[$(&[$($constant),*]),*]),
            half_variants: &[$(&[$($constant,)* ("STOCHASTIC", 0.0)], &[$($constant,)* ("STOCHASTIC", 1.0)]),*],
        };
    };
}

update!(SGD, "sgd", "optimizer/sgd", [], &[1, 2, 3], 64, [("CORRECTED", 0.0)][("CORRECTED", 1.0)]);
update!(
    MOMENTUM,
    "momentum",
    "optimizer/sgd",
    ["MOMENTUM"],
    &[1, 2, 3, 4],
    64,
    [("NESTEROV", 0.0)][("NESTEROV", 1.0)]
);
update!(ADAM, "adam", "optimizer/adam", [], &[1, 2, 3, 4, 5], 256, [("DECOUPLED", 0.0)][("DECOUPLED", 1.0)]);
update!(
    AMSGRAD,
    "adam_amsgrad",
    "optimizer/adam",
    ["AMSGRAD"],
    &[1, 2, 3, 4, 5, 6],
    256,
    [("DECOUPLED", 0.0)][("DECOUPLED", 1.0)]
);
update!(RMSPROP, "rmsprop", "optimizer/rmsprop", [], &[1, 2, 3, 4], 64, []);
update!(RMSPROP_MOMENTUM, "rmsprop_momentum", "optimizer/rmsprop", ["MOMENTUM"], &[1, 2, 3, 4, 5], 64, []);
update!(LION, "lion", "optimizer/lion", [], &[1, 2, 3, 4], 64, []);
update!(ADAFACTOR, "adafactor", "optimizer/adafactor", [], &[1, 2, 3, 4, 5], 64, []);
update!(ADAM_MINI, "adam_mini", "optimizer/adam_mini", [], &[1, 2, 3, 4, 5], 64, []);
macro_rules! coded {
    ($id:ident, $name:literal, [$($define:literal),*], $workgroup:literal) => {
        update!(
            $id,
            $name,
            "optimizer/adam_codes",
            [$($define),*],
            &[1, 2, 3, 4, 5, 6],
            $workgroup,
            [("TAIL", 1.0)][("TAIL", 4.0)]
        );
    };
}
coded!(ADAM8, "adam8", [], 8);
coded!(ADAM8_WG, "adam8_wg", ["WORKGROUP"], 64);
coded!(ADAM4, "adam4", ["FOUR_BITS"], 8);
coded!(ADAM4_WG, "adam4_wg", ["FOUR_BITS", "WORKGROUP"], 64);
static MOVING_AVERAGE: Kernel =
    Kernel::new("moving_average", "optimizer/moving_average", &["VEC4"], &[1, 2, 3, 4], 64, &[&[]]);

impl UpdateKernel {
    /// Whether its constants say how many elements the last vec4 has: moments past the end are in no block.
    fn knows_tail(&self) -> bool {
        self.kernel.variants.iter().flat_map(|constants| *constants).any(|(name, _)| *name == "TAIL")
    }

    /// Returns the kernel for weights and gradients of these element types; `corrected` weights are `bf16`.
    fn of(&self, weights: DType, corrected: bool, gradient: DType) -> Kernel {
        let half = |define, suffix| Kernel {
            variants: self.half_variants,
            ..self.kernel.with(define).suffixed(suffix)
        };
        let kernel = match weights {
            _ if corrected => {
                let mut kernel = self.kernel.with("BF16").with("CORRECTION").suffixed("bf24");
                kernel.slots.to_mut().push(CORRECTION_SLOT);
                kernel
            }
            DType::F16 => half("F16", "f16"),
            DType::BF16 => half("BF16", "bf16"),
            _ => self.kernel.clone(),
        };
        kernel.holding(gradient)
    }
}

/// Whether updates read gradients of 16 bits into weights of this type: a source has one form of 16 bits.
pub(crate) fn updates_by(weights: DType, gradient: DType) -> bool {
    weights == gradient || [weights, gradient].contains(&DType::F32)
}

pub(super) fn kernels() -> Vec<Kernel> {
    let updates = [
        &SGD,
        &MOMENTUM,
        &ADAM,
        &AMSGRAD,
        &RMSPROP,
        &RMSPROP_MOMENTUM,
        &LION,
        &ADAFACTOR,
        &ADAM_MINI,
        &ADAM8,
        &ADAM8_WG,
        &ADAM4,
        &ADAM4_WG,
    ];
    let types = Kernel::HELD.into_iter().flat_map(|weights| Kernel::HELD.map(|gradient| (weights, gradient)));
    let types: Vec<_> = types.filter(|(weights, gradient)| updates_by(*weights, *gradient)).collect();
    let of = |update: &UpdateKernel| {
        let of = |&(weights, gradient): &(DType, DType)| {
            let corrected = (weights == DType::BF16).then(|| update.of(weights, true, gradient));
            [Some(update.of(weights, false, gradient)), corrected]
        };
        types.iter().flat_map(of).flatten().collect::<Vec<_>>()
    };
    let updates = updates.into_iter().flat_map(of);
    updates.chain([MOVING_AVERAGE.clone()]).chain(loss_scale::kernels()).collect()
}

/// How updated weights are rounded.
#[derive(Clone, Copy)]
pub(super) struct Storing {
    pub stored: Stored,
    /// Number of the first updated element in its parameter, a multiple of 4: random bits are drawn by number.
    pub first: u64,
}

pub(super) fn update(site: &Site, update: &Update, rate: f32, storing: Storing) -> Launch<Operand> {
    let count = quads(site.inputs[0].0.numel());
    let memory: Vec<Operand> = (0..site.inputs.len()).map(Operand::Input).collect();
    let each = adam_quads(site.limits.class, count);
    let (kernel, constants, mut settings) = match *update {
        Update::Sgd { weight_decay, corrected } => {
            (&SGD, vec![("CORRECTED", flag(corrected))], vec![weight_decay, 0.0])
        }
        Update::Momentum { momentum, weight_decay, nesterov } => {
            (&MOMENTUM, vec![("NESTEROV", flag(nesterov))], vec![weight_decay, momentum])
        }
        Update::Adam { beta1, beta2, eps, weight_decay, decoupled, amsgrad } => {
            let kernel = if amsgrad { &AMSGRAD } else { &ADAM };
            let settings = vec![beta1, beta2, eps, weight_decay, f32::from_bits(each)];
            (kernel, vec![("DECOUPLED", flag(decoupled))], settings)
        }
        Update::RmsProp { keep, take, eps, momentum, weight_decay } => {
            let kernel = if momentum == 0.0 { &RMSPROP } else { &RMSPROP_MOMENTUM };
            (kernel, vec![], vec![keep, take, eps, momentum, weight_decay])
        }
        Update::Lion { beta1, beta2, weight_decay } => (&LION, vec![], vec![beta1, beta2, weight_decay]),
        Update::Adafactor { eps, clip, weight_decay } => {
            let n = site.inputs[0].0.numel() as f32;
            (&ADAFACTOR, vec![], vec![n, eps, clip, weight_decay])
        }
        Update::AdamMini { beta1, eps, weight_decay } => {
            // A whole number among floats, as its bits.
            let columns = site.inputs[0].0.numel() / site.inputs[4].0.numel().max(1);
            (&ADAM_MINI, vec![], vec![beta1, eps, weight_decay, f32::from_bits(columns as u32)])
        }
        Update::AdamCodes { codes, beta1, beta2, eps, weight_decay } => {
            return adam_codes(site, codes, memory, &[beta1, beta2, eps, weight_decay, rate], storing);
        }
    };
    settings.push(rate);
    let threads = match update {
        Update::Adam { .. } => count.div_ceil(each * kernel.kernel.workgroup) * kernel.kernel.workgroup,
        _ => count,
    };
    launch(site, kernel, (count, u64::from(threads)), memory, &settings, constants, storing)
}

/// Returns how many of `count` vec4s a thread of Adam processes: four, or one where a GPU would have too few workgroups.
fn adam_quads(class: AdapterClass, count: u32) -> u32 {
    if split::threads_fill(class, u64::from(count.div_ceil(4)), ADAM.kernel.workgroup) { 4 } else { 1 }
}

/// Returns the launch over `quads` vec4s by `threads` threads, of the kernel for the weight's element type.
fn launch(
    site: &Site,
    kernel: &UpdateKernel,
    (quads, threads): (u32, u64),
    memory: Vec<Operand>,
    settings: &[f32],
    mut constants: Vec<(&'static str, f64)>,
    Storing { stored, first }: Storing,
) -> Launch<Operand> {
    let (shape, weights) = site.inputs[0];
    let key = match stored {
        Stored::Stochastic(key) if weights.is_half() => key,
        _ => 0,
    };
    let corrected = stored == Stored::Corrected;
    if weights.is_half() && !corrected {
        constants.push(("STOCHASTIC", flag(stored != Stored::Nearest)));
    }
    if corrected || kernel.knows_tail() {
        constants.push(("TAIL", ((shape.numel() - 1) % 4 + 1) as f64));
    }
    let mut params = vec![quads];
    params.extend(settings.iter().map(|setting| setting.to_bits()));
    params.extend([key, (first / 4) as u32]);
    let mut launch =
        per_thread(site, &kernel.of(weights, corrected, site.inputs[1].1), threads, memory, &params);
    launch.constants = constants;
    launch
}

fn adam_codes(
    site: &Site,
    codes: MomentCodes,
    memory: Vec<Operand>,
    settings: &[f32],
    storing: Storing,
) -> Launch<Operand> {
    let n = site.inputs[0].0.numel();
    let of_threads = site.limits.class.is_cpu();
    let kernel = match (codes, of_threads) {
        (MomentCodes::Eight, true) => &ADAM8,
        (MomentCodes::Eight, false) => &ADAM8_WG,
        (MomentCodes::Four, true) => &ADAM4,
        (MomentCodes::Four, false) => &ADAM4_WG,
    };
    let workgroup = u64::from(kernel.kernel.workgroup);
    let threads =
        if of_threads { n.div_ceil(codes.block()) } else { codes.words(n).next_multiple_of(workgroup) };
    launch(site, kernel, (quads(n), threads), memory, settings, Vec::new(), storing)
}

pub(super) fn moving_average(site: &Site, scale: f32, share: Option<f32>) -> Launch<Operand> {
    let count = quads(site.output().numel());
    let mut memory: Vec<Operand> = (0..site.inputs.len()).map(Operand::Input).collect();
    memory.push(Operand::Output(0));
    per_thread(
        site,
        &MOVING_AVERAGE,
        u64::from(count),
        memory,
        &[count, scale.to_bits(), share.unwrap_or(0.0).to_bits()],
    )
}
