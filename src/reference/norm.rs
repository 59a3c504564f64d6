//! Layer norm and RMS norm, from the formulas of their papers.

use super::Array;
use crate::graph::RowNorm;

/// Returns `y` and the statistics.
pub(super) fn norm(inputs: &[Array], kind: RowNorm, eps: f32) -> Vec<Vec<f64>> {
    let (x, gamma) = (inputs[0], inputs[1].data);
    let columns = x.shape.last();
    let (mut y, mut statistics) = (Vec::new(), Vec::new());
    for row in x.data.chunks(columns) {
        let mean = match kind {
            RowNorm::Layer => row.iter().sum::<f64>() / columns as f64,
            RowNorm::Rms => 0.0,
        };
        let square = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / columns as f64;
        let deviation = 1.0 / (square + f64::from(eps)).sqrt();
        let beta = |c: usize| inputs.get(2).map_or(0.0, |beta| beta.data[c]);
        y.extend(row.iter().enumerate().map(|(c, v)| gamma[c] * ((v - mean) * deviation) + beta(c)));
        match kind {
            RowNorm::Layer => statistics.extend([mean, deviation]),
            RowNorm::Rms => statistics.push(deviation),
        }
    }
    vec![y, statistics]
}

/// Returns `dx, dγ` and, for layer norm, `dβ`. With `g = γ dy`,
/// `dx = (g - mean of g - x̂ mean of g x̂) / deviation`; RMS norm has no term for the mean of g.
pub(super) fn grad(inputs: &[Array], kind: RowNorm) -> Vec<Vec<f64>> {
    let [x, statistics, gamma, dy] = [0, 1, 2, 3].map(|i| inputs[i].data);
    let columns = inputs[0].shape.last();
    let (mut dx, mut dgamma, mut dbeta) = (Vec::new(), vec![0.0; columns], vec![0.0; columns]);
    for (i, (row, dy)) in x.chunks(columns).zip(dy.chunks(columns)).enumerate() {
        let (mean, deviation) = match kind {
            RowNorm::Layer => (statistics[2 * i], statistics[2 * i + 1]),
            RowNorm::Rms => (0.0, statistics[i]),
        };
        let normal: Vec<f64> = row.iter().map(|v| (v - mean) * deviation).collect();
        let g: Vec<f64> = dy.iter().zip(gamma).map(|(dy, gamma)| dy * gamma).collect();
        let mean_g = match kind {
            RowNorm::Layer => g.iter().sum::<f64>() / columns as f64,
            RowNorm::Rms => 0.0,
        };
        let mean_gx = g.iter().zip(&normal).map(|(g, n)| g * n).sum::<f64>() / columns as f64;
        dx.extend(g.iter().zip(&normal).map(|(g, n)| (g - mean_g - n * mean_gx) * deviation));
        for c in 0..columns {
            dgamma[c] += dy[c] * normal[c];
            dbeta[c] += dy[c];
        }
    }
    match kind {
        RowNorm::Layer => vec![dx, dgamma, dbeta],
        RowNorm::Rms => vec![dx, dgamma],
    }
}
