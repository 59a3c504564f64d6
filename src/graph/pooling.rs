//! Pools and interpolations composed of others.

use std::panic::Location;

use super::{Reduction, Tensor, Window};

/// Largest kernel, in taps, of which the position of the maximum fits a byte.
pub(super) const MAX_TAPS: usize = 255;

/// Additional zeros at the end of an axis of `len` elements for the window to reach the end: `ceil_mode`. No window
/// starts in what is added.
fn reach_end(window: Window, axis: usize, len: usize) -> usize {
    let Window { kernel, stride, padding, dilation } = window;
    let reach = dilation[axis].saturating_mul(kernel[axis].saturating_sub(1)).saturating_add(1);
    let padded = len.saturating_add(padding[axis].saturating_mul(2));
    let Some(rest) = padded.checked_sub(reach) else { return 0 };
    let stride = stride[axis].max(1);
    let mut steps = rest.div_ceil(stride);
    if steps.saturating_mul(stride) >= len.saturating_add(padding[axis]) {
        steps -= 1;
    }
    (steps * stride).saturating_sub(rest)
}

impl Tensor {
    /// [`Tensor::max_pool2d`] with a kernel of more than [`MAX_TAPS`] along `axis`: maxima of shorter windows, which
    /// overlap, then maxima of those. The first of equal maxima stays the first.
    #[track_caller]
    pub(super) fn max_pool_long(&self, window: Window, axis: usize) -> Tensor {
        // Steps between the shorter windows, at most their length.
        const APART: usize = MAX_TAPS.div_ceil(2);
        let &[_, _, rows, columns] = self.shape.dims() else {
            return self.mistake(format!("max_pool2d of {}: [n, c, h, w] is needed", self.shape), self.shape);
        };
        let fits = match window.output([rows, columns]) {
            Err(message) => Err(message),
            Ok(_) if (0..2).any(|axis| window.padding[axis] * 2 > window.kernel[axis]) => Err(format!(
                "padding {:?} is more than half of the kernel {:?}",
                window.padding, window.kernel
            )),
            Ok(_) => Ok(()),
        };
        if let Err(message) = fits {
            return self.mistake(format!("max_pool2d of {}: {message}", self.shape), self.shape);
        }
        let with = |values: [usize; 2], value: usize| {
            let mut values = values;
            values[axis] = value;
            values
        };
        let count = (window.kernel[axis] - MAX_TAPS).div_ceil(APART) + 1;
        let short = window.kernel[axis] - (count - 1) * APART;
        let padding = window.padding[axis];
        let x = self.pad_with(axis + 2, padding, padding, super::Padding::Constant(f32::NEG_INFINITY));
        let first = Window {
            kernel: with(window.kernel, short),
            stride: with(window.stride, 1),
            padding: with(window.padding, 0),
            ..window
        };
        let then = Window {
            kernel: with([1; 2], count),
            stride: with([1; 2], window.stride[axis]),
            padding: [0; 2],
            dilation: with([1; 2], window.dilation[axis].saturating_mul(APART)),
        };
        x.max_pool2d(first).max_pool2d(then)
    }

    /// [`Tensor::max_pool2d`] with as many windows as start inside of the image or its padding before it: PyTorch's
    /// `ceil_mode`.
    #[track_caller]
    #[must_use]
    pub fn max_pool2d_ceil(&self, window: Window) -> Tensor {
        self.trace.called_at(Location::caller(), || {
            let below = |x: Tensor, axis: usize| {
                let more = reach_end(window, axis, x.dim(axis + 2));
                x.pad_with(axis + 2, 0, more, super::Padding::Constant(f32::NEG_INFINITY))
            };
            (0..2).fold(self.clone(), below).max_pool2d(window)
        })
    }

    /// [`Tensor::avg_pool2d`] with PyTorch's `ceil_mode`: what lies past the image and its padding is left out of the
    /// mean.
    #[track_caller]
    #[must_use]
    pub fn avg_pool2d_ceil(&self, window: Window, count_padding: bool) -> Tensor {
        let more = [0, 1].map(|axis| reach_end(window, axis, self.dim(axis + 2)));
        if more == [0; 2] || self.shape.rank() != 4 {
            return self.avg_pool2d(window, count_padding);
        }
        self.trace.called_at(Location::caller(), || {
            let pad = |x: &Tensor| x.pad(2, 0, more[0]).pad(3, 0, more[1]);
            let means = pad(self).avg_pool2d(window, true);
            let [rows, columns] = if count_padding { window.padding } else { [0; 2] };
            let counted = [1, 1, self.dim(2) + 2 * rows, self.dim(3) + 2 * columns];
            let inside = if count_padding { Window { padding: [0; 2], ..window } } else { window };
            means.div(&pad(&self.fill_like(counted, 1.0)).avg_pool2d(inside, true))
        })
    }

    /// The maxima of `size` bins for an image of any size; bin `i` spans `⌊i h / h'⌋` to `⌈(i + 1) h / h'⌉`.
    #[track_caller]
    #[must_use]
    pub fn adaptive_max_pool2d(&self, size: [usize; 2]) -> Tensor {
        let image = [self.dim(2), self.dim(3)];
        if self.id.is_none() {
            return self.clone();
        }
        if self.shape.rank() != 4
            || size.contains(&0)
            || image.contains(&0)
            || (0..2).any(|axis| size[axis] != image[axis] && size[axis] > 1 << 16)
        {
            return self.mistake(format!("adaptive_max_pool2d of {} to {size:?}", self.shape), self.shape);
        }
        let kernel = [image[0] / size[0], image[1] / size[1]];
        let fits = (0..2).all(|axis| image[axis].is_multiple_of(size[axis]) && kernel[axis] <= MAX_TAPS);
        self.trace.called_at(Location::caller(), || {
            if fits {
                return self.max_pool2d(Window::of(kernel).strides(kernel));
            }
            let along = |x: Tensor, axis: usize| {
                let (len, bins) = (image[axis], size[axis]);
                if len == bins {
                    return x;
                }
                let bin = |i: usize| {
                    let range = i * len / bins..((i + 1) * len).div_ceil(bins);
                    x.slice(axis + 2, range).reduce_keep(Reduction::Max, &[axis + 2])
                };
                let parts: Vec<Tensor> = (0..bins).map(bin).collect();
                parts[0].concat(&parts[1..].iter().collect::<Vec<_>>(), axis + 2)
            };
            (0..2).fold(self.clone(), along)
        })
    }

    /// Instance norm (Ulyanov et al. 2016): normalises each channel of each sample of `[n, c, ..]`, then applies
    /// `γ x + β` per channel.
    #[track_caller]
    #[must_use]
    pub fn instance_norm(&self, gamma: &Tensor, beta: &Tensor, eps: f32) -> Tensor {
        self.group_norm(self.dim(1), gamma, beta, eps)
    }

    /// Local response norm (Krizhevsky et al. 2012): `x (k + α mean of x² over size channels around it)^-β`;
    /// `self [n, c, ..]`.
    #[track_caller]
    #[must_use]
    pub fn local_response_norm(&self, size: usize, alpha: f32, beta: f32, k: f32) -> Tensor {
        let [n, c] = [self.dim(0), self.dim(1)];
        if self.shape.rank() < 3 || size == 0 {
            return self
                .mistake(format!("local_response_norm of {} over {size} channels", self.shape), self.shape);
        }
        self.trace.called_at(Location::caller(), || {
            let rest = (self.shape.numel() / (n * c).max(1) as u64) as usize;
            let squares = self.square().reshape([n, 1, c, rest]).pad(2, size / 2, (size - 1) / 2);
            let means = squares.avg_pool2d(Window::of([size, 1]), true).reshape(self.shape);
            self.mul(&means.scale(alpha).offset(k).powf(-beta))
        })
    }

    /// Bicubic upsampling of `[n, c, h, w]` to `size` with `a = -3/4` (Keys 1981), as PyTorch computes it. With `corners`
    /// the corner pixels stay in place. Each row and column is a product with a matrix of weights.
    #[track_caller]
    #[must_use]
    pub fn upsample_bicubic(&self, size: [usize; 2], corners: bool) -> Tensor {
        if self.shape.rank() != 4 || size.contains(&0) || self.shape.numel() == 0 {
            return self.mistake(format!("upsample_bicubic of {} to {size:?}", self.shape), self.shape);
        }
        self.trace.called_at(Location::caller(), || {
            let [rows, columns] =
                [0, 1].map(|axis| self.cubic_weights(self.dim(axis + 2), size[axis], corners));
            rows.matmul(&self.matmul_transposed(&columns, false, true))
        })
    }

    /// `[to, from]`: the weight of each element in each result of a cubic interpolation.
    #[track_caller]
    fn cubic_weights(&self, from: usize, to: usize, corners: bool) -> Tensor {
        const A: f32 = -0.75;
        let i = self.indices_like([to, 1], 0);
        let place = match corners {
            true if to > 1 => i.scale((from as f32 - 1.0) / (to as f32 - 1.0)),
            true => i.scale(0.0),
            false => i.offset(0.5).scale(from as f32 / to as f32).offset(-0.5),
        };
        let first = place.floor();
        let t = place.sub(&first);
        let columns = self.indices_like([1, from], 1);
        let tap = |k: i32| {
            let at = first.offset(k as f32).clamp(0.0, from as f32 - 1.0);
            // The distance to the tap, and the two cubic pieces: within 1, and from 1 to 2.
            let s = t.offset(-k as f32).abs();
            let weight = if (0..2).contains(&k) {
                s.scale(A + 2.0).offset(-(A + 3.0)).mul(&s).mul(&s).offset(1.0)
            } else {
                s.offset(-5.0).mul(&s).offset(8.0).mul(&s).offset(-4.0).scale(A)
            };
            columns.equal(&at).mul(&weight)
        };
        (-1..3).map(tap).reduce(|sum, tap| sum.add(&tap)).expect("four taps")
    }
}
