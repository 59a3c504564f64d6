//! Convolutional layers over one, two and three dimensions.

use super::Module;
use crate::graph::{Init, Param, Params, Tensor, Window};
use crate::shape::Shape;

/// `torch.nn.Conv1d`: [`Conv`] over `[n, in, l]`.
pub type Conv1d = Conv<1>;
/// `torch.nn.Conv2d`: [`Conv`] over `[n, in, h, w]`.
pub type Conv2d = Conv<2>;
/// `torch.nn.Conv3d`: [`Conv`] over `[n, in, d, h, w]`.
pub type Conv3d = Conv<3>;
/// `torch.nn.ConvTranspose1d`: [`ConvTranspose`] over `[n, in, l]`.
pub type ConvTranspose1d = ConvTranspose<1>;
/// `torch.nn.ConvTranspose2d`: [`ConvTranspose`] over `[n, in, h, w]`.
pub type ConvTranspose2d = ConvTranspose<2>;
/// `torch.nn.ConvTranspose3d`: [`ConvTranspose`] over `[n, in, d, h, w]`.
pub type ConvTranspose3d = ConvTranspose<3>;

/// A convolution over `N` dimensions: `weight [out, in / groups, ..kernel]`, `bias [out]`, initialized uniform in
/// `±1/√(in / groups · taps)`.
#[derive(Clone, Debug)]
pub struct Conv<const N: usize> {
    path: String,
    window: Window<N>,
    groups: usize,
    /// `[out, in / groups, ..kernel]`
    pub weight: Param,
    /// `[out]`
    pub bias: Option<Param>,
}

/// `[a, b, ..kernel]`
fn weight_shape<const N: usize>(a: usize, b: usize, kernel: [usize; N]) -> Shape {
    let dims = [&[a, b], &kernel[..]].concat();
    Shape::try_new(&dims).unwrap_or_else(|| Shape::from([a, b]))
}

impl<const N: usize> Conv<N> {
    /// Registers `weight` and `bias` at the path of `params`.
    #[track_caller]
    pub fn new(params: &Params, inputs: usize, outputs: usize, window: Window<N>) -> Self {
        Self::grouped(params, inputs, outputs, window, 1).with_bias(params)
    }

    /// Registers only `weight`, for a convolution before a batch norm.
    #[track_caller]
    pub fn without_bias(params: &Params, inputs: usize, outputs: usize, window: Window<N>) -> Self {
        Self::grouped(params, inputs, outputs, window, 1)
    }

    /// Registers only `weight`; channels are divided into groups. As many groups as channels make a depthwise
    /// convolution.
    #[track_caller]
    pub fn grouped(params: &Params, inputs: usize, outputs: usize, window: Window<N>, groups: usize) -> Self {
        let per_group = inputs / groups.max(1);
        let start = Init::fan_in(per_group.saturating_mul(window.taps()));
        let weight = params.add("weight", weight_shape(outputs, per_group, window.kernel), start);
        Self { path: params.path().to_owned(), window, groups, weight, bias: None }
    }

    /// Registers `bias` too.
    #[must_use]
    #[track_caller]
    pub fn with_bias(self, params: &Params) -> Self {
        let [outputs, per_group] = [self.weight.shape().dims()[0], self.weight.shape().dims()[1]];
        let start = Init::fan_in(per_group.saturating_mul(self.window.taps()));
        Self { bias: Some(params.add("bias", [outputs], start)), ..self }
    }
}

impl<const N: usize> Module for Conv<N> {
    /// `x [n, in, ..] → [n, out, ..]`
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let trace = x.trace().clone();
        trace.layer(&self.path, || {
            let bias = self.bias.as_ref().map(|bias| trace.param(bias));
            x.convolve(&trace.param(&self.weight), bias.as_ref(), self.window, self.groups)
        })
    }
}

/// A transposed convolution over `N` dimensions: `weight [in, out / groups, ..kernel]`, `bias [out]`, initialized uniform
/// in `±1/√(out / groups · taps)`.
#[derive(Clone, Debug)]
pub struct ConvTranspose<const N: usize> {
    path: String,
    window: Window<N>,
    groups: usize,
    /// Additional elements at the end of each dimension of the result (PyTorch's `output_padding`).
    pub extra: [usize; N],
    /// `[in, out / groups, ..kernel]`
    pub weight: Param,
    /// `[out]`
    pub bias: Option<Param>,
}

impl<const N: usize> ConvTranspose<N> {
    /// Registers `weight` and `bias` at the path of `params`.
    #[track_caller]
    pub fn new(params: &Params, inputs: usize, outputs: usize, window: Window<N>) -> Self {
        Self::grouped(params, inputs, outputs, window, 1).with_bias(params)
    }

    /// Registers only `weight`, for a convolution before a batch norm.
    #[track_caller]
    pub fn without_bias(params: &Params, inputs: usize, outputs: usize, window: Window<N>) -> Self {
        Self::grouped(params, inputs, outputs, window, 1)
    }

    /// Registers only `weight`; channels are divided into groups.
    #[track_caller]
    pub fn grouped(params: &Params, inputs: usize, outputs: usize, window: Window<N>, groups: usize) -> Self {
        let per_group = outputs / groups.max(1);
        let start = Init::fan_in(per_group.saturating_mul(window.taps()));
        let weight = params.add("weight", weight_shape(inputs, per_group, window.kernel), start);
        Self { path: params.path().to_owned(), window, groups, extra: [0; N], weight, bias: None }
    }

    /// Registers `bias` too.
    #[must_use]
    #[track_caller]
    pub fn with_bias(self, params: &Params) -> Self {
        let per_group = self.weight.shape().dims()[1];
        let start = Init::fan_in(per_group.saturating_mul(self.window.taps()));
        let outputs = per_group.saturating_mul(self.groups);
        Self { bias: Some(params.add("bias", [outputs], start)), ..self }
    }
}

impl<const N: usize> Module for ConvTranspose<N> {
    /// `x [n, in, ..] → [n, out, ..]`
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let trace = x.trace().clone();
        trace.layer(&self.path, || {
            let bias = self.bias.as_ref().map(|bias| trace.param(bias));
            let weight = trace.param(&self.weight);
            x.convolve_transposed(&weight, bias.as_ref(), self.window, self.extra, self.groups)
        })
    }
}
