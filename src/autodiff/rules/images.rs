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

/// If `training`, mean and deviation were computed from `x`, and `dx` includes the gradient through them.
pub(super) fn batch_norm(site: &Site, activation: Activation, training: bool) -> Vec<Option<Tensor>> {
    let [x, mean, deviation, gamma, beta] = [0, 1, 2, 3, 4].map(|i| &site.inputs[i]);
    let op = Op::BatchNormGrad { activation, training };
    let inputs = [x, mean, deviation, gamma, beta, site.dy()];
    let mut d = x.trace().emit(op, &inputs, Location::caller()).into_iter().map(Some);
    let (dx, dgamma, dbeta) = (d.next().flatten(), d.next().flatten(), d.next().flatten());
    let wanted = |i: usize, d: Option<Tensor>| d.filter(|_| site.wants[i]);
    vec![wanted(0, dx), None, None, wanted(3, dgamma), wanted(4, dbeta)]
}
