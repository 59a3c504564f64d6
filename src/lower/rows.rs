//! Softmax, its gradient and cross-entropy: kernels that work on whole rows.

use super::grid::{fold, per_thread};
use super::{Operand, Site, flag};
use crate::error::{Error, Result};
use crate::kernels::{Kernel, Launch, table};
use crate::limits::{AdapterClass, MAX_LOOP_ITERATIONS};
use crate::shape::Shape;

/// One job in three forms: a thread for each row, the same in fours, a workgroup for each row.
struct Forms {
    thread: &'static Kernel,
    fours: &'static Kernel,
    group: &'static Kernel,
    /// Loops over a row that each thread of a workgroup runs.
    loops: u64,
}

pub(super) fn softmax(site: &Site, log: bool) -> Result<Launch<Operand>> {
    let forms = match site.in_place {
        Some(_) => Forms {
            thread: &table::SOFTMAX_IN_PLACE,
            fours: &table::SOFTMAX_FOURS_IN_PLACE,
            group: &table::SOFTMAX_WG_IN_PLACE,
            loops: 3,
        },
        None => Forms {
            thread: &table::SOFTMAX,
            fours: &table::SOFTMAX_FOURS,
            group: &table::SOFTMAX_WG,
            loops: 3,
        },
    };
    let mut launch = rows(site, &forms, site.inputs[0].0, site.placed(0, &[]))?;
    launch.constants = vec![("LOG", flag(log))];
    Ok(launch)
}

pub(super) fn softmax_grad(site: &Site, log: bool) -> Result<Launch<Operand>> {
    let forms = match site.in_place {
        Some(_) => Forms {
            thread: &table::SOFTMAX_GRAD_IN_PLACE,
            fours: &table::SOFTMAX_GRAD_FOURS_IN_PLACE,
            group: &table::SOFTMAX_GRAD_WG_IN_PLACE,
            loops: 2,
        },
        None => Forms {
            thread: &table::SOFTMAX_GRAD,
            fours: &table::SOFTMAX_GRAD_FOURS,
            group: &table::SOFTMAX_GRAD_WG,
            loops: 2,
        },
    };
    let mut launch = rows(site, &forms, site.inputs[0].0, site.placed(1, &[Operand::Input(0)]))?;
    launch.constants = vec![("LOG", flag(log))];
    Ok(launch)
}

pub(super) fn cross_entropy(site: &Site) -> Result<Launch<Operand>> {
    let forms = Forms {
        thread: &table::CROSS_ENTROPY,
        fours: &table::CROSS_ENTROPY,
        group: &table::CROSS_ENTROPY_WG,
        loops: 2,
    };
    let memory = vec![Operand::Input(0), Operand::Input(1), Operand::Output(0), Operand::Output(1)];
    rows(site, &forms, site.inputs[0].0, memory)
}

/// Longer rows take a thread more iterations than lavapipe gives it: a workgroup shares them.
const MAX_COLUMNS: u64 = 100_000;

/// Iterations of a workgroup's kernel apart from its loops over the row: each loop's last test, and sums over the workgroup.
const OTHER_ITERATIONS: u64 = 64;

fn rows(site: &Site, forms: &Forms, shape: Shape, memory: Vec<Operand>) -> Result<Launch<Operand>> {
    let cols = shape.last() as u64;
    let rows = shape.numel() / cols;
    let params = [rows as u32, cols as u32];
    if site.limits.class == AdapterClass::Cpu && cols <= MAX_COLUMNS {
        let kernel = if cols.is_multiple_of(4) { forms.fours } else { forms.thread };
        return Ok(per_thread(site, kernel, rows, memory, &params));
    }
    let shared = u64::from(forms.group.workgroup);
    check_length(site, cols, (MAX_LOOP_ITERATIONS - OTHER_ITERATIONS) / forms.loops * shared)?;
    let grid = fold(rows, site.limits.max_workgroups);
    let params = [&[grid[0]], &params[..]].concat();
    Ok(Launch { kernel: forms.group, constants: Vec::new(), memory, params, grid })
}

/// Refuses rows of which a workgroup of a software adapter cannot finish its loops.
pub(super) fn check_length(site: &Site, columns: u64, most: u64) -> Result<()> {
    if !site.limits.class.is_cpu() || columns <= most {
        return Ok(());
    }
    let (op, adapter) = (site.op.name(), &site.limits.name);
    Err(Error::Option(format!(
        "{op}: rows of {columns} elements are too long for the software adapter `{adapter}`, which takes {most}: loops end \
         there after {MAX_LOOP_ITERATIONS} iterations; compute it from `max`, `sum` and `mean`, which are cut into parts, or \
         on a GPU"
    )))
}
