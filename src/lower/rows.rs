//! Softmax and its gradient: kernels that work on whole rows.

use super::grid::{fold, per_thread};
use super::{Operand, Site};
use crate::kernels::{Kernel, Launch, table};
use crate::limits::AdapterClass;
use crate::shape::Shape;

pub(super) fn softmax(site: &Site, log: bool) -> Launch<Operand> {
    let kernels = match site.in_place {
        Some(_) => [&table::SOFTMAX_IN_PLACE, &table::SOFTMAX_WG_IN_PLACE],
        None => [&table::SOFTMAX, &table::SOFTMAX_WG],
    };
    rows(site, kernels, site.inputs[0].0, site.placed(0, &[]), log)
}

pub(super) fn softmax_grad(site: &Site, log: bool) -> Launch<Operand> {
    let kernels = match site.in_place {
        Some(_) => [&table::SOFTMAX_GRAD_IN_PLACE, &table::SOFTMAX_GRAD_WG_IN_PLACE],
        None => [&table::SOFTMAX_GRAD, &table::SOFTMAX_GRAD_WG],
    };
    rows(site, kernels, site.inputs[0].0, site.placed(1, &[Operand::Input(0)]), log)
}

/// On CPU adapters one thread for each row, else one workgroup.
fn rows(
    site: &Site,
    [thread, group]: [&'static Kernel; 2],
    shape: Shape,
    memory: Vec<Operand>,
    log: bool,
) -> Launch<Operand> {
    let cols = shape.last() as u64;
    let rows = shape.numel() / cols;
    let params = [rows as u32, cols as u32];
    let mut launch = match site.limits.class {
        AdapterClass::Cpu => per_thread(site, thread, rows, memory, &params),
        AdapterClass::Gpu => {
            let grid = fold(rows, site.limits.max_workgroups);
            let params = [&[grid[0]], &params[..]].concat();
            Launch { kernel: group, constants: Vec::new(), memory, params, grid }
        }
    };
    launch.constants = vec![("LOG", f64::from(u8::from(log)))];
    launch
}
