//! Every row of the table of convolutions with images of 16 bits, and with what follows a convolution: sizes around the tiles.
//! `tests/conv_sources.rs` has the rest: gradients, norms, joins.

use wgrad::dtype::DType;
use wgrad::graph::{Params, Tensor, Trace, Window};
use wgrad::limits::{AdapterClass, Limits};
use wgrad::lower::conv::Pass;
use wgrad::plan::Forward;

use super::support::close::Near;
use super::support::compare::{Batch, compare_fused, kernels};
use super::support::image_cases::larger_convolutions;
use super::support::{devices, noise, on_each, rows_of_convolutions};

/// Sums of up to 1,200 products below 1 and what is made of them.
const NEAR: Near = Near { rel: 1e-5, abs: 4e-4 };

#[test]
fn what_follows_and_images_in_16_bits() {
    on_each(devices(), |device| {
        for (i, (row, limits)) in rows_of_convolutions(device).into_iter().enumerate() {
            // The formats take turns.
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
                // Back from results to the image, in phases.
                let (x, window) = (of(batch, 5, [2, 17, 9, 8]), Window::square(3).stride(2).padding(1));
                let w = batch.input(trace, [17, 130, 3, 3], noise(6, 17 * 130 * 9, -1.0, 1.0));
                let y = || x.conv_transpose2d(&w, None, window, [1, 0], 1);
                let skip = noise(7, y().shape().numel() as usize, -1.0, 1.0);
                let skip = batch.input(trace, y().shape(), skip);
                batch.expect("transposed", &y().gelu().add(&skip), NEAR);
            });
            let names = kernels(&plan);
            let own = row.kernels(Pass::Image);
            let ran = |name: &&&str| own.iter().any(|kernel| name.starts_with(kernel.name));
            let fused = names.iter().filter(ran).filter(|name| name.contains("+gelu+add")).count();
            assert_eq!(fused, 4 + 4, "{}: {names:?}", limits.name);
            // Software adapters widen once, before.
            let widened = dtype == DType::F32 || limits.class.is_cpu();
            assert_eq!(names.iter().filter(ran).all(|name| !name.contains("16")), widened, "{names:?}");
        }
    });
}

/// As many turns as a way may take on lavapipe, which ends loops after 65,535 without a word: no plan exists for more.
#[test]
fn the_longest_sums() {
    let convolved = |x: &Tensor, w: &Tensor| x.conv2d(w, None, Window::square(3), 1);
    on_each(devices(), |device| {
        for (row, limits) in rows_of_convolutions(device) {
            if row.name.starts_with("tiled") {
                continue;
            }
            let limits = Limits { class: AdapterClass::Cpu, ..limits };
            let planned = |channels: usize| {
                let run = |trace: &Trace| {
                    let x = trace.input("x", [1, channels, 3, 4]);
                    convolved(&x, &trace.input("w", [3, channels, 3, 3]))
                };
                Forward::trace(&Params::new(0), "y", run).expect("valid").plan(&limits).is_ok()
            };
            let longest = (1..1 << 15).collect::<Vec<usize>>().partition_point(|&channels| planned(channels));
            assert!((7220..15_000).contains(&longest), "{}: {longest}", row.name);
            compare_fused(device, &limits, |trace, batch| {
                let x = batch.input(trace, [1, longest, 3, 4], noise(1, longest * 12, -1.0, 1.0));
                let w = batch.input(trace, [3, longest, 3, 3], noise(2, longest * 27, -1.0, 1.0));
                batch.expect(row.name, &convolved(&x, &w), Near { rel: 1e-5, abs: 5e-3 });
            });
        }
    });
}
