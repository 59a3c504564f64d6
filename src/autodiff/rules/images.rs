//! Images. A convolution saves its input and weight; max-pool saves a byte for each result; batch norm saves
//! its input, mean and inverse deviation, and nothing for its activation. The other operations save nothing.

use std::panic::Location;

use super::Site;
use crate::graph::{Activation, Averaging, Op, Resample, Source, Tensor, Window};

fn size(x: &Tensor) -> [usize; 2] {
    [x.dim(2), x.dim(3)]
}

fn bias(site: &Site) -> Option<Option<Tensor>> {
    (site.inputs.len() > 2).then(|| site.want(2, || site.dy().sum(&[0, 2, 3])))
}

/// Computes the weight's gradient first, so that it can be consumed before the image's gradient is needed.
pub(super) fn conv2d(site: &Site, window: Window, groups: usize) -> Vec<Option<Tensor>> {
    let (dy, x, w) = (site.dy(), &site.inputs[0], &site.inputs[1]);
    let at = Location::caller();
    let db = bias(site);
    let dw = site.want(1, || x.one(Op::Conv2dWeight { window, groups, normed: None }, &[x, dy], at));
    let dx =
        site.want(0, || dy.one(Op::Conv2dInput { window, groups, size: size(x), then: None }, &[dy, w], at));
    [dx, dw].into_iter().chain(db).collect()
}

/// Gradients of the transposed convolution: those of the convolution with image and result exchanged.
pub(super) fn conv2d_input(site: &Site, window: Window, groups: usize) -> Vec<Option<Tensor>> {
    let (dx, y, w) = (site.dy(), &site.inputs[0], &site.inputs[1]);
    let at = Location::caller();
    let db = bias(site);
    let dw = site.want(1, || y.one(Op::Conv2dWeight { window, groups, normed: None }, &[dx, y], at));
    let dy = site
        .want(0, || dx.one(Op::Conv2d { window, groups, source: Source::Tensor, then: None }, &[dx, w], at));
    [dy, dw].into_iter().chain(db).collect()
}

pub(super) fn max_pool2d(site: &Site, window: Window) -> Tensor {
    let op = Op::MaxPool2dGrad { window, size: size(&site.inputs[0]) };
    site.dy().one(op, &[&site.outputs[1], site.dy()], Location::caller())
}

pub(super) fn avg_pool2d(site: &Site, over: Averaging) -> Tensor {
    let op = Op::AvgPool2dGrad { over, size: size(&site.inputs[0]) };
    site.dy().one(op, &[site.dy()], Location::caller())
}

pub(super) fn resample(site: &Site, mode: Resample) -> Tensor {
    let op = Op::ResampleGrad { mode, size: size(&site.inputs[0]) };
    site.dy().one(op, &[site.dy()], Location::caller())
}

/// If `training`, mean and deviation were computed from `x`, and `dx` includes the gradient through them. Else they have
/// gradients of their own.
pub(super) fn batch_norm(site: &Site, activation: Activation, training: bool) -> Vec<Option<Tensor>> {
    let [x, mean, deviation, gamma, beta] = [0, 1, 2, 3, 4].map(|i| &site.inputs[i]);
    let op = Op::BatchNormGrad { activation, training };
    let inputs = [x, mean, deviation, gamma, beta, site.dy()];
    let mut d = x.trace().emit(op, &inputs, Location::caller()).into_iter();
    let (Some(dx), Some(dgamma), Some(dbeta)) = (d.next(), d.next(), d.next()) else { return vec![None; 5] };
    // Σ dy (x - mean) is dγ / deviation⁻¹, and Σ dy is dβ.
    let wants = |i: usize| site.wants[i] && !training;
    let dmean = wants(1).then(|| gamma.mul(deviation).mul(&dbeta).neg());
    let ddeviation = wants(2).then(|| gamma.mul(&dgamma).div(deviation));
    let wanted = |i: usize, d: Tensor| Some(d).filter(|_| site.wants[i]);
    vec![wanted(0, dx), dmean, ddeviation, wanted(3, dgamma), wanted(4, dbeta)]
}

/// With `n` elements in a channel `dx = (dmean + (2 dvar - ddeviation⁻¹ deviation⁻³) (x - mean)) / n`: a batch norm of `x`.
pub(super) fn batch_stats(site: &Site) -> Tensor {
    let (x, [mean, deviation]) = (&site.inputs[0], [0, 1].map(|i| &site.outputs[i]));
    let share = (mean.shape().numel() as f64 / x.shape().numel() as f64) as f32;
    let of_deviation = site.dys[1].as_ref().map(|d| d.mul(&deviation.square()).scale(-share));
    let of_variance = site.dys[2].as_ref().map(|d| d.div(deviation).scale(2.0 * share));
    let slope = of_deviation.into_iter().chain(of_variance).reduce(|sum, d| sum.add(&d));
    let shift = site.dys[0].as_ref().map(|d| d.scale(share));
    let zero = || mean.fill_like(mean.shape(), 0.0);
    let [slope, shift] = [slope, shift].map(|d| d.unwrap_or_else(zero));
    x.one(Op::BatchNorm(Activation::None), &[x, mean, deviation, &slope, &shift], Location::caller())
}
