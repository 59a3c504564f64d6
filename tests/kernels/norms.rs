//! Norms of elements for which naive formulas lose digits: whichever element is an outlier, and however far
//! all elements are from zero, means and deviations are as exact as `f32` can represent them.

use std::collections::BTreeMap;

use wgrad::graph::Trace;

use super::{Batch, gradients_near, unchecked};
use crate::support::close::Near;
use crate::support::compare::compare;
use crate::support::noise;

/// Returns noise with standard deviation 1.
fn spread(n: usize) -> Vec<f32> {
    noise(11, n, -1.732_050_8, 1.732_050_8)
}

/// Returns cases of `n` elements: name, elements, and how far the mean, rounded to `f32`, may be from the
/// true mean, in deviations.
fn awkward(n: usize) -> Vec<(String, Vec<f32>, f64)> {
    let mut list = vec![("no outlier".to_owned(), spread(n), 0.0)];
    for far in [100.0, -1000.0] {
        for at in [0, 1, n / 3, n - 1] {
            let mut data = spread(n);
            data[at] = far;
            list.push((format!("element {at} at {far}"), data, 0.0));
        }
    }
    // A first block that is far from the other elements as a whole.
    let block = spread(n).into_iter().enumerate().map(|(i, v)| if i < 300 { v + 100.0 } else { v });
    list.push(("300 elements far off".to_owned(), block.collect(), 0.0));
    for mean in [100.0f32, 1000.0] {
        let data = spread(n).into_iter().map(|v| mean + v).collect();
        list.push((format!("mean {mean}"), data, f64::from(mean) * f64::from(f32::EPSILON)));
    }
    list.push(("a constant".to_owned(), vec![3.1; n], 1e-5));
    list
}

const NEAR: Near = Near { rel: 1e-6, abs: 1e-6 };

/// One channel in several images, whose planes are or are not multiples of four, reduced in many parts and in
/// few.
#[test]
fn batch_norm_is_exact_for_outliers_and_large_means() {
    let shapes = [[4, 1, 100, 100], [40, 1, 10, 100], [1, 1, 1, 40_000], [1600, 1, 5, 5]];
    for (name, data, off) in awkward(40_000) {
        unchecked(|device, limits| {
            compare(device, limits, |trace, batch| {
                for shape in shapes {
                    let x = batch.input(trace, shape, data.clone());
                    let (gamma, beta) =
                        (batch.input(trace, [1], vec![1.25]), batch.input(trace, [1], vec![-0.5]));
                    let y = x.batch_norm_train(&gamma, &beta, 1e-5, None);
                    let near = Near { abs: NEAR.abs + 2.0 * off, ..NEAR };
                    batch.expect(&format!("{name}, {shape:?}"), &y, near);
                }
            });
        });
    }
}

/// Every channel has its own case.
#[test]
fn batch_norm_normalises_every_channel_separately() {
    let (n, plane, cases) = (9, 35, awkward(9 * 35));
    let channels = cases.len();
    let mut data = vec![0.0; n * channels * plane];
    for (c, (_, own, _)) in cases.iter().enumerate() {
        for (i, v) in own.iter().enumerate() {
            data[(i / plane * channels + c) * plane + i % plane] = *v;
        }
    }
    let off = cases.iter().fold(0.0f64, |most, (.., off)| most.max(*off));
    unchecked(|device, limits| {
        compare(device, limits, |trace, batch| {
            let x = batch.input(trace, [n, channels, 5, 7], data.clone());
            let gamma = batch.input(trace, [channels], noise(1, channels, 0.5, 1.5));
            let beta = batch.input(trace, [channels], noise(2, channels, -1.0, 1.0));
            let y = x.batch_norm_train(&gamma, &beta, 1e-5, None);
            batch.expect("channels", &y, Near { abs: NEAR.abs + 3.0 * off, ..NEAR });
        });
    });
}

fn rows(trace: &Trace, batch: &mut Batch, data: &[f32], d: usize, near: Near, name: &str) {
    let x = batch.input(trace, [data.len() / d, d], data.to_vec());
    let (gamma, beta) = (batch.input(trace, [d], vec![1.25; d]), batch.input(trace, [d], vec![-0.5; d]));
    batch.expect(&format!("layer_norm, {name}"), &x.layer_norm(&gamma, &beta, 1e-5), near);
    // Squares have one sign: their sum does not lose digits.
    let near = Near { rel: 2e-6, abs: 1e-6 };
    batch.expect(&format!("rms_norm, {name}"), &x.rms_norm(&gamma, 1e-5), near);
}

#[test]
fn row_and_group_norms_are_exact_for_outliers_and_large_means() {
    for d in [999, 4096, 40_000] {
        for (name, data, off) in awkward(d) {
            unchecked(|device, limits| {
                compare(device, limits, |trace, batch| {
                    let near = Near { abs: NEAR.abs + 2.0 * off, ..NEAR };
                    rows(trace, batch, &data, d, near, &format!("{name} of {d}"));
                });
            });
        }
    }
    for (name, data, off) in awkward(40_000) {
        unchecked(|device, limits| {
            compare(device, limits, |trace, batch| {
                let x = batch.input(trace, [1, 4, 100, 100], data.clone());
                let gamma = batch.input(trace, [4], vec![1.25, 1.0, 0.75, -1.0]);
                let beta = batch.input(trace, [4], vec![0.0, 1.0, -1.0, 0.5]);
                let near = Near { abs: NEAR.abs + 2.0 * off, ..NEAR };
                batch.expect(&format!("group_norm, {name}"), &x.group_norm(1, &gamma, &beta, 1e-5), near);
            });
        });
    }
}

#[test]
fn norm_gradients_match_the_twin_for_outliers_and_large_means() {
    let n = 40_000;
    for (name, data, off) in awkward(n) {
        if name == "a constant" {
            // The gradient would be that of rounding errors.
            continue;
        }
        // The gradient is a difference of numbers about thirty times as large.
        let near = Near { rel: 2e-6, abs: 1e-5 + 30.0 * off };
        let ones = |n: usize| (vec![n], vec![1.25; n]);
        let image = [(vec![4, 1, 100, 100], data.clone()), ones(1), ones(1)];
        gradients_near(&format!("batch_norm, {name}"), &image, &BTreeMap::new(), near, |p| {
            p[0].batch_norm_train(&p[1], &p[2], 1e-5, None)
        });
        let image = [(vec![1, 4, 100, 100], data.clone()), ones(4), ones(4)];
        gradients_near(&format!("group_norm, {name}"), &image, &BTreeMap::new(), near, |p| {
            p[0].group_norm(2, &p[1], &p[2], 1e-5)
        });
        let row = [(vec![1, n], data.clone()), ones(n), ones(n)];
        gradients_near(&format!("layer_norm, {name}"), &row, &BTreeMap::new(), near, |p| {
            p[0].layer_norm(&p[1], &p[2], 1e-5)
        });
        gradients_near(&format!("rms_norm, {name}"), &row[..2], &BTreeMap::new(), near, |p| {
            p[0].rms_norm(&p[1], 1e-5)
        });
    }
}

/// One NaN, or one infinity, makes every element of its channel or row NaN, and no other element.
#[test]
fn nan_and_infinities_reach_their_channel_or_row_only() {
    for stray in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for at in [0, 5, 700, 2399] {
            let mut data = spread(2400);
            data[at] = stray;
            unchecked(|device, limits| {
                compare(device, limits, |trace, batch| {
                    let x = batch.input(trace, [2, 3, 20, 20], data.clone());
                    let (gamma, beta) =
                        (batch.input(trace, [3], vec![1.5; 3]), batch.input(trace, [3], vec![0.5; 3]));
                    let y = x.batch_norm_train(&gamma, &beta, 1e-5, None);
                    batch.expect("batch_norm", &y, Near { rel: 2e-6, abs: 2e-6 });
                    let y = x.group_norm(3, &gamma, &beta, 1e-5);
                    batch.expect("group_norm", &y, Near { rel: 2e-6, abs: 2e-6 });
                    let (gamma, beta) = (
                        batch.input(trace, [400], vec![1.5; 400]),
                        batch.input(trace, [400], vec![0.5; 400]),
                    );
                    let y = x.reshape([6, 400]).layer_norm(&gamma, &beta, 1e-5);
                    batch.expect("layer_norm", &y, Near { rel: 2e-6, abs: 2e-6 });
                });
            });
        }
    }
}

/// Where the running mean is NaN, the gradient of an element whose `dy` is 0 is 0.
#[test]
fn gradient_is_zero_where_dy_is_zero_and_the_running_mean_is_nan() {
    for (name, side) in [("one by one", 5), ("in vectors", 4)] {
        let per_channel = |value: f32| (vec![3], vec![value; 3]);
        let x = (vec![2, 3, side, side], spread(2 * 3 * side * side));
        let mean = (vec![3], vec![0.1, f32::NAN, 0.1]);
        let parameters = [x, per_channel(1.5), per_channel(0.5), mean, per_channel(0.8)];
        for relu in [false, true] {
            let near = Near { rel: 2e-6, abs: 2e-6 };
            gradients_near(&format!("batch_norm_eval, {name}"), &parameters, &BTreeMap::new(), near, |p| {
                let y = p[0].batch_norm_eval(&p[1], &p[2], &p[3], &p[4], 1e-5);
                let y = if relu { y.relu() } else { y };
                // The first pixel of each plane.
                y.upsample_nearest([1, 1])
            });
        }
    }
}
