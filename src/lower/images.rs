//! Pooling, batch norm and resampling of images.

use super::conv::image;
use super::grid::{fold, per_thread};
use super::pieces::{Pieces, between, longest_bin, most_bins, most_readers};
use super::{Lowered, Operand, Site, flag};
use crate::error::{Error, Result};
use crate::graph::{Activation, Averaging, Resample, Window};
use crate::kernels::{Kernel, Launch, table};
use crate::limits::AdapterClass;

/// The words of `shaders/prelude/pool.wgsl` after `threads_x`.
fn window_words(total: u64, window: Window, image: [usize; 2], result: [usize; 2]) -> Vec<u32> {
    let Window { kernel, stride, padding, dilation } = window;
    let pairs = [kernel, stride, padding, dilation, image, result];
    [total as u32].into_iter().chain(pairs.as_flattened().iter().map(|&n| n as u32)).collect()
}

fn plane(site: &Site, input: usize) -> [usize; 2] {
    let [_, _, h, w] = image(site.inputs[input].0);
    [h, w]
}

fn result(site: &Site) -> [usize; 2] {
    let [_, _, h, w] = image(site.output());
    [h, w]
}

pub(super) fn max_pool(site: &Site, window: Window) -> Launch<Operand> {
    let total = site.output().numel();
    let params = window_words(total, window, plane(site, 0), result(site));
    let memory = vec![Operand::Input(0), Operand::Output(0), Operand::Output(1)];
    per_thread(site, &table::MAX_POOL, total.div_ceil(4), memory, &params)
}

pub(super) fn max_pool_grad(site: &Site, window: Window) -> Launch<Operand> {
    let total = site.output().numel();
    let params = window_words(total, window, result(site), plane(site, 1));
    let memory = vec![Operand::Input(0), Operand::Input(1), Operand::Output(0)];
    per_thread(site, &table::MAX_POOL_GRAD, total, memory, &params)
}

/// The words of `shaders/prelude/averages.wgsl`, and the kernels of that name.
///
/// # Errors
/// [`Error::Option`] for bins whose bounds do not fit the kernels' integers.
pub(super) fn avg_pool(site: &Site, over: Averaging, back: bool) -> Result<Lowered> {
    let (constants, window) = match over {
        Averaging::Adaptive(_) => (vec![("ADAPTIVE", 1.0)], Window::square(1)),
        Averaging::Window { window, count_padding } => (vec![("COUNT_PADDING", flag(count_padding))], window),
    };
    let (from, to) = (plane(site, 0), result(site));
    let (kernel, image, result) =
        if back { (&table::AVG_POOL_GRAD, to, from) } else { (&table::AVG_POOL, from, to) };
    if matches!(over, Averaging::Adaptive(_)) {
        check_axes(site, image, result)?;
    }
    let longest = if back { most_bins } else { longest_bin };
    let pieces = Pieces::of([0, 1].map(|axis| longest(over, axis, image[axis] as u64, result[axis] as u64)));
    let mut words = window_words(site.output().numel(), window, image, result);
    words.extend(pieces.words());
    Ok(pieces.lower(site, kernel, &words, constants))
}

/// Kernels relate the pixels of two axes by products of 32 bits.
fn check_axes(site: &Site, image: [usize; 2], result: [usize; 2]) -> Result<()> {
    const MOST: u64 = 1 << 30;
    for (h, r) in image.into_iter().zip(result) {
        if (h as u64 + 1).saturating_mul(r as u64 + 1) > MOST {
            let op = site.op.name();
            return Err(Error::Option(format!(
                "{op}: an axis of {h} pixels and one of {r}: their product is {}, at most {MOST} fit the kernels' integers; cut \
                 the image into slices along it",
                h as u64 * r as u64
            )));
        }
    }
    Ok(())
}

/// The words of `shaders/prelude/resample.wgsl` after `threads_x`.
fn resample_words(
    site: &Site,
    mode: Resample,
    pieces: &Pieces,
    [image, result]: [[usize; 2]; 2],
) -> Vec<u32> {
    let mut words = vec![site.output().numel() as u32];
    words.extend(pieces.words());
    words.extend([0; 2]);
    for axis in 0..2 {
        let [scale, shift, unit] = between(mode, image[axis], result[axis]);
        words.extend([
            image[axis] as u32,
            result[axis] as u32,
            scale as u32,
            shift as i32 as u32,
            unit as u32,
        ]);
        words.extend([0; 3]);
    }
    words
}

pub(super) fn resample(site: &Site, mode: Resample) -> Result<Launch<Operand>> {
    check_axes(site, plane(site, 0), result(site))?;
    let words = resample_words(site, mode, &Pieces::of([1; 2]), [plane(site, 0), result(site)]);
    let memory = vec![Operand::Input(0), Operand::Output(0)];
    let mut launch = per_thread(site, &table::RESAMPLE, site.output().numel(), memory, &words);
    launch.constants = nearest(mode);
    Ok(launch)
}

pub(super) fn resample_grad(site: &Site, mode: Resample) -> Result<Lowered> {
    let [image, result] = [result(site), plane(site, 0)];
    check_axes(site, image, result)?;
    let pieces = Pieces::of([0, 1].map(|axis| most_readers(mode, image[axis], result[axis])));
    let words = resample_words(site, mode, &pieces, [image, result]);
    Ok(pieces.lower(site, &table::RESAMPLE_GRAD, &words, nearest(mode)))
}

fn nearest(mode: Resample) -> Vec<(&'static str, f64)> {
    vec![("NEAREST", flag(mode == Resample::Nearest))]
}

/// The number of `shaders/prelude/activation.wgsl`.
pub(super) fn code(activation: Activation) -> u32 {
    match activation {
        Activation::None => 0,
        Activation::Relu => 1,
        Activation::Relu6 => 2,
    }
}

/// Most elements that one thread sums over: below the 65,535 turns at which lavapipe ends loops.
const MAX_PART: u64 = 16_384;

/// A channel's elements, cut into parts for the adapter.
struct Channels {
    channels: u64,
    plane: u64,
    count: u64,
    parts: u64,
    part_len: u64,
}

impl Channels {
    fn of(site: &Site) -> Self {
        let [n, c, h, w] = image(site.inputs[0].0).map(|dim| dim as u64);
        let count = n * h * w;
        let (jobs, smallest, longest) = match site.limits.class {
            AdapterClass::Cpu => (64, 256, MAX_PART),
            AdapterClass::Integrated | AdapterClass::Discrete => (1024, 2048, MAX_PART * 128),
        };
        let wanted = (jobs / c).min(count / smallest).max(count.div_ceil(longest)).max(1);
        let part_len = count.div_ceil(wanted);
        Self { channels: c, plane: h * w, count, parts: count.div_ceil(part_len), part_len }
    }

    fn launch(
        &self,
        site: &Site,
        kernel: &'static Kernel,
        jobs: u64,
        memory: Vec<Operand>,
        rest: [u32; 3],
    ) -> Launch<Operand> {
        let together = kernel.workgroup == table::BATCH_STATS_WG.workgroup;
        let groups = if together { jobs } else { jobs.div_ceil(u64::from(kernel.workgroup)) };
        let grid = fold(groups, site.limits.max_workgroups);
        let Self { channels, plane, count, parts, part_len } = *self;
        let mut params = vec![grid[0]];
        params.extend([channels, plane, count, parts, part_len].map(|n| n as u32));
        params.extend(rest);
        Launch { kernel, constants: Vec::new(), memory, params, grid }
    }

    /// Sums of parts by one kernel, put together by another.
    fn sums(
        &self,
        site: &Site,
        kernels: [&'static Kernel; 3],
        first: &[Operand],
        then: &[Operand],
        rest: [u32; 3],
    ) -> Vec<Launch<Operand>> {
        let [alone, together, end] = kernels;
        let kernel = if site.limits.class == AdapterClass::Cpu { alone } else { together };
        let sums = [first, &[Operand::Workspace(0)]].concat();
        let ends = [&[Operand::Workspace(0)], then].concat();
        vec![
            self.launch(site, kernel, self.channels * self.parts, sums, rest),
            self.launch(site, end, self.channels, ends, rest),
        ]
    }

    fn scratch(&self) -> u64 {
        2 * self.parts * self.channels * 4
    }
}

pub(super) fn batch_stats(site: &Site, eps: f32) -> Lowered {
    let channels = Channels::of(site);
    let kernels = [&table::BATCH_STATS, &table::BATCH_STATS_WG, &table::BATCH_STATS_END];
    let then = [0, 1, 2].map(Operand::Output);
    let launches = channels.sums(site, kernels, &[Operand::Input(0)], &then, [eps.to_bits(), 0, 0]);
    Lowered { launches, workspace: vec![channels.scratch()] }
}

/// One thread for each element, or for four where no four lie in two channels.
fn elements(
    site: &Site,
    [one, one_over]: [&'static Kernel; 2],
    [four, four_over]: [&'static Kernel; 2],
    memory: Vec<Operand>,
    activation: Activation,
) -> Launch<Operand> {
    let [_, c, h, w] = image(site.inputs[0].0).map(|dim| dim as u64);
    let width = if h * w % 4 == 0 { 4 } else { 1 };
    let kernel = match (width, site.in_place) {
        (1, None) => one,
        (1, _) => one_over,
        (_, None) => four,
        _ => four_over,
    };
    let total = site.inputs[0].0.numel() / width;
    let params = [total as u32, (h * w / width) as u32, c as u32];
    let mut launch = per_thread(site, kernel, total, memory, &params);
    launch.constants = vec![("ACTIVATION", f64::from(code(activation)))];
    launch
}

pub(super) fn batch_norm(site: &Site, activation: Activation) -> Launch<Operand> {
    let memory = site.placed(0, &[1, 2, 3, 4].map(Operand::Input));
    let [four, four_over, ..] = &table::BATCH_NORM_FOURS;
    let one = [&table::BATCH_NORM, &table::BATCH_NORM_IN_PLACE];
    elements(site, one, [four, four_over], memory, activation)
}

pub(super) fn batch_norm_grad(site: &Site, activation: Activation, training: bool) -> Lowered {
    let channels = Channels::of(site);
    let kernels = [&table::BATCH_NORM_SUMS, &table::BATCH_NORM_SUMS_WG, &table::BATCH_NORM_SUMS_END];
    let first = [0, 5, 1, 2, 3, 4].map(Operand::Input);
    let both = Operand::Workspace(1);
    let then = [
        Operand::Input(1),
        Operand::Input(2),
        Operand::Input(3),
        Operand::Input(4),
        Operand::Output(1),
        Operand::Output(2),
        both,
    ];
    let mut launches =
        channels.sums(site, kernels, &first, &then, [0, code(activation), u32::from(training)]);
    let memory = site.placed(5, &[Operand::Input(0), both]);
    let [.., four, four_over] = &table::BATCH_NORM_FOURS;
    let one = [&table::BATCH_NORM_GRAD, &table::BATCH_NORM_GRAD_IN_PLACE];
    launches.push(elements(site, one, [four, four_over], memory, activation));
    Lowered { launches, workspace: vec![channels.scratch(), channels.channels * 32] }
}

pub(super) fn running_stats(site: &Site, momentum: f32, unbias: f32) -> Launch<Operand> {
    let channels = site.inputs[0].0.numel();
    let params = [channels as u32, momentum.to_bits(), unbias.to_bits()];
    let memory = [0, 1, 2, 3].map(Operand::Input).to_vec();
    per_thread(site, &table::RUNNING_STATS, channels, memory, &params)
}
