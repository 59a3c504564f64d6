//! Every row of the table of convolutions with 16-bit images and with epilogues, for sizes around the tiles.
//! `tests/kernels/conv_sources.rs` tests gradients, norms and concatenations.

use wgrad::compile::Forward;
use wgrad::dtype::DType;
use wgrad::graph::{Params, Tensor, Trace, Window};
use wgrad::kernels::conv::Pass;
use wgrad::limits::{AdapterClass, Limits};

use crate::support::close::Near;
use crate::support::compare::{Batch, compare_fused, kernels};
use crate::support::image_cases::larger_convolutions;
use crate::support::{devices, noise, on_each, rows_of_convolutions};

/// Sums of up to 1,200 products below 1, followed by elementwise functions.
const NEAR: Near = Near { rel: 1e-5, abs: 4e-4 };

#[test]
fn every_row_fuses_epilogues_and_reads_16_bit_images() {
    on_each(devices(), |device| {
        for (i, (row, limits)) in rows_of_convolutions(device).into_iter().enumerate() {
            // The rows alternate between the formats.
            let dtype = [DType::F32, DType::F16, DType::BF16][i % 3];
            let plan = compare_fused(device, &limits, |trace, batch| {
                let of = |batch: &mut Batch, seed, shape: [usize; 4]| {
                    let x = batch.input(trace, shape, noise(seed, shape.iter().product(), -1.0, 1.0));
                    if dtype == DType::F32 { x } else { x.cast(dtype).cast(DType::F32) }
                };
                for (name, image, weight, groups, window) in larger_convolutions() {
                    let x = of(batch, 1, image);
                    let w = batch.input(trace, weight, noise(2, weight.iter().product(), -1.0, 1.0));
                    let bias = batch.input(trace, [weight[0]], noise(3, weight[0], -1.0, 1.0));
                    let y = || x.conv2d(&w, Some(&bias), window, groups);
                    let skip = noise(4, y().shape().numel() as usize, -1.0, 1.0);
                    let skip = batch.input(trace, y().shape(), skip);
                    batch.expect(name, &y().gelu().add(&skip), NEAR);
                }
                // A transposed convolution, in phases.
                let (x, window) = (of(batch, 5, [2, 17, 9, 8]), Window::square(3).stride(2).padding(1));
                let w = batch.input(trace, [17, 130, 3, 3], noise(6, 17 * 130 * 9, -1.0, 1.0));
                let y = || x.conv_transpose2d(&w, None, window, [1, 0], 1);
                let skip = noise(7, y().shape().numel() as usize, -1.0, 1.0);
                let skip = batch.input(trace, y().shape(), skip);
                batch.expect("transposed", &y().gelu().add(&skip), NEAR);
            });
            let names = kernels(&plan);
            let own = row.kernels(Pass::Image);
            let ran = |name: &&String| own.iter().any(|kernel| name.starts_with(&*kernel.name));
            let sums = |name: &&String| ran(name) || name.starts_with("sum_parts");
            let fused = names.iter().filter(sums).filter(|name| name.contains("+gelu+add")).count();
            assert_eq!(fused, 4 + 4, "{}: {names:?}", limits.name);
            let pieces = row.name.starts_with("tiled");
            let summed = names.iter().any(|name| name.starts_with("sum_parts"));
            assert_eq!(summed, pieces, "{}: {names:?}", limits.name);
            // On software adapters a separate operation widens the image once.
            let widened = dtype == DType::F32 || limits.class.is_cpu();
            assert_eq!(names.iter().filter(ran).all(|name| !name.contains("16")), widened, "{names:?}");
        }
    });
}

/// The most loop iterations that the kernels for software adapters may take on lavapipe, which silently ends
/// loops after 65,535: longer sums cannot be planned.
#[test]
fn longest_sums_of_every_row_match_the_twin() {
    let case = |side: usize, channels: usize| ([1, channels, side, side + 1], [3, channels, side, side]);
    let convolved = |x: &Tensor, w: &Tensor, side| x.conv2d(w, None, Window::square(side), 1);
    on_each(devices(), |device| {
        let rows = rows_of_convolutions(device).into_iter().filter(|(row, _)| !row.name.starts_with("tiled"));
        for ((row, limits), side) in rows.flat_map(|row| [3, 32].map(|side| (row.clone(), side))) {
            let limits = Limits { class: AdapterClass::Cpu, ..limits };
            let planned = |channels: usize| {
                let run = |trace: &Trace| {
                    let (x, w) = case(side, channels);
                    convolved(&trace.input("x", x), &trace.input("w", w), side)
                };
                Forward::trace(&Params::new(0), "y", run).expect("valid").plan(&limits).is_ok()
            };
            let all: Vec<usize> = (1..1 << 15).collect();
            let longest = all.partition_point(|&channels| planned(channels));
            let steps = longest * side * side;
            assert!((60_000..131_000).contains(&steps), "{}: {longest} with {side}", row.name);
            compare_fused(device, &limits, |trace, batch| {
                let (x, w) = case(side, longest);
                let x = batch.input(trace, x, noise(1, x.iter().product(), -1.0, 1.0));
                let w = batch.input(trace, w, noise(2, w.iter().product(), -1.0, 1.0));
                batch.expect(row.name, &convolved(&x, &w, side), Near { rel: 1e-5, abs: 5e-3 });
            });
        }
    });
}

/// The channels that pad an iteration or a tile contribute 0, and not 0 · ∞.
#[test]
fn infinite_elements_do_not_become_nan() {
    on_each(devices(), |device| {
        for (row, limits) in rows_of_convolutions(device) {
            compare_fused(device, &limits, |trace, batch| {
                let mut x = noise(1, 3 * 5 * 5, 0.5, 1.0);
                x[2 * 25 + 12] = f32::INFINITY;
                let x = batch.input(trace, [1, 3, 5, 5], x);
                let w = batch.input(trace, [2, 3, 3, 3], noise(2, 54, 0.5, 1.0));
                batch.expect(row.name, &x.conv2d(&w, None, Window::square(3).padding(1), 1), NEAR);
            });
        }
    });
}
