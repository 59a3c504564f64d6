//! Every kernel on every adapter against the `f64` twin: with and without run-time checks, as the adapter's own class and
//! as a GPU, so that the kernels with workgroup memory run on software adapters too.

mod attention;
mod chains;
mod conv_sources;
mod cooperative;
mod followed;
mod golden;
mod gradients;
mod half_products;
mod halves;
mod images;
mod large;
mod losses;
mod movement;
mod pointwise;
mod products;
mod randomness;
mod reductions;
mod rows;
mod rows_of_convolutions;
mod rows_of_products;
mod tune;
mod updates;

#[path = "../support/mod.rs"]
mod support;

use support::compare::Batch;
use support::{both_classes, checked_devices, devices, on_each};
use wgrad::device::Device;
use wgrad::graph::Trace;
use wgrad::limits::Limits;
use wgrad::plan::Plan;

/// Lengths around the sizes of quads, subgroups and workgroups.
const SIZES: [usize; 13] = [1, 2, 3, 4, 5, 7, 8, 31, 64, 65, 129, 257, 1000];

/// Every device, once without and once with run-time checks, planned for each class it can play.
fn everywhere(body: impl Fn(&Device, &Limits)) {
    for devices in [devices(), checked_devices()] {
        on_each(devices, |device| both_classes(device).iter().for_each(|limits| body(device, limits)));
    }
}

/// Every device without checks, planned for each class: for tests that take long.
fn unchecked(body: impl Fn(&Device, &Limits)) {
    on_each(devices(), |device| both_classes(device).iter().for_each(|limits| body(device, limits)));
}

/// Runs a graph everywhere, once so that operations may overwrite their inputs and once so that they may not; the
/// builder is told which, and keeps its inputs where it is told to. Checks that this made the difference.
fn placed_both_ways(build: impl Fn(&Trace, &mut Batch, bool)) {
    let in_place = |plan: &Plan| {
        support::compare::kernels(plan).iter().filter(|name| name.ends_with("_in_place")).count()
    };
    everywhere(|device, limits| {
        let over = support::compare::compare(device, limits, |trace, batch| build(trace, batch, false));
        let away = support::compare::compare(device, limits, |trace, batch| build(trace, batch, true));
        // Both have steps in between that may run in place; the rest is the difference.
        assert!(in_place(&over) > in_place(&away), "nothing ran in place, or everything did");
    });
}

fn is_gpu(limits: &Limits) -> bool {
    !limits.class.is_cpu()
}
