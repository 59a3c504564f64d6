//! Softmax, its gradient and cross-entropy: kernels that work on whole rows.

use super::grid::{fold, per_thread};
use super::{Operand, Site};
use crate::kernels::{Kernel, Launch, table};
use crate::limits::AdapterClass;
use crate::shape::Shape;

/// One job in three forms: a thread for each row, the same in fours, a workgroup for each row.
struct Forms {
    thread: &'static Kernel,
    fours: &'static Kernel,
    group: &'static Kernel,
}

pub(super) fn softmax(site: &Site, log: bool) -> Launch<Operand> {
    let forms = match site.in_place {
        Some(_) => Forms {
            thread: &table::SOFTMAX_IN_PLACE,
            fours: &table::SOFTMAX_FOURS_IN_PLACE,
            group: &table::SOFTMAX_WG_IN_PLACE,
        },
        None => Forms { thread: &table::SOFTMAX, fours: &table::SOFTMAX_FOURS, group: &table::SOFTMAX_WG },
    };
    let mut launch = rows(site, &forms, site.inputs[0].0, site.placed(0, &[]));
    launch.constants = vec![("LOG", f64::from(u8::from(log)))];
    launch
}

pub(super) fn softmax_grad(site: &Site, log: bool) -> Launch<Operand> {
    let forms = match site.in_place {
        Some(_) => Forms {
            thread: &table::SOFTMAX_GRAD_IN_PLACE,
            fours: &table::SOFTMAX_GRAD_FOURS_IN_PLACE,
            group: &table::SOFTMAX_GRAD_WG_IN_PLACE,
        },
        None => Forms {
            thread: &table::SOFTMAX_GRAD,
            fours: &table::SOFTMAX_GRAD_FOURS,
            group: &table::SOFTMAX_GRAD_WG,
        },
    };
    let mut launch = rows(site, &forms, site.inputs[0].0, site.placed(1, &[Operand::Input(0)]));
    launch.constants = vec![("LOG", f64::from(u8::from(log)))];
    launch
}

pub(super) fn cross_entropy(site: &Site) -> Launch<Operand> {
    let forms = Forms {
        thread: &table::CROSS_ENTROPY,
        fours: &table::CROSS_ENTROPY,
        group: &table::CROSS_ENTROPY_WG,
    };
    let memory = vec![Operand::Input(0), Operand::Input(1), Operand::Output(0), Operand::Output(1)];
    rows(site, &forms, site.inputs[0].0, memory)
}

/// Longer rows take more turns than lavapipe gives to one thread.
const MAX_COLUMNS: u64 = 100_000;

fn rows(site: &Site, forms: &Forms, shape: Shape, memory: Vec<Operand>) -> Launch<Operand> {
    let cols = shape.last() as u64;
    let rows = shape.numel() / cols;
    let params = [rows as u32, cols as u32];
    if site.limits.class == AdapterClass::Cpu && cols <= MAX_COLUMNS {
        let kernel = if cols.is_multiple_of(4) { forms.fours } else { forms.thread };
        return per_thread(site, kernel, rows, memory, &params);
    }
    let grid = fold(rows, site.limits.max_workgroups);
    let params = [&[grid[0]], &params[..]].concat();
    Launch { kernel: forms.group, constants: Vec::new(), memory, params, grid }
}
