//! Layer norm and RMS norm of rows.

use super::grid::{fold, per_thread};
use super::rows::check_length;
use super::{Lowered, Operand, Site};
use crate::error::Result;
use crate::graph::RowNorm;
use crate::kernels::{Kernel, Launch, table};
use crate::limits::AdapterClass;

/// Rows of a launch, with columns in elements and in what the kernel reads at once.
struct Rows {
    rows: u64,
    columns: u64,
    width: u64,
}

impl Rows {
    fn of(site: &Site) -> Self {
        let columns = site.inputs[0].0.last() as u64;
        let width = if columns.is_multiple_of(4) { 4 } else { 1 };
        Self { rows: site.inputs[0].0.numel() / columns, columns, width }
    }

    fn share(&self) -> u32 {
        ((1.0 / self.columns as f64) as f32).to_bits()
    }

    /// A thread for each row or, for GPUs and rows that take one thread too many turns, a workgroup.
    fn launch(
        &self,
        site: &Site,
        [ones, fours, group]: &'static [Kernel; 3],
        memory: Vec<Operand>,
        rest: &[u32],
    ) -> Result<Launch<Operand>> {
        check_length(site, self.columns, MAX_ELEMENTS * u64::from(group.workgroup))?;
        let alone = site.limits.class == AdapterClass::Cpu && self.columns / self.width <= MAX_ELEMENTS;
        let (kernel, groups, columns) = match (alone, self.width) {
            (false, _) => (group, self.rows, self.columns),
            (true, 4) => (fours, self.rows.div_ceil(u64::from(fours.workgroup)), self.columns / 4),
            (true, _) => (ones, self.rows.div_ceil(u64::from(ones.workgroup)), self.columns),
        };
        let grid = fold(groups, site.limits.max_workgroups);
        let mut params = vec![grid[0], self.rows as u32, columns as u32];
        params.extend(rest);
        Ok(Launch { kernel, constants: Vec::new(), memory, params, grid })
    }

    fn by_width(&self, [ones, fours]: &'static [Kernel; 2]) -> (&'static Kernel, u64) {
        if self.width == 4 { (fours, self.columns / 4) } else { (ones, self.columns) }
    }
}

/// Elements of a row for each thread: its three loops over them, in blocks, stay below `MAX_LOOP_ITERATIONS`.
const MAX_ELEMENTS: u64 = 20_000;

pub(super) fn norm(site: &Site, kind: RowNorm, eps: f32) -> Result<Launch<Operand>> {
    let rows = Rows::of(site);
    let mut memory = vec![Operand::Input(0), Operand::Input(1), Operand::Output(0), Operand::Output(1)];
    let kernels = match kind {
        RowNorm::Layer => &table::LAYER_NORM,
        RowNorm::Rms => &table::RMS_NORM,
    };
    memory.extend((2..site.inputs.len()).map(Operand::Input));
    rows.launch(site, kernels, memory, &[eps.to_bits(), rows.share()])
}

/// The most rows that one thread sums over.
const MAX_PART: u64 = 16_384;

/// Sums of columns first: the gradient of `x` may then lie over `dy`.
pub(super) fn grad(site: &Site, kind: RowNorm) -> Result<Lowered> {
    let rows = Rows::of(site);
    let [x, statistics, gamma, dy] = [0, 1, 2, 3].map(Operand::Input);
    let (sums, end) = match kind {
        RowNorm::Layer => (&table::LAYER_NORM_SUMS, &table::LAYER_NORM_SUMS_END),
        RowNorm::Rms => (&table::RMS_NORM_SUMS, &table::RMS_NORM_SUMS_END),
    };
    let (kernel, columns) = rows.by_width(sums);
    let (threads, smallest) = match site.limits.class {
        AdapterClass::Cpu => (1024, 64),
        AdapterClass::Integrated | AdapterClass::Discrete => (16_384, 16),
    };
    let parts = (threads / columns).min(rows.rows / smallest).max(rows.rows.div_ceil(MAX_PART)).max(1);
    let part_len = rows.rows.div_ceil(parts);
    let parts = rows.rows.div_ceil(part_len);
    let params = [rows.rows, columns, parts, part_len].map(|n| n as u32);
    let scratch = Operand::Workspace(0);
    let sums = per_thread(site, kernel, parts * columns, vec![x, dy, scratch, statistics], &params);
    let memory = std::iter::once(scratch).chain((1..site.outputs.len()).map(Operand::Output)).collect();
    let end = per_thread(site, rows.by_width(end).0, columns, memory, &[columns as u32, parts as u32]);
    let kernels = match (kind, site.in_place) {
        (RowNorm::Layer, None) => &table::LAYER_NORM_GRAD,
        (RowNorm::Layer, Some(_)) => &table::LAYER_NORM_GRAD_IN_PLACE,
        (RowNorm::Rms, None) => &table::RMS_NORM_GRAD,
        (RowNorm::Rms, Some(_)) => &table::RMS_NORM_GRAD_IN_PLACE,
    };
    let memory = site.placed(3, &[x, statistics, gamma]);
    let dx = rows.launch(site, kernels, memory, &[rows.share()])?;
    Ok(Lowered { launches: vec![sums, end, dx], workspace: vec![parts * 2 * rows.columns * 4] })
}
