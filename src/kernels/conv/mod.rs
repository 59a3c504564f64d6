//! Convolutions as implicit matrix products: operands are gathered while they are read, without an im2col
//! buffer. The gradient of the image uses the same kernel with other parameters, one launch per phase of the
//! stride.

mod axis;
mod choice;
mod variants;
mod weight;

use super::elementwise::fused;
use super::grid::per_thread;
use super::norm::batch;
use super::{Kernel, Launch, Lowered, Operand, Site, reduce};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{Activation, Source, Window};
use axis::Axis;
pub(super) use axis::Direction;
use choice::Choice;
pub(super) use variants::TILED64;
pub use variants::{Case, Pass, VARIANTS, Variant, choose};
pub(super) use weight::weight;

use crate::shape::Shape;

static PACK: Kernel = Kernel::new("conv_pack", "conv/pack", &[], &[1, 2], 64, &[&[]]);

pub(super) fn kernels() -> Vec<Kernel> {
    let of = |pass| VARIANTS.iter().flat_map(move |variant| variant.kernels(pass));
    let packs = [false, true].map(|biased| with_bias(&PACK, biased));
    let types =
        |kernel: Kernel| [DType::F32, DType::F16, DType::BF16].map(|image| of_image(kernel.clone(), image));
    packs.into_iter().chain(of(Pass::Image).chain(of(Pass::Weight)).flat_map(types)).collect()
}

/// Returns the kernel, with a bias for each channel if `biased`.
fn with_bias(kernel: &Kernel, biased: bool) -> Kernel {
    if biased { kernel.with("BIAS").suffixed("bias").with_slots(&[4]) } else { kernel.clone() }
}

/// Returns the kernel that applies a batch norm and an activation to its image while reading it.
fn normed(kernel: &Kernel) -> Kernel {
    let kernel = kernel.with("NORMED").suffixed("normed").with_slots(&[5, 6, 7, 8]);
    Kernel { variants: batch::ACTIVATIONS, ..kernel }
}

/// Returns the kernel whose image is two tensors, concatenated along channels.
fn of_two_sources(kernel: &Kernel) -> Kernel {
    kernel.with("TWO_SOURCES").suffixed("two_sources").with_slots(&[5])
}

/// Returns the kernel for an image of this element type.
fn of_image(kernel: Kernel, image: DType) -> Kernel {
    match image {
        DType::F16 => kernel.with("IMAGE_F16").suffixed("f16"),
        DType::BF16 => kernel.with("IMAGE_BF16").suffixed("bf16"),
        _ => kernel,
    }
}

/// Sizes that all launches of one convolution share.
struct Sizes {
    batch: usize,
    groups: usize,
    m: usize,
    kc: usize,
    first: usize,
    taps: usize,
    kernel_w: usize,
    weight_m: usize,
    weight_c: usize,
}

/// Per-channel operands of a batch norm that the convolution applies; they follow its first two operands.
const TERMS: [Operand; 4] = [Operand::Input(2), Operand::Input(3), Operand::Input(4), Operand::Input(5)];

fn activation_code(activation: Activation) -> Vec<(&'static str, f64)> {
    vec![("ACTIVATION", f64::from(batch::code(activation)))]
}

/// Operands of a convolution in addition to its source and weight, and the constants that depend on them.
struct Operands {
    source: Source,
    bias: Option<Operand>,
    rest: Vec<Operand>,
    constants: Vec<(&'static str, f64)>,
    /// Channels of the whole source, and of its first tensor.
    channels: [usize; 2],
}

impl Operands {
    fn of(site: &Site, source: Source) -> Self {
        let [_, first, ..] = image(site.inputs[0].0);
        let count = site.op.main_inputs(site.inputs.len());
        let bias = |at: usize, end: usize| (at < end).then_some(Operand::Input(at));
        let plain =
            Self { source, bias: bias(2, count), rest: vec![], constants: vec![], channels: [first; 2] };
        match source {
            Source::Tensor => plain,
            Source::Normed(activation) => Self {
                bias: bias(2 + TERMS.len(), count),
                rest: TERMS.to_vec(),
                constants: activation_code(activation),
                ..plain
            },
            Source::Joined => {
                let [_, second, ..] = image(site.inputs[count - 1].0);
                Self {
                    bias: bias(2, count - 1),
                    rest: vec![Operand::Input(count - 1)],
                    channels: [first + second, first],
                    ..plain
                }
            }
        }
    }
}

/// Maximum iterations of the loops over taps and channels on CPU adapters: lavapipe ends all loops of a
/// thread after 65,535 iterations in total, without an error. The rest is for loops that store results.
const MAX_ITERATIONS: usize = 65_000;

/// `src, w, terms?, bias?, second source?, epilogue operands? → dst`.
pub(super) fn conv(
    site: &Site,
    window: Window,
    groups: usize,
    source: Source,
    direction: Direction,
) -> Result<Lowered> {
    let operands = Operands::of(site, source);
    let ([batch, _, src_h, src_w], [_, dst_c, dst_h, dst_w]) =
        (image(site.inputs[0].0), image(site.output()));
    let [src_c, first] = operands.channels;
    let (m, kc, taps) = (dst_c / groups, src_c / groups, window.taps());
    let (weight_m, weight_c) = match direction {
        Direction::Forward => (kc * taps, taps),
        Direction::Back => (taps, m * taps),
    };
    let sizes = Sizes { batch, groups, m, kc, first, taps, kernel_w: window.kernel[1], weight_m, weight_c };
    let rows = Axis::phases(direction, window, 0, src_h, dst_h);
    let columns = Axis::phases(direction, window, 1, src_w, dst_w);
    let mut lowered = Lowered::default();
    // The first phase has the most pixels.
    let case = sizes.case(pixels(&sizes, [&rows[0], &columns[0]]));
    let whole = rows.len() * columns.len() == 1;
    let case = Case { divisible: if whole { case.steps } else { 0 }, ..case };
    let biased = operands.bias.is_some();
    let way = Choice::of(site, &case, |variant| variant.image(biased, operands.source));
    let iterations = kc.div_ceil(way.packed_at_once.unwrap_or(1));
    let most = |axes: &[Axis]| axes.iter().map(|axis| axis.taps).max().unwrap_or(0);
    let [y, x] = [most(&rows), most(&columns)];
    // The final test of a loop counts as an iteration.
    if site.limits.class.is_cpu() && y * (2 + x * (2 + iterations)) > MAX_ITERATIONS {
        return Err(too_long(site, kc, [y, x]));
    }
    if let Some(at_once) = way.packed_at_once {
        let (launch, bytes) = pack(site, &sizes, at_once, operands.bias);
        lowered.workspace.push(bytes);
        lowered.launches.push(launch);
    }
    let pieces = match way.packed_at_once {
        None => way.tiling.pieces(&case, site.limits.class),
        Some(_) => 1,
    };
    let to = if pieces == 1 { Operand::Output(0) } else { Operand::Workspace(0) };
    for y in &rows {
        for x in &columns {
            let launch = phase(site, &sizes, &way, &operands, [y, x], (to, pieces));
            lowered.launches.push(if pieces == 1 { fused::with_epilogue(site, launch) } else { launch });
        }
    }
    if pieces > 1 {
        let len = site.output().numel();
        lowered.workspace.push(pieces * len * 4);
        lowered.launches.push(reduce::sum_in_order(site, to, pieces, len));
    }
    Ok(lowered)
}

fn too_long(site: &Site, channels: usize, [y, x]: [usize; 2]) -> Error {
    let (op, adapter) = (site.op.name(), &site.limits.name);
    let [source, weight] = [0, 1].map(|i| site.inputs[i].0);
    Error::unsupported(
        adapter,
        format!(
            "{op} of {source} by {weight}: a sum over {channels} channels of a group and {y}×{x} taps is too long for the software \
         adapter `{adapter}`: its loops would run more than {MAX_ITERATIONS} iterations, and lavapipe ends loops soon after; convolve slices \
         of the channels and add the results, produce fewer channels per convolution and concatenate them if the \
         error is in a gradient, or use a smaller window"
        ),
    )
}

impl Sizes {
    /// Returns the case with a result of `pixels` pixels.
    fn case(&self, pixels: usize) -> Case {
        let [groups, m, kc, columns] = [self.groups, self.m, self.kc, pixels].map(|n| n as u64);
        let steps = kc * self.taps as u64;
        Case { pass: Pass::Image, groups, m, kc, columns, steps, divisible: 0 }
    }
}

/// Returns the pixels of a phase in all images.
fn pixels(sizes: &Sizes, [y, x]: [&Axis; 2]) -> usize {
    sizes.batch * y.count * x.count
}

/// Returns the launch that packs weights into scratch, in the order in which `conv_cpu` reads them (`at_once`
/// source channels per iteration), and the bytes of scratch.
fn pack(site: &Site, sizes: &Sizes, at_once: usize, bias: Option<Operand>) -> (Launch<Operand>, u64) {
    let Sizes { groups, m, kc, taps, weight_m, weight_c, .. } = *sizes;
    let tiles_m = m.div_ceil(16);
    let biases = groups * tiles_m * 16 * at_once;
    let weights = biases * taps * kc.div_ceil(at_once);
    let total = weights + biases;
    let params = [weights, total, tiles_m, m, kc, taps, weight_m, weight_c, at_once].map(|n| n as u32);
    let mut memory = vec![Operand::Input(1), Operand::Workspace(0)];
    memory.extend(bias);
    (per_thread(site, &with_bias(&PACK, bias.is_some()), total as u64, memory, &params), total as u64 * 4)
}

fn phase(
    site: &Site,
    sizes: &Sizes,
    way: &Choice,
    operands: &Operands,
    axes: [&Axis; 2],
    (to, pieces): (Operand, u64),
) -> Launch<Operand> {
    let mut memory = vec![Operand::Input(0), Operand::Input(1), to];
    let Operands { bias, rest, constants, .. } = operands;
    if way.packed_at_once.is_some() {
        memory[1] = Operand::Workspace(0);
    } else {
        memory.extend(*bias);
    }
    memory.extend(rest);
    let (grid, tiles) = way.tiling.grid(&sizes.case(pixels(sizes, axes)), pieces, &way.kernel, site.limits);
    let mut params = vec![grid[0], tiles[0], tiles[1]];
    let Sizes { batch, groups, m, kc, first, taps, kernel_w, weight_m, weight_c } = *sizes;
    params.extend([groups, m, kc, batch, kernel_w, taps, weight_m, weight_c, first].map(|n| n as u32));
    params.extend(axes.iter().flat_map(|axis| axis.words(pieces)));
    Launch {
        kernel: way.kernel.clone(),
        constants: [&constants[..], &way.constants].concat(),
        memory,
        params,
        grid,
    }
}

/// Returns the pairs of a result pixel and a tap of a launch with these parameters, as [`phase`] writes them: its
/// arithmetic relative to that of other phases.
pub(super) fn pairs(params: &[u32]) -> u64 {
    // Two axes of 12 words each follow the first 12; their first word is the number of pixels, the seventh that of taps.
    [12, 18, 24, 30].iter().filter_map(|&at| params.get(at)).map(|&word| u64::from(word)).product()
}

pub(super) fn image(shape: Shape) -> [usize; 4] {
    let dims = shape.dims();
    [dims[0], dims[1], dims[2], dims[3]]
}
