//! The offline planner as a contender.

use super::super::trace::Trace;
use super::{Outcome, Placed, ratio};
use crate::memory::PoolOptions;
use crate::memory::planner::{Item, Options, PackError, Problem, solve};

/// Returns the planner's places for the blocks of the trace, aligned to a pool's default granule, and the
/// height of its plan in bytes. With `capacity` the planner stops at the first plan that fits.
pub(super) fn layout(trace: &Trace, capacity: Option<u64>) -> Result<(Vec<Placed>, u64), PackError> {
    let lifetimes = trace.lifetimes();
    let align = PoolOptions::default().granule;
    let items = lifetimes.iter().zip(&trace.blocks).map(|(life, name)| {
        Item::new(name.as_str(), life.from as u64, life.until as u64, life.size).aligned(align)
    });
    let packing = solve(&Problem::new(items.collect()), &Options { capacity, ..Options::default() })?;
    let places = packing.solution.placements.iter().zip(&lifetimes);
    let placed = places.map(|(place, life)| Placed {
        page: place.arena,
        offset: place.offset,
        size: life.size,
        from: life.from,
        until: life.until,
    });
    Ok((placed.collect(), packing.certificate.height))
}

pub(super) fn outcome(
    trace: &Trace,
    name: &'static str,
    capacity: Option<u64>,
) -> Result<Outcome, PackError> {
    let (_, height) = layout(trace, capacity)?;
    let peak_live = trace.lower_bound();
    Ok(Outcome {
        name,
        peak_live,
        peak_reserved: height,
        ratio: ratio(height, peak_live),
        fragmentation: if height == 0 { 0.0 } else { 1.0 - peak_live as f64 / height as f64 },
        padding: 0,
        failed: if capacity.is_some_and(|bytes| bytes < height) { None } else { Some(0) },
        native_allocations: 1,
        ns_per_op: None,
    })
}
