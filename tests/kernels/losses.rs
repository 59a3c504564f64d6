//! Softmax, its gradient, and cross-entropy.

use std::collections::BTreeMap;

use wgrad::compile::TrainStep;
use wgrad::graph::{IGNORE, Init, Params, Tensor};

use super::{everywhere, placed_both_ways, unchecked};
use crate::support::close::{Near, ULP, assert_within};
use crate::support::compare::{compare, device_gradients, twin_gradients};
use crate::support::{noise, some_labels};

/// Error bound of e^x and of a sum of `n` terms.
fn softmax_error(n: usize) -> Near {
    Near { rel: ULP * (24.0 + 2.0 * (n as f64).sqrt()), abs: 0.0 }
}

fn log_softmax_error(n: usize) -> Near {
    Near { rel: 4.0 * ULP, abs: ULP * (16.0 + 2.0 * (n as f64).sqrt()) }
}

#[test]
fn softmax_matches_the_twin() {
    placed_both_ways(|trace, batch, keep| {
        for rows in [1, 5] {
            for cols in [1, 3, 4, 5, 31, 64, 129, 257] {
                for log in [false, true] {
                    let x = batch.input(trace, [rows, cols], noise(cols as u64, rows * cols, -6.0, 6.0));
                    let (y, near) = if log {
                        (x.log_softmax(), log_softmax_error(cols))
                    } else {
                        (x.softmax(), softmax_error(cols))
                    };
                    batch.expect(&format!("{rows} x {cols} log {log}"), &y, near);
                    if keep {
                        batch.keep(&x);
                    }
                }
            }
        }
    });
}

#[test]
fn softmax_of_extreme_rows_matches_the_twin() {
    everywhere(|device, limits| {
        compare(device, limits, |trace, batch| {
            let rows = vec![
                1000.0, 1001.0, 999.0, -1000.0, -1001.0, -999.0, 0.0, 0.0, 0.0, 1e30, 0.0, -1e30, 80.0,
                -80.0, 0.0,
            ];
            let x = batch.input(trace, [5, 3], rows.clone());
            batch.expect("softmax", &x.softmax(), softmax_error(3));
            let x = batch.input(trace, [5, 3], rows);
            batch.expect("log_softmax", &x.log_softmax(), log_softmax_error(3));
        });
    });
}

/// One row of three has a NaN in one column.
#[test]
fn nan_reaches_every_element_of_its_row() {
    everywhere(|device, limits| {
        compare(device, limits, |trace, batch| {
            for cols in [1, 3, 4, 17, 64, 129, 2048] {
                for at in [0, cols / 2, cols - 1] {
                    let mut data = noise(1, 3 * cols, -6.0, 6.0);
                    data[cols + at] = f32::NAN;
                    let x = batch.input(trace, [3, cols], data.clone());
                    batch.expect(&format!("softmax, {at} of {cols}"), &x.softmax(), softmax_error(cols));
                    let x = batch.input(trace, [3, cols], data.clone());
                    let name = format!("log_softmax, {at} of {cols}");
                    batch.expect(&name, &x.log_softmax(), log_softmax_error(cols));
                    let x = batch.input(trace, [3, cols], data);
                    let y = batch.labels(trace, [3], cols as u32, some_labels(3, 3, cols as u32));
                    let name = format!("cross_entropy, {at} of {cols}");
                    batch.expect(&name, &x.cross_entropy(&y), Near { rel: 1e-5, abs: 2e-6 });
                }
            }
        });
    });
}

#[test]
fn softmax_and_cross_entropy_of_large_shapes_match_the_twin() {
    unchecked(|device, limits| {
        compare(device, limits, |trace, batch| {
            for (rows, cols) in [(2, 50_257), (1, 16_385), (66_000, 2)] {
                let data = || noise(7, rows * cols, -6.0, 6.0);
                let x = batch.input(trace, [rows, cols], data());
                batch.expect(&format!("softmax {rows} x {cols}"), &x.softmax(), softmax_error(cols));
                if rows > 65_535 {
                    continue; // One kernel of many workgroups with barriers is slow enough on a CPU.
                }
                let x = batch.input(trace, [rows, cols], data());
                batch.expect(
                    &format!("log_softmax {rows} x {cols}"),
                    &x.log_softmax(),
                    log_softmax_error(cols),
                );
                let x = batch.input(trace, [rows, cols], data());
                let y = batch.labels(trace, [rows], cols as u32, some_labels(8, rows, cols as u32));
                let near = Near { rel: 1e-5, abs: 0.0 };
                batch.expect(&format!("cross_entropy {rows} x {cols}"), &x.cross_entropy(&y), near);
            }
        });
    });
}

#[test]
fn cross_entropy_skips_ignored_labels() {
    everywhere(|device, limits| {
        compare(device, limits, |trace, batch| {
            for (rows, cols) in [(1, 1), (1, 2), (4, 5), (9, 64), (65, 129)] {
                for ignore in [0, 1, rows] {
                    let mut labels = some_labels(3, rows, cols as u32);
                    labels[..ignore].fill(IGNORE);
                    let x = batch.input(trace, [rows, cols], noise(2, rows * cols, -6.0, 6.0));
                    let y = batch.labels(trace, [rows], cols as u32, labels);
                    let near = Near { rel: 1e-5, abs: 2e-6 };
                    batch.expect(&format!("{rows} x {cols}, {ignore} ignored"), &x.cross_entropy(&y), near);
                }
            }
            let rows = vec![1e4, 0.0, -1e4, -500.0, -501.0, -502.0];
            let x = batch.input(trace, [2, 3], rows);
            let y = batch.labels(trace, [2], 3, vec![0, 2]);
            batch.expect("far from zero", &x.cross_entropy(&y), Near { rel: 1e-5, abs: 0.0 });
        });
    });
}

/// Checks gradients of a parameter, for losses whose gradient is neither 1 nor the same for every row.
fn check_gradient(
    name: &str,
    shape: [usize; 2],
    labels: &BTreeMap<&str, Vec<u32>>,
    error: f64,
    data: Vec<f32>,
    build: impl Fn(&Tensor) -> Tensor,
) {
    let params = Params::new(3);
    let x = params.add("x", shape, Init::Data(data.into()));
    let step = TrainStep::trace(&params, |trace| build(&trace.param(&x).scale(0.75))).expect("valid");
    unchecked(|device, limits| {
        let (plan, found) = device_gradients(device, &step, limits, labels);
        let wanted = &twin_gradients(&plan, labels)["x.momentum_buffer"];
        let largest = wanted.iter().fold(0.0f64, |most, g| most.max(g.abs()));
        assert_within(&format!("{name} ({})", limits.name), &found[0].1, wanted, |i| {
            1e-5 * wanted[i].abs() + error * largest
        });
    });
}

#[test]
fn softmax_and_cross_entropy_gradients_match_the_twin() {
    for shape in [[1, 1], [3, 5], [9, 64], [2, 1000], [2, 50_257]] {
        let [rows, cols] = shape;
        // dy minus its mean may be a thirtieth of dy, with the error of the whole sum.
        let summed = 30.0 * 4.0 * ULP * (cols as f64).sqrt();
        let weights = move |x: &Tensor| {
            let ramp = x.square().scale(0.03).add(x);
            ramp.sigmoid()
        };
        let data = || noise(11, rows * cols, -6.0, 6.0);
        check_gradient("softmax", shape, &BTreeMap::new(), summed, data(), |x| {
            x.softmax().mul(&weights(x)).sum(&[])
        });
        check_gradient("log_softmax", shape, &BTreeMap::new(), summed, data(), |x| {
            x.log_softmax().mul(&weights(x)).mean(&[])
        });
        let mut labels = some_labels(5, rows, cols as u32);
        if rows > 1 {
            labels[0] = IGNORE;
        }
        check_gradient("cross_entropy", shape, &BTreeMap::from([("y", labels)]), 1e-6, data(), |x| {
            let y = x.trace().labels("y", [rows], cols as u32);
            x.cross_entropy(&y).square()
        });
    }
}

/// A NaN in a row makes the gradient of that row NaN, and of no other.
#[test]
fn nan_reaches_only_the_gradient_of_its_row() {
    let mut data = noise(11, 3 * 32, -6.0, 6.0);
    data[37] = f32::NAN;
    // One loss for each row: their mean would be NaN, and its gradient is not.
    check_gradient("log_softmax", [3, 32], &BTreeMap::new(), 1e-5, data.clone(), |x| {
        x.log_softmax().scale(0.3).sum(&[])
    });
    let labels = BTreeMap::from([("y", some_labels(5, 3, 32))]);
    check_gradient("cross_entropy", [3, 32], &labels, 1e-6, data.clone(), |x| {
        x.cross_entropy(&x.trace().labels("y", [3], 32))
    });
    let ignored = BTreeMap::from([("y", vec![3, IGNORE, 5])]);
    check_gradient("cross_entropy of ignored NaN", [3, 32], &ignored, 1e-6, data, |x| {
        x.cross_entropy(&x.trace().labels("y", [3], 32))
    });
}
