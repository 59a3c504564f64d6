//! Sums over rectangles of any size: one thread sums a piece of a rectangle, and `reduce` sums the pieces.

use crate::graph::{Averaging, Resample, Window};
use crate::kernels::grid::per_thread;
use crate::kernels::{Kernel, Lowered, Operand, Site, reduce};

/// Maximum rows and columns of a piece: its thread's loops stay far below `MAX_LOOP_ITERATIONS`, and no sum
/// has more than 64 terms.
const LARGEST: [u64; 2] = [64, 256];

/// How the rectangle that each element of a result sums is split.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pieces {
    /// Number of pieces along rows and along columns.
    counts: [u64; 2],
    /// Rows and columns of a piece; the last one along an axis may have fewer, or none.
    size: [u64; 2],
}

impl Pieces {
    /// Returns the pieces for rectangles of at most `most` rows and columns.
    pub(super) fn of(most: [u64; 2]) -> Self {
        let axis = |i: usize| {
            let most = most[i].max(1);
            let size = most.div_ceil(most.div_ceil(LARGEST[i]));
            (most.div_ceil(size), size)
        };
        let [(rows, height), (columns, width)] = [axis(0), axis(1)];
        Self { counts: [rows, columns], size: [height, width] }
    }

    /// Returns the four words of a kernel's `pieces` and `piece`.
    pub(super) fn words(&self) -> [u32; 4] {
        let ([rows, columns], [height, width]) = (self.counts, self.size);
        [rows, columns, height, width].map(|n| n as u32)
    }

    /// Lowers to one thread of `kernel` for each piece of each result element, then to the sums of the
    /// pieces.
    pub(super) fn lower(
        &self,
        site: &Site,
        kernel: &Kernel,
        params: &[u32],
        constants: Vec<(&'static str, f64)>,
    ) -> Lowered {
        let (elements, pieces) = (site.output().numel(), self.counts[0] * self.counts[1]);
        let to = if pieces == 1 { Operand::Output(0) } else { Operand::Workspace(0) };
        let mut launch = per_thread(site, kernel, elements * pieces, vec![Operand::Input(0), to], params);
        launch.constants = constants;
        if pieces == 1 {
            return launch.into();
        }
        let mut lowered = Lowered { launches: vec![launch], workspace: vec![elements * pieces * 4] };
        reduce::sum_of_parts(site, to, pieces, elements, &mut lowered);
        lowered
    }
}

/// Returns the maximum elements of a window or bin along an axis of `image` elements with `result` windows or
/// bins; `axis` is 0 for rows.
pub(super) fn longest_bin(over: Averaging, axis: usize, image: u64, result: u64) -> u64 {
    match over {
        Averaging::Window { window, .. } => (window.kernel[axis] as u64).min(image),
        Averaging::Adaptive(_) => (image.div_ceil(result) + 1).min(image),
    }
}

/// Returns the maximum windows or bins along an axis that contain one element.
pub(super) fn most_bins(over: Averaging, axis: usize, image: u64, result: u64) -> u64 {
    match over {
        Averaging::Window { window: Window { kernel, stride, .. }, .. } => {
            kernel[axis].div_ceil(stride[axis]).min(result as usize) as u64
        }
        Averaging::Adaptive(_) => (result.div_ceil(image) + 1).min(result),
    }
}

/// Returns the integers scale, shift and unit by which result pixels read an image axis.
pub(super) fn between(mode: Resample, image: usize, result: usize) -> [i64; 3] {
    let (h, r) = (image as i64, result as i64);
    match mode {
        Resample::Nearest => [h, 0, r],
        Resample::Bilinear => [2 * h, h - r, 2 * r],
        Resample::BilinearCorners if r == 1 => [0, 0, 1],
        Resample::BilinearCorners => [h - 1, 0, r - 1],
    }
}

/// Returns the maximum result pixels of an axis that `readers` of `shaders/pool/resample.wgsl` returns for
/// one image pixel.
pub(super) fn most_readers(mode: Resample, image: usize, result: usize) -> u64 {
    let [scale, _, unit] = between(mode, image, result);
    let most = if scale == 0 { result as i64 } else { 2 * unit / scale + 3 };
    most.min(result as i64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_rectangles_and_keep_to_their_size() {
        for rows in [1, 2, 63, 64, 65, 300, 16_384, 70_000] {
            for columns in [1, 5, 256, 257, 300, 65_536, 1 << 25] {
                let Pieces { counts, size } = Pieces::of([rows, columns]);
                for (axis, most) in [rows, columns].into_iter().enumerate() {
                    assert!(size[axis] <= LARGEST[axis] && counts[axis] * size[axis] >= most);
                    assert!((counts[axis] - 1) * size[axis] < most, "an empty piece");
                }
            }
        }
    }

    #[test]
    fn no_element_lies_in_more_bins_than_counted() {
        let bins = |image: usize, result: usize| {
            (0..result).map(move |o| (o * image / result, ((o + 1) * image).div_ceil(result)))
        };
        let windows = |image: usize, window: Window| {
            let [result, _] = window.output([image; 2]).unwrap_or_default();
            let (k, s, p) = (window.kernel[0], window.stride[0], window.padding[0]);
            (0..result).map(move |o| ((o * s).saturating_sub(p), (o * s + k).saturating_sub(p).min(image)))
        };
        let check = |over, image: usize, list: Vec<(usize, usize)>| {
            let (i, r) = (image as u64, list.len() as u64);
            if r == 0 {
                return;
            }
            let longest = list.iter().map(|(start, end)| (end - start) as u64).max();
            assert!(longest <= Some(longest_bin(over, 0, i, r)), "{over:?} of {image}");
            let over_one =
                |at| list.iter().filter(|(start, end)| (*start..*end).contains(&at)).count() as u64;
            assert!((0..image).map(over_one).max() <= Some(most_bins(over, 0, i, r)), "{over:?} of {image}");
        };
        for image in 1..24 {
            for result in 1..40 {
                check(Averaging::Adaptive([result; 2]), image, bins(image, result).collect());
            }
            for kernel in 1..9 {
                for stride in 1..6 {
                    for padding in 0..=kernel / 2 {
                        let window = Window::square(kernel).stride(stride).padding(padding);
                        let over = Averaging::Window { window, count_padding: true };
                        check(over, image, windows(image, window).collect());
                    }
                }
            }
        }
    }

    /// The same integers as `readers` of `shaders/pool/resample.wgsl`.
    fn readers(i: i64, image: i64, result: i64, [scale, shift, unit]: [i64; 3]) -> i64 {
        if scale == 0 {
            return result;
        }
        let low = 0.max((i - 1) * unit - shift) / scale;
        let high = 0.max((i + 1) * unit - shift) / scale + 1;
        let first = if i == 0 { 0 } else { low.min(result - 1) };
        let last = if i + 1 == image { result - 1 } else { high.min(result - 1) };
        last - first + 1
    }

    #[test]
    fn no_pixel_has_more_readers_than_counted() {
        for mode in [Resample::Nearest, Resample::Bilinear, Resample::BilinearCorners] {
            for image in 1..40 {
                for result in (1..60).chain([97, 300, 1024]) {
                    let between = between(mode, image, result);
                    let of = |i: usize| readers(i as i64, image as i64, result as i64, between);
                    let most = (0..image).map(of).max().unwrap_or_default();
                    assert!(most as u64 <= most_readers(mode, image, result), "{mode:?} {image} {result}");
                }
            }
        }
    }
}
