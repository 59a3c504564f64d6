//! Every kernel on every adapter against the `f64` twin: with and without run-time checks, as the adapter's
//! own class and as a GPU, so that the kernels with workgroup memory also run on software adapters.

mod attention;
mod cached_attention;
mod chains;
mod coded_products;
mod codes;
mod conv_sources;
mod conv_table;
mod cooperative;
mod dropout;
mod epilogues;
mod functions;
mod golden;
mod gradients;
mod half_casts;
mod half_products;
mod images;
mod large_grids;
mod losses;
mod movement;
mod norms;
mod pointwise;
mod product_table;
mod products;
mod recurrent;
mod reductions;
mod row_ops;
mod tune;
mod updates;
mod windows;

#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeMap;

use crate::support::close::{Near, assert_within};
use crate::support::compare::{Batch, device_gradients, twin_gradients};
use crate::support::{both_classes, checked_devices, devices, on_each};
use wgrad::compile::{Plan, TrainStep};
use wgrad::device::Device;
use wgrad::graph::{Init, Params, Tensor, Trace};
use wgrad::limits::Limits;
use wgrad::shape::Shape;

/// Lengths around the sizes of vec4, subgroups and workgroups.
const SIZES: [usize; 13] = [1, 2, 3, 4, 5, 7, 8, 31, 64, 65, 129, 257, 1000];

/// Calls `body` for every device, without and with run-time checks, and for each class it can be planned for.
fn everywhere(body: impl Fn(&Device, &Limits)) {
    for devices in [devices(), checked_devices()] {
        on_each(devices, |device| both_classes(device).iter().for_each(|limits| body(device, limits)));
    }
}

/// Calls `body` for every device without checks, for each class: for tests that take long.
fn unchecked(body: impl Fn(&Device, &Limits)) {
    on_each(devices(), |device| both_classes(device).iter().for_each(|limits| body(device, limits)));
}

/// Runs a graph everywhere, once so that operations may overwrite their inputs and once so that they may not:
/// the last argument of `build` is whether to keep the inputs. Checks that this changes the number of
/// in-place kernels.
fn placed_both_ways(build: impl Fn(&Trace, &mut Batch, bool)) {
    let in_place = |plan: &Plan| {
        crate::support::compare::kernels(plan).iter().filter(|name| name.ends_with("_in_place")).count()
    };
    everywhere(|device, limits| {
        let over =
            crate::support::compare::compare(device, limits, |trace, batch| build(trace, batch, false));
        let away = crate::support::compare::compare(device, limits, |trace, batch| build(trace, batch, true));
        // Both plans have intermediate operations that may run in place; the inputs make the difference.
        assert!(in_place(&over) > in_place(&away), "nothing ran in place, or everything did");
    });
}

fn is_gpu(limits: &Limits) -> bool {
    !limits.class.is_cpu()
}

/// What compilers of GPUs, which contract `a * b - c`, leave where all terms cancel: in the gradient of a norm of one
/// element, for example, the rounding of a product, times 1/deviation.
fn left_by_contraction(device: &Device) -> f64 {
    if device.limits().class.is_cpu() { 0.0 } else { 1e-5 }
}

/// Compares the gradients of a loss over the parameters `p0`, `p1`, … of these shapes and elements with the
/// twin's: within `near.rel` of each element plus `near.abs` of the largest.
fn gradients_near(
    name: &str,
    parameters: &[(Vec<usize>, Vec<f32>)],
    labels: &BTreeMap<&str, Vec<u32>>,
    near: Near,
    build: impl Fn(&[Tensor]) -> Tensor,
) {
    let params = Params::new(3);
    let register = |(i, (dims, data)): (usize, &(Vec<usize>, Vec<f32>))| {
        let shape = Shape::try_new(dims).expect("few dimensions");
        params.add(&format!("p{i}"), shape, Init::Data(data.clone().into()))
    };
    let registered: Vec<_> = parameters.iter().enumerate().map(register).collect();
    let step = TrainStep::trace(&params, |trace| {
        let x: Vec<Tensor> = registered.iter().map(|param| trace.param(param)).collect();
        let y = build(&x);
        y.mul(&y.scale(0.3).sigmoid()).sum(&[])
    });
    let step = step.expect("valid");
    unchecked(|device, limits| {
        let (plan, found) = device_gradients(device, &step, limits, labels);
        let wanted = twin_gradients(&plan, labels);
        for (key, found) in found {
            let wanted = &wanted[&key];
            let largest = wanted.iter().fold(0.0f64, |most, g| most.max(g.abs()));
            assert_within(&format!("{name}: {key} ({})", limits.name), &found, wanted, |i| {
                near.rel * wanted[i].abs() + near.abs * largest + 2e-7 + left_by_contraction(device)
            });
        }
    });
}
