//! Batch norm, from the formulas of its paper.

use super::Array;
use super::images::dims;
use crate::graph::{Activation, Running, Unary};

/// Returns the channel of each element.
fn channels(x: Array) -> impl Iterator<Item = usize> {
    let [_, c, h, w] = dims(x);
    (0..x.data.len()).map(move |i| i / (h * w) % c)
}

/// Returns mean, inverse deviation and variance of each channel.
pub(super) fn stats(x: Array, eps: f32) -> Vec<Vec<f64>> {
    let c = dims(x)[1];
    let count = (x.data.len() / c) as f64;
    let mut mean = vec![0.0; c];
    channels(x).zip(x.data).for_each(|(c, v)| mean[c] += v / count);
    let mut var = vec![0.0; c];
    channels(x).zip(x.data).for_each(|(c, v)| var[c] += (v - mean[c]).powi(2) / count);
    let deviation = var.iter().map(|v| 1.0 / (v + f64::from(eps)).sqrt()).collect();
    vec![mean, deviation, var]
}

/// Returns the result before the activation, and the normalised input.
fn normal(inputs: &[Array], c: usize, v: f64) -> (f64, f64) {
    let [mean, deviation, gamma, beta] = [1, 2, 3, 4].map(|i| inputs[i].data[c]);
    let standard = (v - mean) * deviation;
    (gamma * standard + beta, standard)
}

pub(super) fn norm(inputs: &[Array], activation: Activation) -> Vec<f64> {
    let one = |(c, &v): (usize, &f64)| {
        let y = normal(inputs, c, v).0;
        match activation {
            Activation::None => y,
            Activation::Relu => Unary::Relu.value(y),
            Activation::Relu6 => y.clamp(0.0, 6.0),
        }
    };
    channels(inputs[0]).zip(inputs[0].data).map(one).collect()
}

/// `dx, dγ, dβ`.
pub(super) fn grad(inputs: &[Array], activation: Activation, training: bool) -> Vec<Vec<f64>> {
    let x = inputs[0];
    let c = dims(x)[1];
    let count = (x.data.len() / c) as f64;
    let (mut dgamma, mut dbeta) = (vec![0.0; c], vec![0.0; c]);
    let mut passed = Vec::new();
    for ((c, &v), &dy) in channels(x).zip(x.data).zip(inputs[5].data) {
        let (y, standard) = normal(inputs, c, v);
        let passes = match activation {
            Activation::None => true,
            // Like PyTorch, NaN passes.
            Activation::Relu => y > 0.0 || y.is_nan(),
            Activation::Relu6 => (y > 0.0 && y < 6.0) || y.is_nan(),
        };
        let g = if passes { dy } else { 0.0 };
        dgamma[c] += g * standard;
        dbeta[c] += g;
        passed.push((c, standard, g));
    }
    let dx = passed.into_iter().map(|(c, standard, g)| {
        let through = if training { (dbeta[c] + standard * dgamma[c]) / count } else { 0.0 };
        inputs[3].data[c] * inputs[2].data[c] * (g - through)
    });
    vec![dx.collect(), dgamma, dbeta]
}

/// Updates `memory[0]` and `memory[1]`, the running mean and variance, with `memory[2]` and `memory[3]`,
/// those of the batch, or of one part of it after another.
pub(super) fn running(memory: &mut [Vec<f64>], running: &Running) {
    let (momentum, unbias) = (f64::from(running.momentum), f64::from(running.unbias));
    let channels = memory[0].len();
    for i in 0..memory[2].len() {
        let c = i % channels;
        memory[0][c] += momentum * (memory[2][i] - memory[0][c]);
        memory[1][c] += momentum * (memory[3][i] * unbias - memory[1][c]);
    }
}
