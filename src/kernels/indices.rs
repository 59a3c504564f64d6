//! Elements by index: gathers, sums of what was gathered, and the order of rows.

use super::elementwise::{dims_of, six};
use super::grid::per_thread;
use super::lower::flag;
use super::{Kernel, Launch, Lowered, Operand, Site, movement};
use crate::error::{Error, Result};
use crate::limits::MAX_LOOP_ITERATIONS;
use crate::shape::Shape;

static GATHER: Kernel = Kernel::new("gather", "indices/gather", &["STRIDED"], &[1, 2, 3], 64, &[&[]]);
static SCATTER_ADD: Kernel =
    Kernel::new("scatter_add", "indices/gather", &["STRIDED", "SUMS"], &[1, 2, 3], 64, &[&[]]);
static ARGSORT: Kernel = Kernel::new(
    "argsort",
    "indices/argsort",
    &[],
    &[1, 2],
    64,
    &[&[("DESCENDING", 0.0)], &[("DESCENDING", 1.0)]],
);

pub(super) fn kernels() -> Vec<Kernel> {
    [&GATHER, &SCATTER_ADD, &ARGSORT].map(Kernel::clone).to_vec()
}

pub(super) fn gather(site: &Site, axis: usize) -> Launch<Operand> {
    let (x, ids, y) = (site.inputs[0].0, site.inputs[1].0, site.output());
    let mut strides = x.strides();
    let along = std::mem::replace(&mut strides[axis], 0);
    let mut params = vec![y.numel() as u32, x.dims()[axis] as u32, along as u32];
    params.extend(six(&dims_of(y), 1));
    params.extend(six(&strides, 0));
    params.extend(six(&ids.broadcast_strides(&y), 0));
    per_thread(
        site,
        &GATHER,
        y.numel(),
        vec![Operand::Input(0), Operand::Input(1), Operand::Output(0)],
        &params,
    )
}

/// Elements that one thread adds in a launch.
const MAX_RUN: u64 = 32_768;

/// One thread adds up the elements of one line along `axis`, so no two threads add to one element, and the order is
/// that of the ids.
pub(super) fn scatter_add(site: &Site, axis: usize) -> Lowered {
    let (ids, dy, y) = (site.inputs[0].0, site.inputs[1].0, site.output());
    let mut launches = vec![movement::fill(site, 0.0)];
    let lines: Shape = dy.with(axis, 1);
    let count = dy.dims()[axis] as u64;
    let without = |mut strides: Vec<u64>| (std::mem::replace(&mut strides[axis], 0), strides);
    let (dy_along, dy_strides) = without(dy.strides());
    let (y_along, y_strides) = without(y.strides());
    let (id_along, id_strides) = without(ids.broadcast_strides(&dy));
    for start in (0..count).step_by(MAX_RUN as usize) {
        let end = (start + MAX_RUN).min(count);
        let numbers = [lines.numel(), y.dims()[axis] as u64, start, end, dy_along, y_along, id_along];
        let mut params = numbers.map(|n| n as u32).to_vec();
        params.extend(six(&dims_of(lines), 1));
        params.extend(six(&dy_strides, 0));
        params.extend(six(&y_strides, 0));
        params.extend(six(&id_strides, 0));
        let memory = vec![Operand::Input(0), Operand::Input(1), Operand::Output(0)];
        launches.push(per_thread(site, &SCATTER_ADD, lines.numel(), memory, &params));
    }
    Lowered { launches, workspace: Vec::new() }
}

/// Each thread counts the elements of its row that come before its own.
pub(super) fn argsort(site: &Site, descending: bool) -> Result<Launch<Operand>> {
    let x = site.inputs[0].0;
    let (columns, adapter) = (x.last() as u64, &site.limits.name);
    if site.limits.class.is_cpu() && columns >= MAX_LOOP_ITERATIONS {
        return Err(Error::unsupported(
            adapter,
            format!(
                "argsort: rows of {columns} elements are too long for the software adapter `{adapter}`: loops end there after \
                 {MAX_LOOP_ITERATIONS} iterations; sort shorter rows, or on a GPU"
            ),
        ));
    }
    let params = [x.numel() as u32, x.last() as u32];
    let memory = vec![Operand::Input(0), Operand::Output(0)];
    let mut launch = per_thread(site, &ARGSORT, x.numel(), memory, &params);
    launch.constants = vec![("DESCENDING", flag(descending))];
    Ok(launch)
}
