//! Convolutions and pools over one and three dimensions, by those over two.

use std::panic::Location;

use super::{Op, Tensor, Window};

impl Tensor {
    /// Cross-correlation over one dimension: `self [n, c, l]`, `weight [o, c/g, k]`, `bias [o]` → `[n, o, l']`.
    #[track_caller]
    #[must_use]
    pub fn conv1d(&self, weight: &Tensor, bias: Option<&Tensor>, window: Window<1>, groups: usize) -> Tensor {
        self.as_image(3, "conv1d", |x| {
            x.conv2d(&weight.unsqueeze(weight.shape().rank().min(2)), bias, window.plane(0), groups)
        })
    }

    /// Transposed convolution over one dimension: `self [n, c, l]`, `weight [c, o/g, k]`, `bias [o]` → `[n, o, l']`; see
    /// [`Tensor::conv_transpose2d`].
    #[track_caller]
    #[must_use]
    pub fn conv_transpose1d(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        window: Window<1>,
        extra: usize,
        groups: usize,
    ) -> Tensor {
        let weight = weight.unsqueeze(weight.shape().rank().min(2));
        self.as_image(3, "conv_transpose1d", |x| {
            x.conv_transpose2d(&weight, bias, window.plane(0), [0, extra], groups)
        })
    }

    /// Convolution over `N` dimensions, one to three.
    #[track_caller]
    pub(crate) fn convolve<const N: usize>(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        window: Window<N>,
        groups: usize,
    ) -> Tensor {
        match N {
            1 => self.conv1d(weight, bias, window.over(), groups),
            2 => self.conv2d(weight, bias, window.over(), groups),
            3 => self.conv3d(weight, bias, window.over(), groups),
            _ => self.mistake(format!("a convolution over {N} dimensions: one to three"), self.shape),
        }
    }

    /// Transposed convolution over `N` dimensions, one to three.
    #[track_caller]
    pub(crate) fn convolve_transposed<const N: usize>(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        window: Window<N>,
        extra: [usize; N],
        groups: usize,
    ) -> Tensor {
        let more = |i: usize| extra.get(i).copied().unwrap_or(0);
        match N {
            1 => self.conv_transpose1d(weight, bias, window.over(), more(0), groups),
            2 => self.conv_transpose2d(weight, bias, window.over(), [more(0), more(1)], groups),
            3 => self.conv_transpose3d(weight, bias, window.over(), [more(0), more(1), more(2)], groups),
            _ => self.mistake(format!("a convolution over {N} dimensions: one to three"), self.shape),
        }
    }

    /// The maximum of each window of `[n, c, l]`; see [`Tensor::max_pool2d`].
    #[track_caller]
    #[must_use]
    pub fn max_pool1d(&self, window: Window<1>) -> Tensor {
        self.as_image(3, "max_pool1d", |x| x.max_pool2d(window.plane(0)))
    }

    /// The mean of each window of `[n, c, l]`; see [`Tensor::avg_pool2d`].
    #[track_caller]
    #[must_use]
    pub fn avg_pool1d(&self, window: Window<1>, count_padding: bool) -> Tensor {
        self.as_image(3, "avg_pool1d", |x| x.avg_pool2d(window.plane(0), count_padding))
    }

    /// Cross-correlation over three dimensions: `self [n, c, d, h, w]`, `weight [o, c/g, kd, kh, kw]`, `bias [o]` →
    /// `[n, o, d', h', w']`. The taps along the depth become channels of an image for each depth, so `kd` copies of the
    /// operand are in memory.
    #[track_caller]
    #[must_use]
    pub fn conv3d(&self, weight: &Tensor, bias: Option<&Tensor>, window: Window<3>, groups: usize) -> Tensor {
        let [x, w] = [self.shape, weight.shape];
        if self.id.is_none() || weight.id.is_none() {
            return Tensor { id: None, ..self.clone() };
        }
        let ([n, c, d, h, wide], [o, per_group, kd, kh, kw]) = (x.dims(), w.dims()) else {
            return self.mistake(format!("conv3d of {x} by {w}: five dimensions each are needed"), x);
        };
        let (n, c, d, h, wide) = (*n, *c, *d, *h, *wide);
        let window = Window { kernel: [*kd, *kh, *kw], ..window };
        let deep = match window.output([d, h, wide]) {
            Ok([deep, _, _]) => deep,
            Err(message) => return self.mistake(format!("conv3d of {x}: {message}"), x),
        };
        let [stride, padding, dilation] = [window.stride[0], window.padding[0], window.dilation[0]];
        self.trace.called_at(Location::caller(), || {
            let padded = self.pad(2, padding, padding);
            let tap = |k: usize| {
                let start = k * dilation;
                padded.slice_step(2, start..start + (deep - 1) * stride + 1, stride)
            };
            let taps: Vec<Tensor> = (0..*kd).map(tap).collect();
            let columns = taps[0].stack(&taps[1..].iter().collect::<Vec<_>>(), 2);
            let images = columns.permute(&[0, 3, 1, 2, 4, 5]).reshape([n * deep, c * kd, h, wide]);
            let y =
                images.conv2d(&weight.reshape([*o, per_group * kd, *kh, *kw]), bias, window.plane(1), groups);
            let (rows, columns) = (y.dim(2), y.dim(3));
            y.reshape([n, deep, *o, rows, columns]).permute(&[0, 2, 1, 3, 4])
        })
    }

    /// Transposed convolution over three dimensions: `self [n, c, d, h, w]`, `weight [c, o/g, kd, kh, kw]`, `bias [o]` →
    /// `[n, o, d', h', w']`; see [`Tensor::conv_transpose2d`].
    #[track_caller]
    #[must_use]
    pub fn conv_transpose3d(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        window: Window<3>,
        extra: [usize; 3],
        groups: usize,
    ) -> Tensor {
        let [x, w] = [self.shape, weight.shape];
        if self.id.is_none() || weight.id.is_none() {
            return Tensor { id: None, ..self.clone() };
        }
        let ([n, c, d, h, wide], [_, per_group, kd, kh, kw]) = (x.dims(), w.dims()) else {
            return self
                .mistake(format!("conv_transpose3d of {x} by {w}: five dimensions each are needed"), x);
        };
        let (n, c, d, h, wide) = (*n, *c, *d, *h, *wide);
        let window = Window { kernel: [*kd, *kh, *kw], ..window };
        let [stride, padding, dilation] = [window.stride[0], window.padding[0], window.dilation[0]];
        let sizes = [d, *kd, stride, dilation, padding];
        if sizes.contains(&0) && padding != 0
            || sizes.iter().any(|&n| n > 1 << 24)
            || d * kd * stride * dilation == 0
        {
            return self.mistake(format!("conv_transpose3d of {x} by {w} with {window:?}"), x);
        }
        if extra[0] >= stride.max(dilation) {
            let message = format!(
                "conv_transpose3d of {x}: output padding {extra:?} must be smaller than the stride or dilation"
            );
            return self.mistake(message, x);
        }
        self.trace.called_at(Location::caller(), || {
            let images = self.permute(&[0, 2, 1, 3, 4]).reshape([n * d, c, h, wide]);
            let weight = weight.reshape([c, per_group.saturating_mul(*kd), *kh, *kw]);
            let y = images.conv_transpose2d(&weight, None, window.plane(1), [extra[1], extra[2]], groups);
            if y.id.is_none() {
                return y;
            }
            let [o, rows, columns] = [y.dim(1) / kd, y.dim(2), y.dim(3)];
            let taps = y.reshape([n, d, o, *kd, rows * columns]);
            let whole = (d - 1) * stride + dilation * (kd - 1) + 1;
            let length = (whole + extra[0]).saturating_sub(2 * padding);
            let tap = |k: usize| {
                let tap = taps.slice(3, k..k + 1);
                let op =
                    Op::Place { axis: 1, start: k * dilation, step: stride as isize, len: whole + extra[0] };
                tap.one(op, &[&tap], Location::caller())
            };
            let sum = (0..*kd).map(tap).reduce(|sum, tap| sum.add(&tap)).expect("a kernel has a tap");
            let cut = sum.slice(1, padding..padding + length);
            let y = cut.reshape([n, length, o, rows, columns]).permute(&[0, 2, 1, 3, 4]);
            match bias {
                Some(bias) => y.add(&bias.reshape([o, 1, 1, 1])),
                None => y,
            }
        })
    }

    /// The maximum of each window of `[n, c, d, h, w]`; see [`Tensor::max_pool2d`].
    #[track_caller]
    #[must_use]
    pub fn max_pool3d(&self, window: Window<3>) -> Tensor {
        self.pool3d("max_pool3d", window, Tensor::max_pool2d)
    }

    /// The mean of each window of `[n, c, d, h, w]`; see [`Tensor::avg_pool2d`].
    #[track_caller]
    #[must_use]
    pub fn avg_pool3d(&self, window: Window<3>, count_padding: bool) -> Tensor {
        self.pool3d("avg_pool3d", window, |x, window| x.avg_pool2d(window, count_padding))
    }

    /// [`Tensor::max_pool1d`] with PyTorch's `ceil_mode`; see [`Tensor::max_pool2d_ceil`].
    #[track_caller]
    #[must_use]
    pub fn max_pool1d_ceil(&self, window: Window<1>) -> Tensor {
        self.as_image(3, "max_pool1d_ceil", |x| x.max_pool2d_ceil(window.plane(0)))
    }

    /// [`Tensor::avg_pool1d`] with PyTorch's `ceil_mode`; see [`Tensor::avg_pool2d_ceil`].
    #[track_caller]
    #[must_use]
    pub fn avg_pool1d_ceil(&self, window: Window<1>, count_padding: bool) -> Tensor {
        self.as_image(3, "avg_pool1d_ceil", |x| x.avg_pool2d_ceil(window.plane(0), count_padding))
    }

    /// [`Tensor::max_pool3d`] with PyTorch's `ceil_mode`; see [`Tensor::max_pool2d_ceil`].
    #[track_caller]
    #[must_use]
    pub fn max_pool3d_ceil(&self, window: Window<3>) -> Tensor {
        self.pool3d("max_pool3d_ceil", window, Tensor::max_pool2d_ceil)
    }

    /// [`Tensor::avg_pool3d`] with PyTorch's `ceil_mode`; see [`Tensor::avg_pool2d_ceil`].
    #[track_caller]
    #[must_use]
    pub fn avg_pool3d_ceil(&self, window: Window<3>, count_padding: bool) -> Tensor {
        self.pool3d("avg_pool3d_ceil", window, |x, window| x.avg_pool2d_ceil(window, count_padding))
    }

    /// The means of `size` bins of `[n, c, l]`; see [`Tensor::adaptive_avg_pool2d`].
    #[track_caller]
    #[must_use]
    pub fn adaptive_avg_pool1d(&self, size: usize) -> Tensor {
        self.as_image(3, "adaptive_avg_pool1d", |x| x.adaptive_avg_pool2d([1, size]))
    }

    /// The maxima of `size` bins of `[n, c, l]`; see [`Tensor::adaptive_max_pool2d`].
    #[track_caller]
    #[must_use]
    pub fn adaptive_max_pool1d(&self, size: usize) -> Tensor {
        self.as_image(3, "adaptive_max_pool1d", |x| x.adaptive_max_pool2d([1, size]))
    }

    /// The means of `size` bins of `[n, c, d, h, w]`; see [`Tensor::adaptive_avg_pool2d`].
    #[track_caller]
    #[must_use]
    pub fn adaptive_avg_pool3d(&self, size: [usize; 3]) -> Tensor {
        let [planes, along] = [[size[1], size[2]], [size[0], size[1].saturating_mul(size[2])]];
        self.by_planes("adaptive_avg_pool3d", |x, last| {
            x.adaptive_avg_pool2d(if last { along } else { planes })
        })
    }

    /// The maxima of `size` bins of `[n, c, d, h, w]`; see [`Tensor::adaptive_max_pool2d`].
    #[track_caller]
    #[must_use]
    pub fn adaptive_max_pool3d(&self, size: [usize; 3]) -> Tensor {
        let [planes, along] = [[size[1], size[2]], [size[0], size[1].saturating_mul(size[2])]];
        self.by_planes("adaptive_max_pool3d", |x, last| {
            x.adaptive_max_pool2d(if last { along } else { planes })
        })
    }

    #[track_caller]
    fn pool3d(&self, what: &str, window: Window<3>, pool: impl Fn(&Tensor, Window) -> Tensor) -> Tensor {
        let along = Window {
            kernel: [window.kernel[0], 1],
            stride: [window.stride[0], 1],
            padding: [window.padding[0], 0],
            dilation: [window.dilation[0], 1],
        };
        self.by_planes(what, |x, last| pool(x, if last { along } else { window.plane(1) }))
    }

    /// Maxima and means of a box are those of its planes': pools `[n, c d, h, w]`, then, with `true`, the depth of
    /// `[n, c, d, h' w']`.
    #[track_caller]
    fn by_planes(&self, what: &str, pool: impl Fn(&Tensor, bool) -> Tensor) -> Tensor {
        let &[n, c, d, h, w] = self.shape.dims() else {
            return self.mistake(format!("{what} of {}: five dimensions are needed", self.shape), self.shape);
        };
        self.trace.called_at(Location::caller(), || {
            let planes = pool(&self.reshape([n, c.saturating_mul(d), h, w]), false);
            let [rows, columns] = [planes.dim(2), planes.dim(3)];
            if planes.id.is_none() {
                return planes;
            }
            let y = pool(&planes.reshape([n, c, d, rows * columns]), true);
            let deep = y.dim(2);
            y.reshape([n, c, deep, rows, columns])
        })
    }

    /// Applies `body` to `[n, c, 1, l]`.
    #[track_caller]
    fn as_image(&self, rank: usize, what: &str, body: impl Fn(&Tensor) -> Tensor) -> Tensor {
        if self.id.is_none() {
            return self.clone();
        }
        if self.shape.rank() != rank {
            return self.mistake(format!("{what} of {}: [n, c, l] is needed", self.shape), self.shape);
        }
        self.trace.called_at(Location::caller(), || {
            let y = body(&self.unsqueeze(2));
            if y.id.is_some() { y.squeeze(2) } else { y }
        })
    }
}
