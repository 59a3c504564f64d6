//! Embedding. Its gradient sorts the ids (a stable radix sort) and sums the rows of each id in their order,
//! without atomics and in time proportional to the number of ids.

pub(super) mod rotary;

use super::grid::per_thread;
use super::{Kernel, Launch, Lowered, Operand, Site, movement};
use crate::graph::Share;
use crate::limits::AdapterClass;

static EMBEDDING: Kernel = Kernel::new("embedding", "embedding/embedding", &[], &[1, 2, 3], 64, &[&[]]);
static SUMS: Kernel = Kernel::new("embedding_sums", "embedding/embedding", &["SUMS"], &[1, 2, 3], 64, &[&[]]);
static SORT_START: Kernel = Kernel::new("sort_start", "embedding/sort", &["START"], &[1, 2], 64, &[&[]]);
static SORT_COUNT: Kernel = Kernel::new("sort_count", "embedding/sort", &["COUNT"], &[1, 2], 8, &[&[]]);
static SORT_SCAN: Kernel = Kernel::new("sort_scan", "embedding/sort", &["SCAN"], &[1, 2], 8, &[&[]]);
static SORT_BASES: Kernel = Kernel::new("sort_bases", "embedding/sort", &["BASES"], &[1, 2], 8, &[&[]]);
static SORT_MOVE: Kernel = Kernel::new("sort_move", "embedding/sort", &["MOVE"], &[1, 2, 3, 4], 8, &[&[]]);

pub(super) fn kernels() -> Vec<Kernel> {
    let tables = Kernel::HELD.map(|dtype| EMBEDDING.storing(dtype));
    let by_width = tables.iter().flat_map(|kernel| [kernel.clone(), kernel.in_vec4()]);
    let sums = [SUMS.clone(), SUMS.in_vec4()].map(added_to_result);
    let sort = [&SORT_START, &SORT_COUNT, &SORT_SCAN, &SORT_BASES, &SORT_MOVE].map(Kernel::clone);
    by_width.chain(sums).chain(sort).chain(rotary::kernels()).collect()
}

/// Renames the kernel: it adds its sums to the values in the result.
fn added_to_result(kernel: Kernel) -> Kernel {
    kernel.suffixed("in_place")
}

/// Returns the kernel for rows of `columns` elements, and the columns in its units, vec4s or elements.
fn by_width(kernel: &Kernel, columns: u64) -> (Kernel, u64) {
    if columns.is_multiple_of(4) { (kernel.in_vec4(), columns / 4) } else { (kernel.clone(), columns) }
}

pub(super) fn embedding(site: &Site) -> Launch<Operand> {
    let table = site.inputs[0].0;
    let (kernel, columns) = by_width(&EMBEDDING.storing(site.inputs[0].1), table.last() as u64);
    let n = site.inputs[1].0.numel() * columns;
    let memory = vec![Operand::Input(0), Operand::Input(1), Operand::Output(0)];
    per_thread(site, &kernel, n, memory, &[n as u32, columns as u32, table.dims()[0] as u32])
}

/// Maximum ids of one launch: all of them may be equal, and one thread sums equal ids.
const MAX_RUN: u64 = 32_768;

pub(super) fn grad(site: &Site, rows: usize, share: Option<Share>) -> Lowered {
    let ids = site.inputs[0].0.numel();
    let start = match (site.inputs.len(), site.in_place) {
        (3, Some(_)) => None,
        (3, None) => Some(movement::copy(site, 2)),
        _ => Some(movement::fill(site, 0.0)),
    };
    let mut lowered = Lowered { launches: start.into_iter().collect(), workspace: Vec::new() };
    let sorted = sort(site, rows, &mut lowered);
    let (kernel, columns) = by_width(&SUMS, site.inputs[1].0.last() as u64);
    let kernel = added_to_result(kernel);
    // A share begins and ends at a multiple of 4 elements, or with the table.
    let unit = site.inputs[1].0.last() as u64 / columns;
    let [first, len] =
        share.map_or([0, site.output().numel()], |share| [share.start, share.len]).map(|n| n / unit);
    for start in (0..ids).step_by(MAX_RUN as usize) {
        let end = (start + MAX_RUN).min(ids);
        let params = [columns, start, end, first, len].map(|n| n as u32);
        let memory = vec![sorted, Operand::Input(1), Operand::Output(0)];
        lowered.launches.push(per_thread(site, &kernel, (end - start) * columns, memory, &params));
    }
    lowered
}

/// Appends the dispatches of a stable sort; returns the memory of the sorted pairs of id and position.
fn sort(site: &Site, rows: usize, lowered: &mut Lowered) -> Operand {
    let ids = site.inputs[0].0.numel();
    let bits = usize::BITS - (rows - 1).leading_zeros();
    let passes = bits.div_ceil(8).max(1);
    let digit_bits = bits.div_ceil(passes);
    let digits = 1u64 << digit_bits;
    // One thread processes a block; the scan takes one iteration for each of at most 16,384 blocks.
    let block = match site.limits.class {
        AdapterClass::Cpu => 256,
        AdapterClass::Integrated | AdapterClass::Discrete => 64,
    };
    let block = ids.div_ceil(16_384).max(block);
    let blocks = ids.div_ceil(block);
    let [mut from, mut to, counts, totals, bases] = [0, 1, 2, 3, 4].map(Operand::Workspace);
    lowered.workspace = vec![ids * 8, ids * 8, blocks * digits * 4, digits * 4, digits * 4];
    let memory = vec![Operand::Input(0), from];
    lowered.launches.push(per_thread(site, &SORT_START, ids, memory, &[ids as u32, rows as u32]));
    for pass in 0..passes {
        let params = [ids, blocks, block, digits, u64::from(pass * digit_bits)].map(|n| n as u32);
        let mut launch = |kernel, threads, memory| {
            lowered.launches.push(per_thread(site, kernel, threads, memory, &params));
        };
        launch(&SORT_COUNT, blocks, vec![from, counts]);
        launch(&SORT_SCAN, digits, vec![counts, totals]);
        launch(&SORT_BASES, digits, vec![totals, bases]);
        launch(&SORT_MOVE, blocks, vec![from, counts, bases, to]);
        (from, to) = (to, from);
    }
    from
}
