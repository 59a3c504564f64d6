//! Launches with more workgroups than one dimension of a dispatch holds.

use super::unchecked;
use crate::support::close::EXACT;
use crate::support::compare::compare;
use crate::support::skip::skip;

/// Grids above 65,535 workgroups are folded into rows: a wrong fold leaves elements out or computes them
/// twice.
#[test]
fn grids_above_the_dimension_limit_are_folded() {
    let n = 4 * 64 * 65_535 + 4 * 64 * 3 + 5;
    unchecked(|device, limits| {
        if 4 * n as u64 > limits.max_binding {
            skip(&format!("{} binds at most {} bytes", limits.name, limits.max_binding));
            return;
        }
        let plan = compare(device, limits, |trace, batch| {
            let ramp: Vec<f32> = (0..n).map(|i| (i % 8191) as f32).collect();
            let x = batch.input(trace, [n], ramp);
            batch.expect("scaled and shifted", &x.scale(2.0).offset(1.0), EXACT);
        });
        assert!(plan.program.launches.iter().any(|(launch, _)| launch.grid[1] > 1), "no grid was folded");
    });
}

/// With one thread per element, grids are folded from 4.2 million elements on.
#[test]
fn grids_of_one_thread_per_element_are_folded() {
    let (rows, cols) = (1024, 4099);
    unchecked(|device, limits| {
        let plan = compare(device, limits, |trace, batch| {
            let ramp: Vec<f32> = (0..rows * cols).map(|i| (i % 8191) as f32).collect();
            let x = batch.input(trace, [rows, cols], ramp);
            let column = batch.input(trace, [rows, 1], (0..rows).map(|i| i as f32).collect());
            batch.expect("transposed and back", &x.transpose(0, 1).add(&column.reshape([rows])), EXACT);
        });
        assert!(plan.program.launches.iter().any(|(launch, _)| launch.grid[1] > 1), "no grid was folded");
    });
}
