//! Convolutional layers.

use super::Module;
use crate::graph::{Init, Param, Params, Tensor, Window};

/// `torch.nn.Conv2d`: `weight [out, in / groups, kh, kw]`, `bias [out]`, initialized uniform in
/// `±1/√(in / groups · kh · kw)`.
#[derive(Clone, Debug)]
pub struct Conv2d {
    path: String,
    window: Window,
    groups: usize,
    /// `[out, in / groups, kh, kw]`
    pub weight: Param,
    /// `[out]`
    pub bias: Option<Param>,
}

impl Conv2d {
    /// Registers `weight` and `bias` at the path of `params`.
    #[track_caller]
    pub fn new(params: &Params, inputs: usize, outputs: usize, window: Window) -> Self {
        let layer = Self::grouped(params, inputs, outputs, window, 1);
        let bias = params.add("bias", [outputs], Init::fan_in(inputs.saturating_mul(window.taps())));
        Self { bias: Some(bias), ..layer }
    }

    /// Registers only `weight`, for a convolution before a batch norm.
    #[track_caller]
    pub fn without_bias(params: &Params, inputs: usize, outputs: usize, window: Window) -> Self {
        Self::grouped(params, inputs, outputs, window, 1)
    }

    /// Registers only `weight`; channels are divided into groups. As many groups as channels make a depthwise
    /// convolution.
    #[track_caller]
    pub fn grouped(params: &Params, inputs: usize, outputs: usize, window: Window, groups: usize) -> Self {
        let per_group = inputs / groups.max(1);
        let [h, w] = window.kernel;
        let weight = params.add(
            "weight",
            [outputs, per_group, h, w],
            Init::fan_in(per_group.saturating_mul(window.taps())),
        );
        Self { path: params.path().to_owned(), window, groups, weight, bias: None }
    }
}

impl Module for Conv2d {
    /// `x [n, in, h, w] → [n, out, h', w']`
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let trace = x.trace().clone();
        trace.layer(&self.path, || {
            let bias = self.bias.as_ref().map(|bias| trace.param(bias));
            x.conv2d(&trace.param(&self.weight), bias.as_ref(), self.window, self.groups)
        })
    }
}

/// `torch.nn.ConvTranspose2d`: `weight [in, out, kh, kw]`, `bias [out]`, initialized uniform in
/// `±1/√(out · kh · kw)`.
#[derive(Clone, Debug)]
pub struct ConvTranspose2d {
    path: String,
    window: Window,
    /// Additional rows and columns of the result (PyTorch's `output_padding`).
    pub extra: [usize; 2],
    /// `[in, out, kh, kw]`
    pub weight: Param,
    /// `[out]`
    pub bias: Param,
}

impl ConvTranspose2d {
    /// Registers `weight` and `bias` at the path of `params`.
    #[track_caller]
    pub fn new(params: &Params, inputs: usize, outputs: usize, window: Window) -> Self {
        let start = || Init::fan_in(outputs.saturating_mul(window.taps()));
        let [h, w] = window.kernel;
        let weight = params.add("weight", [inputs, outputs, h, w], start());
        let bias = params.add("bias", [outputs], start());
        Self { path: params.path().to_owned(), window, extra: [0; 2], weight, bias }
    }
}

impl Module for ConvTranspose2d {
    /// `x [n, in, h, w] → [n, out, h', w']`
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let trace = x.trace().clone();
        trace.layer(&self.path, || {
            let (weight, bias) = (trace.param(&self.weight), trace.param(&self.bias));
            x.conv_transpose2d(&weight, Some(&bias), self.window, self.extra, 1)
        })
    }
}
