//! Norms of rows, embedding and rotary embedding.

use std::collections::BTreeMap;

use wgrad::graph::{Rope, Tensor};

use super::{SIZES, everywhere, gradients_near, placed_both_ways, unchecked};
use crate::support::close::{EXACT, Near};
use crate::support::compare::compare;
use crate::support::row_cases::SCALINGS;
use crate::support::{noise, some_labels};

const NEAR: Near = Near { rel: 4e-6, abs: 4e-6 };

#[test]
fn row_norms_match_the_twin() {
    everywhere(|device, limits| {
        compare(device, limits, |trace, batch| {
            for rows in [1, 9] {
                for d in SIZES {
                    let x = batch.input(trace, [rows, d], noise(d as u64, rows * d, -3.0, 5.0));
                    let gamma = batch.input(trace, [d], noise(1, d, 0.5, 1.5));
                    let beta = batch.input(trace, [d], noise(2, d, -1.0, 1.0));
                    let y = x.layer_norm(&gamma, &beta, 1e-5);
                    batch.expect(&format!("layer_norm {rows} x {d}"), &y, NEAR);
                    batch.expect(&format!("rms_norm {rows} x {d}"), &x.rms_norm(&gamma, 1e-5), NEAR);
                }
            }
        });
    });
}

/// Rows far from zero, all zero, constant, huge, tiny, and with one outlier.
#[test]
fn row_norms_of_extreme_rows_match_the_twin() {
    everywhere(|device, limits| {
        compare(device, limits, |trace, batch| {
            for d in [7, 64, 257, 1000] {
                let own = |f: &dyn Fn(usize, f32) -> f32| -> Vec<f32> {
                    noise(3, d, -1.0, 1.0).into_iter().enumerate().map(|(i, v)| f(i, v)).collect()
                };
                let first = |far: f32| own(&move |i, v| if i == 0 { far } else { v });
                let rows = [
                    own(&|_, _| 0.0),
                    own(&|_, _| 3.0),
                    own(&|_, v| v * 1e15),
                    own(&|_, v| v * 1e-20),
                    first(1e3),
                    own(&|_, v| 1e4 + v),
                ];
                let (gamma, beta) = (noise(1, d, 0.5, 1.5), noise(2, d, -1.0, 1.0));
                for (i, row) in rows.iter().enumerate() {
                    let x = batch.input(trace, [1, d], row.clone());
                    let gamma = batch.input(trace, [d], gamma.clone());
                    let beta = batch.input(trace, [d], beta.clone());
                    // The mean of a row near 10,000, an f32, is within 5e-4; the deviation is 0.6.
                    let near =
                        if i == 5 { Near { rel: 0.0, abs: 2e-3 } } else { Near { rel: 4e-6, abs: 2e-5 } };
                    let y = x.layer_norm(&gamma, &beta, 1e-5);
                    batch.expect(&format!("layer_norm of row {i} of {d}"), &y, near);
                    let near = Near { rel: 1e-5, abs: 1e-6 };
                    batch.expect(&format!("rms_norm of row {i} of {d}"), &x.rms_norm(&gamma, 1e-5), near);
                }
            }
        });
    });
}

#[test]
fn row_norms_of_long_and_many_rows_match_the_twin() {
    unchecked(|device, limits| {
        compare(device, limits, |trace, batch| {
            for (rows, d) in [(2, 50_257), (1, 100_001), (2, 4 * 21_000), (3000, 12)] {
                let x = batch.input(trace, [rows, d], noise(7, rows * d, -3.0, 5.0));
                let gamma = batch.input(trace, [d], noise(1, d, 0.5, 1.5));
                let beta = batch.input(trace, [d], noise(2, d, -1.0, 1.0));
                let near = Near { rel: 1e-5, abs: 1e-5 };
                let y = x.layer_norm(&gamma, &beta, 1e-5);
                batch.expect(&format!("layer_norm {rows} x {d}"), &y, near);
                batch.expect(&format!("rms_norm {rows} x {d}"), &x.rms_norm(&gamma, 1e-5), near);
            }
        });
    });
}

/// Checks the gradients of a loss over the parameters `p0`, `p1`, … of these shapes.
fn check_gradients(
    name: &str,
    shapes: &[&[usize]],
    labels: &BTreeMap<&str, Vec<u32>>,
    build: impl Fn(&[Tensor]) -> Tensor,
) {
    let noise_of = |(i, dims): (usize, &&[usize])| {
        let data = noise(20 + i as u64, dims.iter().product(), -2.0, 2.0);
        (dims.to_vec(), data)
    };
    let params: Vec<_> = shapes.iter().enumerate().map(noise_of).collect();
    gradients_near(name, &params, labels, Near { rel: 2e-5, abs: 1e-5 }, build);
}

#[test]
fn row_norm_gradients_match_the_twin() {
    for [rows, d] in [[1, 1], [3, 5], [9, 64], [300, 12], [2, 1000], [2, 50_257], [700, 4]] {
        check_gradients(
            &format!("layer_norm {rows} x {d}"),
            &[&[rows, d], &[d], &[d]],
            &BTreeMap::new(),
            |x| x[0].scale(1.5).layer_norm(&x[1], &x[2], 1e-3),
        );
        check_gradients(&format!("rms_norm {rows} x {d}"), &[&[rows, d], &[d]], &BTreeMap::new(), |x| {
            x[0].scale(1.5).rms_norm(&x[1], 1e-3)
        });
    }
}

#[test]
fn embedding_is_exact_and_clamps_ids() {
    everywhere(|device, limits| {
        compare(device, limits, |trace, batch| {
            for d in SIZES {
                let table = batch.input(trace, [13, d], noise(4, 13 * d, -2.0, 2.0));
                let ids = batch.ids(trace, [3, 5], 13, some_labels(d as u64, 15, 13));
                batch.expect(&format!("embedding of {d}"), &table.embedding(&ids), EXACT);
            }
            // Indices that were not declared as ids are not checked when they are fed; out of range they read
            // the last row.
            let table = batch.input(trace, [5, 3], noise(4, 15, -2.0, 2.0));
            let ids = batch.input(trace, [4], vec![4.0, 5.0, 1e9, 0.0]).cast(wgrad::dtype::DType::U32);
            batch.expect("ids out of range", &table.embedding(&ids), EXACT);
        });
    });
}

/// One, two and three passes of the sort; runs of equal ids longer than one launch sums; partial blocks.
#[test]
fn embedding_gradients_match_the_twin() {
    for (ids, rows, d) in [
        (1, 1, 5),
        (1000, 2, 4),
        (63, 300, 4),
        (257, 300, 3),
        (5000, 70_000, 4),
        (40_000, 3, 4),
        (33_000, 1, 1),
    ] {
        let labels = BTreeMap::from([("ids", some_labels(9, ids, rows as u32))]);
        check_gradients(&format!("embedding of {ids} in {rows} x {d}"), &[&[rows, d]], &labels, |x| {
            x[0].scale(0.5).embedding(&x[0].trace().ids("ids", [ids], rows as u32))
        });
    }
}

#[test]
fn rotary_is_accurate_at_large_positions() {
    placed_both_ways(|trace, batch, keep| {
        for (shape, heads, base) in
            [([1, 4100, 2, 8], 2, 10_000.0), ([2, 3, 3, 128], 2, 500_000.0), ([1, 700, 1, 6], 1, 1.0)]
        {
            let count = shape.iter().product();
            let x = batch.input(trace, shape, noise(6, count, -2.0, 2.0));
            let near = Near { rel: 1e-6, abs: 1e-6 };
            batch.expect(&format!("rotary {shape:?}"), &x.rotary(heads, base), near);
            if keep {
                batch.keep(&x);
            }
        }
        for scaling in SCALINGS {
            let shape = [1, 4100, 1, 16];
            let x = batch.input(trace, shape, noise(7, 4100 * 16, -2.0, 2.0));
            let y = x.rotary(1, Rope { base: 10_000.0, scaling });
            // Within the ramp a pair makes 256 turns in these positions: 3e-4 radians from 2e-7 of the frequency.
            batch.expect(&format!("rotary, {scaling:?}"), &y, Near { rel: 1e-6, abs: 4e-4 });
            if keep {
                batch.keep(&x);
            }
        }
    });
}
