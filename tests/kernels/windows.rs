//! Pooling and resampling where one element is a sum over very many: split into pieces, and accurate to the
//! last digits.

use std::collections::BTreeMap;

use wgrad::graph::{Tensor, Window};

use super::{gradients_near, unchecked};
use crate::support::close::Near;
use crate::support::compare::compare;
use crate::support::noise;

type Function = Box<dyn Fn(&Tensor) -> Tensor>;

const NEAR: Near = Near { rel: 1e-6, abs: 1e-6 };

fn average(kernel: [usize; 2], stride: usize, padding: [usize; 2]) -> Function {
    let window = Window { kernel, padding, ..Window::square(1).stride(stride) };
    Box::new(move |x| x.avg_pool2d(window, padding == [0, 0]))
}

/// Returns names, image shapes and functions. A thread of lavapipe cannot sum windows of 65,536 elements or
/// more.
fn cases() -> Vec<(&'static str, [usize; 4], Function)> {
    let adaptive = |bins| -> Function { Box::new(move |x: &Tensor| x.adaptive_avg_pool2d(bins)) };
    let nearest = |size| -> Function { Box::new(move |x: &Tensor| x.upsample_nearest(size)) };
    let bilinear =
        |size, corners| -> Function { Box::new(move |x: &Tensor| x.upsample_bilinear(size, corners)) };
    vec![
        ("one window of 256 × 256", [1, 2, 256, 256], average([256; 2], 1, [0, 0])),
        ("one window of 300 × 300", [2, 1, 300, 300], average([300; 2], 1, [0, 0])),
        ("windows of 300 × 310", [1, 1, 420, 333], average([300, 310], 20, [7, 11])),
        ("a window of 1 × 70,000", [1, 1, 1, 70_000], average([1, 70_000], 1, [0, 0])),
        ("windows of 70,000 × 1", [1, 1, 70_003, 2], average([70_000, 1], 1, [0, 0])),
        ("windows of 290 × 290 at each pixel", [1, 1, 300, 299], average([290; 2], 1, [0, 0])),
        ("the mean of 400 × 300", [2, 3, 400, 300], adaptive([1, 1])),
        ("bins of 400 × 300", [1, 2, 800, 301], adaptive([2, 1])),
        ("bins of a pixel", [2, 1, 1, 2], adaptive([300, 310])),
        ("300 × 300 of one pixel", [1, 2, 1, 1], nearest([300, 300])),
        ("700 × 900 of 2 × 3", [1, 1, 2, 3], nearest([700, 900])),
        ("1 × 70,000 of 1", [1, 1, 1, 1], nearest([1, 70_000])),
        ("300 × 300 between pixels", [1, 1, 1, 1], bilinear([300, 300], false)),
        ("700 × 900 between pixels", [1, 2, 2, 3], bilinear([700, 900], false)),
        ("700 × 900 between corners", [1, 2, 2, 3], bilinear([700, 900], true)),
        ("300 × 2 between corners", [1, 2, 1, 3], bilinear([300, 2], true)),
    ]
}

#[test]
fn large_windows_match_the_twin() {
    for (name, shape, function) in cases() {
        let n = shape.iter().product();
        unchecked(|device, limits| {
            compare(device, limits, |trace, batch| {
                for (low, high) in [(0.5, 1.5), (0.1, 0.1)] {
                    let x = batch.input(trace, shape, noise(5, n, low, high));
                    batch.expect(&format!("{name}, {low} to {high}"), &function(&x), NEAR);
                }
            });
        });
    }
}

#[test]
fn gradients_of_large_windows_match_the_twin() {
    for (name, shape, function) in cases() {
        let n = shape.iter().product();
        for (low, high) in [(0.5, 1.5), (0.1, 0.1)] {
            let x = [(shape.to_vec(), noise(5, n, low, high))];
            gradients_near(name, &x, &BTreeMap::new(), Near { rel: 1e-6, abs: 1e-6 }, |p| function(&p[0]));
        }
    }
}

/// One NaN, or one infinity, reaches only the elements that it is summed into, in every piece.
#[test]
fn nan_and_infinities_stay_in_their_windows() {
    for stray in [f32::NAN, f32::INFINITY] {
        for (name, shape, function) in cases() {
            let n: usize = shape.iter().product();
            let mut data = noise(5, n, 0.5, 1.5);
            data[n * 2 / 3] = stray;
            unchecked(|device, limits| {
                compare(device, limits, |trace, batch| {
                    let x = batch.input(trace, shape, data.clone());
                    batch.expect(&format!("{name} with {stray}"), &function(&x), NEAR);
                });
            });
        }
    }
}
