//! Pooling and resampling of images.

mod pieces;

use super::conv::image;
use super::grid::per_thread;
use super::kernel::Variants;
use super::lower::flag;
use super::{Kernel, Launch, Lowered, Operand, Site};
use pieces::{Pieces, between, longest_bin, most_bins, most_readers};

use crate::error::{Error, Result};
use crate::graph::{Averaging, Resample, Window};

const AVERAGED: Variants = &[&[("COUNT_PADDING", 0.0)], &[("COUNT_PADDING", 1.0)], &[("ADAPTIVE", 1.0)]];
const NEAREST: Variants = &[&[("NEAREST", 0.0)], &[("NEAREST", 1.0)]];

static MAX_POOL: Kernel = Kernel::new("max_pool", "pool/max_pool", &[], &[1, 2, 3], 64, &[&[]]);
static MAX_POOL_GRAD: Kernel =
    Kernel::new("max_pool_grad", "pool/max_pool", &["GRADIENT"], &[1, 2, 3], 64, &[&[]]);
static AVG_POOL: Kernel = Kernel::new("avg_pool", "pool/avg_pool", &[], &[1, 2], 64, AVERAGED);
static AVG_POOL_GRAD: Kernel =
    Kernel::new("avg_pool_grad", "pool/avg_pool", &["GRADIENT"], &[1, 2], 64, AVERAGED);
static RESAMPLE: Kernel = Kernel::new("resample", "pool/resample", &[], &[1, 2], 64, NEAREST);
static RESAMPLE_GRAD: Kernel =
    Kernel::new("resample_grad", "pool/resample", &["GRADIENT"], &[1, 2], 64, NEAREST);

pub(super) fn kernels() -> Vec<Kernel> {
    let all = [&MAX_POOL, &MAX_POOL_GRAD, &AVG_POOL, &AVG_POOL_GRAD, &RESAMPLE, &RESAMPLE_GRAD];
    all.map(Kernel::clone).to_vec()
}

/// Returns the words of `shaders/pool/max_pool.wgsl` after `threads_x`.
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
    per_thread(site, &MAX_POOL, total.div_ceil(4), memory, &params)
}

pub(super) fn max_pool_grad(site: &Site, window: Window) -> Launch<Operand> {
    let total = site.output().numel();
    let params = window_words(total, window, result(site), plane(site, 1));
    let memory = vec![Operand::Input(0), Operand::Input(1), Operand::Output(0)];
    per_thread(site, &MAX_POOL_GRAD, total, memory, &params)
}

/// Lowers average pooling, or its gradient if `back`, to the kernels of `shaders/pool/avg_pool.wgsl`.
///
/// # Errors
/// [`Error::TooManyElements`] for bins with bounds that do not fit the kernels' integers.
pub(super) fn avg_pool(site: &Site, over: Averaging, back: bool) -> Result<Lowered> {
    let (constants, window) = match over {
        Averaging::Adaptive(_) => (vec![("ADAPTIVE", 1.0)], Window::square(1)),
        Averaging::Window { window, count_padding } => (vec![("COUNT_PADDING", flag(count_padding))], window),
    };
    let (from, to) = (plane(site, 0), result(site));
    let (kernel, image, result) = if back { (&AVG_POOL_GRAD, to, from) } else { (&AVG_POOL, from, to) };
    if matches!(over, Averaging::Adaptive(_)) {
        check_axes(site, image, result)?;
    }
    let longest = if back { most_bins } else { longest_bin };
    let pieces = Pieces::of([0, 1].map(|axis| longest(over, axis, image[axis] as u64, result[axis] as u64)));
    let mut words = window_words(site.output().numel(), window, image, result);
    words.extend(pieces.words());
    Ok(pieces.lower(site, kernel, &words, constants))
}

/// Checks the axes: kernels relate pixels of image and result by 32-bit products.
fn check_axes(site: &Site, image: [usize; 2], result: [usize; 2]) -> Result<()> {
    const MOST: u64 = 1 << 30;
    for (h, r) in image.into_iter().zip(result) {
        if (h as u64 + 1).saturating_mul(r as u64 + 1) > MOST {
            let op = site.op.name();
            return Err(Error::TooManyElements(format!(
                "{op}: an axis of {h} pixels and one of {r}: their product is {}, at most {MOST} fit the kernels' integers; cut \
                 the image into slices along it",
                h as u64 * r as u64
            )));
        }
    }
    Ok(())
}

/// Returns the words of `shaders/pool/resample.wgsl` after `threads_x`.
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
    let mut launch = per_thread(site, &RESAMPLE, site.output().numel(), memory, &words);
    launch.constants = nearest(mode);
    Ok(launch)
}

pub(super) fn resample_grad(site: &Site, mode: Resample) -> Result<Lowered> {
    let [image, result] = [result(site), plane(site, 0)];
    check_axes(site, image, result)?;
    let pieces = Pieces::of([0, 1].map(|axis| most_readers(mode, image[axis], result[axis])));
    let words = resample_words(site, mode, &pieces, [image, result]);
    Ok(pieces.lower(site, &RESAMPLE_GRAD, &words, nearest(mode)))
}

fn nearest(mode: Resample) -> Vec<(&'static str, f64)> {
    vec![("NEAREST", flag(mode == Resample::Nearest))]
}
