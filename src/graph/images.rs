//! Operations on images, `[n, c, h, w]` as in PyTorch.

use std::panic::Location;

use super::pooling::MAX_TAPS;
use super::{Activation, Averaging, Op, Resample, Running, Source, Tensor, Window};
use crate::shape::Shape;

/// Running statistics of a batch norm, each `[c]`.
#[derive(Clone, Debug)]
pub struct RunningStats<'a> {
    /// Running mean.
    pub mean: &'a Tensor,
    /// Running variance, unbiased.
    pub var: &'a Tensor,
    /// Weight of the batch's statistics in the update: `r += momentum (s - r)`.
    pub momentum: f32,
}

impl Tensor {
    /// Cross-correlation: `self [n, c, h, w]`, `weight [o, c/g, kh, kw]`, `bias [o]` → `[n, o, h', w']`.
    /// The window's kernel size is the weight's.
    #[track_caller]
    #[must_use]
    pub fn conv2d(&self, weight: &Tensor, bias: Option<&Tensor>, window: Window, groups: usize) -> Tensor {
        let inputs: Vec<&Tensor> = [self, weight].into_iter().chain(bias).collect();
        self.one(
            Op::Conv2d { window, groups, source: Source::Tensor, then: None },
            &inputs,
            Location::caller(),
        )
    }

    /// Transposed convolution: `self [n, c, h, w]`, `weight [c, o/g, kh, kw]`, `bias [o]` → `[n, o, h', w']`
    /// with `h' = (h - 1) s - 2p + d (kh - 1) + extra + 1`; `extra` is PyTorch's `output_padding`, smaller
    /// than the stride or the dilation.
    #[track_caller]
    #[must_use]
    pub fn conv_transpose2d(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        window: Window,
        extra: [usize; 2],
        groups: usize,
    ) -> Tensor {
        let at = Location::caller();
        let Window { kernel, stride, padding, dilation } = window;
        if (0..2).any(|axis| extra[axis] >= stride[axis].max(dilation[axis])) {
            let message = format!(
                "conv_transpose2d of {}: output padding {extra:?} must be smaller than the stride {stride:?} or the dilation \
                 {dilation:?}",
                self.shape
            );
            self.trace.complain(message, at);
            return Tensor { id: None, ..self.clone() };
        }
        // Length of the result with this `padding`, without `extra`.
        let length = |axis: usize, padding: usize| {
            let steps = (self.dim(axis + 2).max(1) - 1).saturating_mul(stride[axis]);
            let reach = dilation[axis].saturating_mul(kernel[axis].saturating_sub(1)).saturating_add(1);
            steps.saturating_add(reach).saturating_sub(padding.saturating_mul(2))
        };
        let transposed = |window: Window, size: [usize; 2], bias: Option<&Tensor>| {
            let op = Op::Conv2dInput { window, groups, size, then: None };
            let inputs: Vec<&Tensor> = [self, weight].into_iter().chain(bias).collect();
            self.one(op, &inputs, at)
        };
        let size = [0, 1].map(|axis| length(axis, padding[axis]).saturating_add(extra[axis]));
        if (0..2).all(|axis| extra[axis] < stride[axis]) {
            return transposed(window, size, bias);
        }
        // Where `extra` is not below the stride, a convolution of that result would have more outputs than
        // `self` has elements. So the result without padding is computed, cut to size, and filled up with
        // zeros.
        let whole =
            transposed(Window { padding: [0; 2], ..window }, [0, 1].map(|axis| length(axis, 0)), None);
        let cut = (0..2).fold(whole, |x, axis| {
            let (start, dim) = (padding[axis], x.dim(axis + 2));
            let end = start.saturating_add(size[axis]).min(dim);
            x.slice(axis + 2, start.min(end)..end).pad(
                axis + 2,
                0,
                size[axis].saturating_sub(end.saturating_sub(start)),
            )
        });
        match bias {
            Some(bias) => cut.add(&bias.reshape([cut.dim(1), 1, 1])),
            None => cut,
        }
    }

    /// The maximum of each window; the first of equal elements gets the gradient. Its position in the window
    /// is saved as one byte.
    #[track_caller]
    #[must_use]
    pub fn max_pool2d(&self, window: Window) -> Tensor {
        let at = Location::caller();
        if let Some(axis) = (0..2).find(|axis| window.kernel[*axis] > MAX_TAPS) {
            return self.trace.called_at(at, || self.max_pool_long(window, axis));
        }
        if window.taps() > MAX_TAPS {
            // The first of equal maxima of a row, then of the rows, is the first of the window.
            let [rows, columns] = [0, 1].map(|axis| {
                let only = |values: [usize; 2], other: usize| {
                    let mut values = values;
                    values[1 - axis] = other;
                    values
                };
                Window {
                    kernel: only(window.kernel, 1),
                    stride: only(window.stride, 1),
                    padding: only(window.padding, 0),
                    dilation: only(window.dilation, 1),
                }
            });
            return self.trace.called_at(at, || self.max_pool2d(columns).max_pool2d(rows));
        }
        self.trace.emit(Op::MaxPool2d(window), &[self], at).swap_remove(0)
    }

    /// The mean of each window. With `count_padding`, padding counts as zeros; otherwise it is left out of
    /// the mean.
    #[track_caller]
    #[must_use]
    pub fn avg_pool2d(&self, window: Window, count_padding: bool) -> Tensor {
        let op = Op::AvgPool2d(Averaging::Window { window, count_padding });
        self.one(op, &[self], Location::caller())
    }

    /// The means of `size` bins for an image of any size; bin `i` spans `⌊i h / h'⌋` to `⌈(i + 1) h / h'⌉`.
    #[track_caller]
    #[must_use]
    pub fn adaptive_avg_pool2d(&self, size: [usize; 2]) -> Tensor {
        if [self.dim(2), self.dim(3)] == size && self.shape.rank() == 4 {
            return self.clone();
        }
        if size == [1, 1] && self.shape.rank() == 4 {
            return self.reduce_keep(super::Reduction::Mean, &[2, 3]);
        }
        self.one(Op::AvgPool2d(Averaging::Adaptive(size)), &[self], Location::caller())
    }

    /// Batch norm (Ioffe & Szegedy 2015) with the statistics of this batch, over all axes but `c`:
    /// `γ (x - mean) / √(var + ε) + β`. Updates the running statistics if there are any. `gamma` and `beta`
    /// are `[c]`.
    #[track_caller]
    #[must_use]
    pub fn batch_norm_train(
        &self,
        gamma: &Tensor,
        beta: &Tensor,
        eps: f32,
        running: Option<&RunningStats>,
    ) -> Tensor {
        let at = Location::caller();
        let stats = self.trace.emit(Op::BatchStats { eps, running: None }, &[self], at);
        let [mean, deviation, var] = [&stats[0], &stats[1], &stats[2]];
        if let Some(running) = running {
            let count = self.shape.numel() as f64 / self.dim(1).max(1) as f64;
            let unbias = if count > 1.0 { count / (count - 1.0) } else { 1.0 };
            let op = Op::RunningStats(Running { momentum: running.momentum, unbias: unbias as f32 });
            self.trace.emit(op, &[running.mean, running.var, mean, var], at);
        }
        self.one(Op::BatchNorm(Activation::None), &[self, mean, deviation, gamma, beta], at)
    }

    /// Batch norm with given statistics: `γ (x - mean) / √(var + ε) + β`.
    #[track_caller]
    #[must_use]
    pub fn batch_norm_eval(
        &self,
        gamma: &Tensor,
        beta: &Tensor,
        mean: &Tensor,
        var: &Tensor,
        eps: f32,
    ) -> Tensor {
        let deviation = var.offset(eps).sqrt().recip();
        let inputs = [self, mean, &deviation, gamma, beta];
        self.one(Op::BatchNorm(Activation::None), &inputs, Location::caller())
    }

    /// Group norm (Wu & He 2018): normalises over groups of `c / groups` channels of a sample of `[n, c, ..]`, then
    /// applies `γ x + β` per channel.
    #[track_caller]
    #[must_use]
    pub fn group_norm(&self, groups: usize, gamma: &Tensor, beta: &Tensor, eps: f32) -> Tensor {
        let at = Location::caller();
        let [n, c] = [0, 1].map(|axis| self.dim(axis));
        if self.shape.rank() < 2 || groups == 0 || c % groups != 0 {
            self.trace.complain(format!("group_norm of {} in {groups} groups", self.shape), at);
            return Tensor { id: None, ..self.clone() };
        }
        let (rows, last) = (n * groups, if self.shape.rank() > 2 { self.shape.last() } else { 1 });
        let flat = self.reshape([1, rows, (self.shape.numel() / (rows * last).max(1) as u64) as usize, last]);
        let (one, zero) = (self.fill_like([rows], 1.0), self.fill_like([rows], 0.0));
        let normal = flat.batch_norm_train(&one, &zero, eps, None).reshape(self.shape);
        let mut per_channel = vec![1; self.shape.rank() - 1];
        per_channel[0] = c;
        let per_channel = Shape::try_new(&per_channel).expect("fewer dimensions than the operand");
        normal.mul(&gamma.reshape(per_channel)).add(&beta.reshape(per_channel))
    }

    /// `[n, c, ..]` as `[n, c, h, w]`: other dimensions are joined, missing ones are 1.
    #[track_caller]
    pub(crate) fn as_channels_of_image(&self) -> Tensor {
        match *self.shape.dims() {
            [n, c] => self.reshape([n, c, 1, 1]),
            [n, c, l] => self.reshape([n, c, 1, l]),
            [n, c, d, h, w] => self.reshape([n, c, d.saturating_mul(h), w]),
            _ => self.clone(),
        }
    }

    /// Nearest-neighbour upsampling to `size`, rows and columns: pixel `i` of the result is pixel
    /// `⌊i h / h'⌋`.
    #[track_caller]
    #[must_use]
    pub fn upsample_nearest(&self, size: [usize; 2]) -> Tensor {
        self.one(Op::Resample { mode: Resample::Nearest, size }, &[self], Location::caller())
    }

    /// Bilinear upsampling to `size`, rows and columns. With `corners` the corner pixels stay in place
    /// (PyTorch's `align_corners`).
    #[track_caller]
    #[must_use]
    pub fn upsample_bilinear(&self, size: [usize; 2], corners: bool) -> Tensor {
        let mode = if corners { Resample::BilinearCorners } else { Resample::Bilinear };
        self.one(Op::Resample { mode, size }, &[self], Location::caller())
    }

    /// Pads the image with zeros: rows above and below, columns left and right.
    #[track_caller]
    #[must_use]
    pub fn zero_pad2d(&self, rows: [usize; 2], columns: [usize; 2]) -> Tensor {
        self.pad(2, rows[0], rows[1]).pad(3, columns[0], columns[1])
    }
}
