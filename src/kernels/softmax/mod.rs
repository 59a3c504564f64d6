//! Softmax, its gradient and cross-entropy: kernels over whole rows.

pub(super) mod cross_entropy;

use super::grid::{fold, per_thread};
use super::kernel::Variants;
use super::lower::flag;
use super::{Kernel, Launch, Operand, Site, and_in_place};
use crate::error::{Error, Result};
use crate::limits::{AdapterClass, MAX_LOOP_ITERATIONS};
use crate::shape::Shape;

const LOG: Variants = &[&[("LOG", 0.0)], &[("LOG", 1.0)]];

static SOFTMAX: Kernel = Kernel::new("softmax", "softmax/softmax", &[], &[1, 2], 8, LOG);
static SOFTMAX_GRAD: Kernel = Kernel::new("softmax_grad", "softmax/softmax_grad", &[], &[1, 2, 3], 8, LOG);

/// Threads of a workgroup that shares a row.
const GROUP: u32 = 128;

pub(super) fn kernels() -> Vec<Kernel> {
    let forms = |kernel: &Kernel| [kernel.clone(), kernel.in_workgroups(GROUP)];
    let softmax: Vec<Kernel> = [&SOFTMAX, &SOFTMAX_GRAD].into_iter().flat_map(forms).collect();
    [and_in_place(&softmax), cross_entropy::kernels()].concat()
}

/// Forms of a row operation.
struct Forms {
    /// One thread per row.
    thread: Kernel,
    /// One workgroup per row.
    group: Kernel,
    /// Number of loops over the row in the workgroup form.
    loops: u64,
}

impl Forms {
    fn of(site: &Site, kernel: &Kernel, loops: u64) -> Self {
        let [thread, group] =
            [kernel.clone(), kernel.in_workgroups(GROUP)].map(|kernel| site.variant(&kernel));
        Self { thread, group, loops }
    }
}

pub(super) fn softmax(site: &Site, log: bool) -> Result<Launch<Operand>> {
    let mut launch = rows(site, Forms::of(site, &SOFTMAX, 2), site.inputs[0].0, site.placed(0, &[]))?;
    launch.constants = vec![("LOG", flag(log))];
    Ok(launch)
}

pub(super) fn softmax_grad(site: &Site, log: bool) -> Result<Launch<Operand>> {
    let memory = site.placed(1, &[Operand::Input(0)]);
    let mut launch = rows(site, Forms::of(site, &SOFTMAX_GRAD, 2), site.inputs[0].0, memory)?;
    launch.constants = vec![("LOG", flag(log))];
    Ok(launch)
}

/// Returns the launch for per-row losses and the log-sum-exp that the gradient reads.
pub(super) fn cross_entropy(site: &Site) -> Result<Launch<Operand>> {
    let (thread, group) = (&cross_entropy::CROSS_ENTROPY, cross_entropy::CROSS_ENTROPY_WG.clone());
    let forms = Forms { thread: thread.clone(), group, loops: 1 };
    let memory = vec![Operand::Input(0), Operand::Input(1), Operand::Output(0), Operand::Output(1)];
    rows(site, forms, site.inputs[0].0, memory)
}

/// Maximum columns of the thread form: longer rows exceed lavapipe's loop limit and use the workgroup form.
const MAX_COLUMNS: u64 = 100_000;

/// Iterations of a thread in the workgroup form outside of its loops over the row: the final test of each
/// loop, and reductions over the workgroup.
const OTHER_ITERATIONS: u64 = 64;

fn rows(site: &Site, forms: Forms, shape: Shape, memory: Vec<Operand>) -> Result<Launch<Operand>> {
    let cols = shape.last() as u64;
    let rows = shape.numel() / cols;
    let params = [rows as u32, cols as u32];
    if site.limits.class == AdapterClass::Cpu && cols <= MAX_COLUMNS {
        return Ok(per_thread(site, &forms.thread, rows, memory, &params));
    }
    let shared = u64::from(forms.group.workgroup);
    check_length(site, cols, (MAX_LOOP_ITERATIONS - OTHER_ITERATIONS) / forms.loops * shared)?;
    let grid = fold(rows, site.limits.max_workgroups);
    let params = [&[grid[0]], &params[..]].concat();
    Ok(Launch { kernel: forms.group, constants: Vec::new(), memory, params, grid })
}

/// Rejects rows that a workgroup of a software adapter cannot process within the loop limit: more than `most`
/// columns.
pub(super) fn check_length(site: &Site, columns: u64, most: u64) -> Result<()> {
    if !site.limits.class.is_cpu() || columns <= most {
        return Ok(());
    }
    let (op, adapter) = (site.op.name(), &site.limits.name);
    Err(Error::unsupported(
        adapter,
        format!(
            "{op}: rows of {columns} elements are too long for the software adapter `{adapter}`, which takes {most}: loops end \
         there after {MAX_LOOP_ITERATIONS} iterations; compute it from `max`, `sum` and `mean`, which are cut into parts, or \
         on a GPU"
        ),
    ))
}
