//! Layer norm and RMS norm of rows.

pub(super) mod batch;

use super::grid::{fold, per_thread};
use super::softmax::check_length;
use super::{Kernel, Launch, Lowered, Operand, Site, and_in_place};
use crate::error::Result;
use crate::graph::RowNorm;
use crate::limits::AdapterClass;

static LAYER_NORM: Kernel =
    Kernel::new("layer_norm", "norm/row_norm", &["TOTAL", "LAYER"], &[1, 2, 3, 4, 5], 8, &[&[]]);
static RMS_NORM: Kernel = Kernel::new("rms_norm", "norm/row_norm", &["TOTAL"], &[1, 2, 3, 4], 8, &[&[]]);
static LAYER_NORM_GRAD: Kernel = Kernel::new(
    "layer_norm_grad",
    "norm/row_norm_grad",
    &["TOTAL", "LAYER", "HELD_THIRD"],
    &[1, 2, 3, 4, 5],
    8,
    &[&[]],
);
static RMS_NORM_GRAD: Kernel =
    Kernel::new("rms_norm_grad", "norm/row_norm_grad", &["TOTAL", "HELD_THIRD"], &[1, 2, 3, 4, 5], 8, &[&[]]);
static LAYER_NORM_SUMS: Kernel =
    Kernel::new("layer_norm_sums", "norm/row_norm_sums", &["LAYER"], &[1, 2, 3, 4], 64, &[&[]]);
static RMS_NORM_SUMS: Kernel =
    Kernel::new("rms_norm_sums", "norm/row_norm_sums", &[], &[1, 2, 3, 4], 64, &[&[]]);
static LAYER_NORM_SUMS_END: Kernel =
    Kernel::new("layer_norm_sums_end", "norm/row_norm_sums", &["LAYER", "END"], &[1, 2, 3], 8, &[&[]]);
static RMS_NORM_SUMS_END: Kernel =
    Kernel::new("rms_norm_sums_end", "norm/row_norm_sums", &["END"], &[1, 2], 8, &[&[]]);

/// Threads of a workgroup that processes one row.
const GROUP: u32 = 128;

pub(super) fn kernels() -> Vec<Kernel> {
    let rows = |kernel: &Kernel| {
        let shared = kernel.in_workgroups(GROUP);
        let shared =
            Kernel::HELD.map(|dtype| [&shared, &shared.in_vec4()].map(|kernel| kernel.holding(dtype)));
        [vec![kernel.clone(), kernel.in_vec4()], shared.concat()].concat()
    };
    let forward: Vec<Kernel> = [&LAYER_NORM, &RMS_NORM].into_iter().flat_map(rows).collect();
    let grad: Vec<Kernel> = [&LAYER_NORM_GRAD, &RMS_NORM_GRAD].into_iter().flat_map(rows).collect();
    let forms = |kernel: &Kernel| [kernel.clone(), kernel.in_vec4()];
    let held = |kernel: &Kernel| {
        Kernel::HELD.map(|dtype| forms(kernel).map(|kernel| kernel.holding(dtype))).concat()
    };
    let sums = [&LAYER_NORM_SUMS, &RMS_NORM_SUMS].map(held).concat();
    let sums = [sums, [&LAYER_NORM_SUMS_END, &RMS_NORM_SUMS_END].map(forms).concat()].concat();
    let ends = [&LAYER_NORM_SUMS_END, &RMS_NORM_SUMS_END].map(|kernel| kernel.in_workgroups(GROUP)).to_vec();
    [forward, and_in_place(&grad), sums, ends, batch::kernels()].concat()
}

/// Rows and columns of a launch, in elements; `width` elements are read at once.
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

    /// Returns the launch with one thread per row; on GPUs and for rows that exceed a thread's loop limit,
    /// with one workgroup per row.
    fn launch(
        &self,
        site: &Site,
        kernel: &Kernel,
        memory: Vec<Operand>,
        rest: &[u32],
    ) -> Result<Launch<Operand>> {
        check_length(site, self.columns, MAX_ELEMENTS * u64::from(GROUP))?;
        let alone = site.limits.class == AdapterClass::Cpu && self.columns / self.width <= MAX_ELEMENTS;
        let (kernel, groups) = match alone {
            true => (kernel.clone(), self.rows.div_ceil(u64::from(kernel.workgroup))),
            false => (kernel.in_workgroups(GROUP), self.rows),
        };
        let (kernel, columns) = self.by_width(&kernel);
        let kernel = kernel.holding(site.inputs[0].1);
        let grid = fold(groups, site.limits.max_workgroups);
        let mut params = vec![grid[0], self.rows as u32, columns as u32];
        params.extend(rest);
        Ok(Launch { kernel: site.variant(&kernel), constants: Vec::new(), memory, params, grid })
    }

    fn by_width(&self, kernel: &Kernel) -> (Kernel, u64) {
        if self.width == 4 { (kernel.in_vec4(), self.columns / 4) } else { (kernel.clone(), self.columns) }
    }
}

/// Maximum elements of a row per thread: its three loops over them, in blocks, stay below
/// `MAX_LOOP_ITERATIONS`.
const MAX_ELEMENTS: u64 = 20_000;

pub(super) fn norm(site: &Site, kind: RowNorm, eps: f32) -> Result<Launch<Operand>> {
    let rows = Rows::of(site);
    let mut memory = vec![Operand::Input(0), Operand::Input(1), Operand::Output(0), Operand::Output(1)];
    let kernel = match kind {
        RowNorm::Layer => &LAYER_NORM,
        RowNorm::Rms => &RMS_NORM,
    };
    memory.extend((2..site.inputs.len()).map(Operand::Input));
    rows.launch(site, kernel, memory, &[eps.to_bits(), rows.share()])
}

/// Maximum rows that one thread sums over.
const MAX_PART: u64 = 16_384;

/// Sums columns first, so that the gradient of `x` may overwrite `dy`.
pub(super) fn grad(site: &Site, kind: RowNorm) -> Result<Lowered> {
    let rows = Rows::of(site);
    let [x, statistics, gamma, dy] = [0, 1, 2, 3].map(Operand::Input);
    let (sums, end) = match kind {
        RowNorm::Layer => (&LAYER_NORM_SUMS, &LAYER_NORM_SUMS_END),
        RowNorm::Rms => (&RMS_NORM_SUMS, &RMS_NORM_SUMS_END),
    };
    let (kernel, columns) = rows.by_width(sums);
    let (threads, smallest) = match site.limits.class {
        AdapterClass::Cpu => (1024, 64),
        AdapterClass::Integrated | AdapterClass::Discrete => (65_536, 16),
    };
    let parts = (threads / columns).min(rows.rows / smallest).max(rows.rows.div_ceil(MAX_PART)).max(1);
    let part_len = rows.rows.div_ceil(parts);
    let parts = rows.rows.div_ceil(part_len);
    let params = [rows.rows, columns, parts, part_len].map(|n| n as u32);
    let scratch = Operand::Workspace(0);
    let kernel = kernel.holding(site.inputs[0].1);
    let sums = per_thread(site, &kernel, parts * columns, vec![x, dy, scratch, statistics], &params);
    let memory = std::iter::once(scratch).chain((1..site.outputs.len()).map(Operand::Output)).collect();
    // Where parts are few, columns are many.
    let end = if site.limits.class.is_cpu() || parts < u64::from(GROUP) / 4 {
        per_thread(site, &rows.by_width(end).0, columns, memory, &[columns as u32, parts as u32])
    } else {
        let grid = fold(rows.columns, site.limits.max_workgroups);
        let params = vec![grid[0], rows.columns as u32, parts as u32];
        Launch { kernel: end.in_workgroups(GROUP), constants: Vec::new(), memory, params, grid }
    };
    let kernel = match kind {
        RowNorm::Layer => &LAYER_NORM_GRAD,
        RowNorm::Rms => &RMS_NORM_GRAD,
    };
    let memory = site.placed(3, &[x, statistics, gamma]);
    let dx = rows.launch(site, kernel, memory, &[rows.share()])?;
    Ok(Lowered { launches: vec![sums, end, dx], workspace: vec![parts * 2 * rows.columns * 4] })
}
