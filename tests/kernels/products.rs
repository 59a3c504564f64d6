//! Matrix products: all transposes, odd sizes, batches, long inner dimensions.

use wgrad::shape::Shape;

use super::{everywhere, is_gpu, unchecked};
use crate::support::close::{EXACT, Near};
use crate::support::compare::{compare, compare_fused, kernels};
use crate::support::noise;

pub fn swapped(dims: &[usize], swap: bool) -> Shape {
    let mut dims = dims.to_vec();
    let rank = dims.len();
    if swap {
        dims.swap(rank - 1, rank - 2);
    }
    Shape::try_new(&dims).expect("at most six dimensions")
}

pub const TRANSPOSES: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];

pub fn product(
    trace: &wgrad::graph::Trace,
    batch: &mut super::Batch,
    (a, b): (&[usize], &[usize]),
    (ta, tb): (bool, bool),
) {
    let k = a[a.len() - 1];
    let (a, b) = (swapped(a, ta), swapped(b, tb));
    let x = batch.input(trace, a, noise(1, a.numel() as usize, -2.0, 2.0));
    let y = batch.input(trace, b, noise(2, b.numel() as usize, -2.0, 2.0));
    let magnitudes = x.abs().matmul_transposed(&y.abs(), ta, tb);
    batch.expect_sum(&format!("{a} {ta} {b} {tb}"), &x.matmul_transposed(&y, ta, tb), &magnitudes, k);
}

#[test]
fn matmul_matches_the_twin_for_sizes_around_the_tiles() {
    let sizes = [
        (1, 1, 1),
        (1, 1, 7),
        (3, 5, 2),
        (4, 4, 4),
        (7, 1, 33),
        (1, 129, 31),
        (8, 24, 4),
        (15, 17, 16),
        (16, 16, 64),
        (17, 25, 8),
        (31, 28, 12),
        (32, 32, 32),
        (33, 36, 40),
        (64, 64, 16),
        (65, 63, 65),
        (65, 68, 64),
        (128, 10, 36),
        (40, 132, 28),
        (5, 64, 129),
    ];
    everywhere(|device, limits| {
        let plan = compare(device, limits, |trace, batch| {
            for (m, n, k) in sizes {
                for transposes in TRANSPOSES {
                    product(trace, batch, (&[m, k], &[k, n]), transposes);
                }
            }
        });
        let names = kernels(&plan);
        let tiled = names.iter().any(|name| name == "matmul_tiled64");
        assert_eq!(tiled, is_gpu(limits), "{}: {names:?}", limits.name);
    });
}

#[test]
fn batched_matmul_matches_the_twin_with_and_without_broadcasting() {
    let shapes: [(&[usize], &[usize]); 9] = [
        (&[3, 5, 4], &[3, 4, 6]),
        (&[2, 33, 36], &[2, 36, 40]),
        (&[3, 5, 4], &[4, 6]),
        (&[5, 4], &[3, 4, 6]),
        (&[1, 5, 4], &[3, 4, 6]),
        (&[3, 5, 4], &[1, 4, 6]),
        (&[2, 1, 3, 4], &[5, 4, 2]),
        (&[2, 3, 1, 1, 4, 4], &[3, 2, 1, 4, 32]),
        (&[7, 1, 1], &[7, 1, 1]),
    ];
    everywhere(|device, limits| {
        compare(device, limits, |trace, batch| {
            for shapes in shapes {
                for transposes in TRANSPOSES {
                    product(trace, batch, shapes, transposes);
                }
            }
        });
    });
}

/// GPUs split the inner dimension of results with few tiles: in pieces that do not divide it, for results of any length,
/// of which long ones are added as vec4s, for batches, and with an epilogue that is stored over its operand.
#[test]
fn products_in_pieces_match_the_twin() {
    let sizes =
        [(65, 63, 300), (130, 132, 1028), (17, 40, 2049), (3, 5, 700), (128, 256, 512), (300, 460, 520)];
    everywhere(|device, limits| {
        let plan = compare_fused(device, limits, |trace, batch| {
            for transposes in TRANSPOSES {
                for (m, n, k) in sizes {
                    product(trace, batch, (&[m, k], &[k, n]), transposes);
                }
                product(trace, batch, (&[3, 20, 260], &[3, 260, 33]), transposes);
                product(trace, batch, (&[2, 132, 640], &[640, 36]), transposes);
            }
            for (m, n, k) in [(36, 68, 640), (21, 33, 513), (300, 460, 520)] {
                let x = batch.input(trace, [m, k], noise(1, m * k, -1.0, 1.0));
                let y = batch.input(trace, [k, n], noise(2, k * n, -1.0, 1.0));
                let z = batch.input(trace, [m, n], noise(3, m * n, -1.0, 1.0));
                let bias = batch.input(trace, [n], noise(4, n, -1.0, 1.0));
                let near = Near { rel: 1e-5, abs: 2e-4 };
                batch.expect("epilogue", &x.matmul(&y).add(&bias).relu().add(&z.exp()), near);
            }
        });
        let names = kernels(&plan);
        for part in ["sum_parts", "sum_parts_each", "sum_parts+", "sum_parts_each+"] {
            let ran = names.iter().any(|name| name == part || part.ends_with('+') && name.starts_with(part));
            assert_eq!(ran, is_gpu(limits), "{}: {part} in {names:?}", limits.name);
        }
    });
}

/// lavapipe silently ends a thread's loops after 65,535 iterations.
#[test]
fn matmul_matches_the_twin_for_long_inner_dimensions() {
    unchecked(|device, limits| {
        compare(device, limits, |trace, batch| {
            for k in [16_384, 70_001, 140_000] {
                for transposes in TRANSPOSES {
                    product(trace, batch, (&[3, k], &[k, 2]), transposes);
                    product(trace, batch, (&[4, k], &[k, 24]), transposes);
                }
            }
        });
    });
}

#[test]
fn empty_inner_dimension_gives_zeros() {
    everywhere(|device, limits| {
        compare(device, limits, |trace, batch| {
            for (m, n) in [(3, 5), (32, 32), (65, 64)] {
                let a = batch.input(trace, [m, 2], noise(1, m * 2, -2.0, 2.0));
                let b = batch.input(trace, [2, n], noise(2, n * 2, -2.0, 2.0));
                let nothing = a.slice(1, 1..1).matmul(&b.slice(0, 0..0));
                batch.expect(&format!("{m} {n}"), &nothing, EXACT);
            }
        });
    });
}

/// The operands are small integers, so products and sums are exact: any wrong index shows, whatever the order
/// of summation.
#[test]
fn matmul_of_small_integers_is_exact() {
    everywhere(|device, limits| {
        compare(device, limits, |trace, batch| {
            for (m, n, k) in [(37, 41, 19), (64, 72, 36), (9, 100, 4)] {
                let small = |seed, n: usize| noise(seed, n, -4.0, 5.0).into_iter().map(f32::floor).collect();
                for (ta, tb) in TRANSPOSES {
                    let (a, b) = (swapped(&[m, k], ta), swapped(&[k, n], tb));
                    let (x, y) =
                        (batch.input(trace, a, small(3, m * k)), batch.input(trace, b, small(4, k * n)));
                    batch.expect(&format!("{a} {b}"), &x.matmul_transposed(&y, ta, tb), EXACT);
                    let square = batch.input(trace, [m, m], small(5, m * m));
                    batch.expect("with itself", &square.matmul_transposed(&square, ta, tb), EXACT);
                }
            }
        });
    });
}
