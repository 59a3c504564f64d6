//! Embedding. Its gradient sorts the ids (a stable radix sort), and sums the rows of each id in their order: without
//! atomics, and in time proportional to the number of ids.

use super::grid::per_thread;
use super::{Lowered, Operand, Site, movement};
use crate::dtype::DType;
use crate::kernels::{Kernel, Launch, table};
use crate::limits::AdapterClass;

/// Kernel, and columns as it reads them.
fn by_width([ones, fours]: &'static [Kernel; 2], columns: u64) -> (&'static Kernel, u64) {
    if columns.is_multiple_of(4) { (fours, columns / 4) } else { (ones, columns) }
}

pub(super) fn embedding(site: &Site) -> Launch<Operand> {
    let table = site.inputs[0].0;
    let kernels = match site.inputs[0].1 {
        DType::F16 => &table::EMBEDDING_F16,
        DType::BF16 => &table::EMBEDDING_BF16,
        DType::F32 | DType::U32 => &table::EMBEDDING,
    };
    let (kernel, columns) = by_width(kernels, table.last() as u64);
    let n = site.inputs[1].0.numel() * columns;
    let memory = vec![Operand::Input(0), Operand::Input(1), Operand::Output(0)];
    per_thread(site, kernel, n, memory, &[n as u32, columns as u32, table.dims()[0] as u32])
}

/// The most ids that one launch sums: one id may be all of them, and one thread sums them.
const MAX_RUN: u64 = 32_768;

pub(super) fn grad(site: &Site, rows: usize) -> Lowered {
    let ids = site.inputs[0].0.numel();
    let start = match (site.inputs.len(), site.in_place) {
        (3, Some(_)) => None,
        (3, None) => Some(movement::copy(site, 2)),
        _ => Some(movement::fill(site, 0.0)),
    };
    let mut lowered = Lowered { launches: start.into_iter().collect(), workspace: Vec::new() };
    let sorted = sort(site, rows, &mut lowered);
    let (kernel, columns) = by_width(&table::EMBEDDING_SUMS, site.output().last() as u64);
    for start in (0..ids).step_by(MAX_RUN as usize) {
        let end = (start + MAX_RUN).min(ids);
        let params = [columns, start, end].map(|n| n as u32);
        let memory = vec![sorted, Operand::Input(1), Operand::Output(0)];
        lowered.launches.push(per_thread(site, kernel, (end - start) * columns, memory, &params));
    }
    lowered
}

/// Ids and their places, sorted by ids; equal ids in the order of their places.
fn sort(site: &Site, rows: usize, lowered: &mut Lowered) -> Operand {
    let ids = site.inputs[0].0.numel();
    let bits = usize::BITS - (rows - 1).leading_zeros();
    let passes = bits.div_ceil(8).max(1);
    let digit_bits = bits.div_ceil(passes);
    let digits = 1u64 << digit_bits;
    // A block is one thread's work; the scan takes a turn for each of at most 16,384 blocks.
    let block = match site.limits.class {
        AdapterClass::Cpu => 256,
        AdapterClass::Integrated | AdapterClass::Discrete => 64,
    };
    let block = ids.div_ceil(16_384).max(block);
    let blocks = ids.div_ceil(block);
    let [mut from, mut to, counts, totals, bases] = [0, 1, 2, 3, 4].map(Operand::Workspace);
    lowered.workspace = vec![ids * 8, ids * 8, blocks * digits * 4, digits * 4, digits * 4];
    let memory = vec![Operand::Input(0), from];
    lowered.launches.push(per_thread(site, &table::SORT_START, ids, memory, &[ids as u32, rows as u32]));
    for pass in 0..passes {
        let params = [ids, blocks, block, digits, u64::from(pass * digit_bits)].map(|n| n as u32);
        let mut launch = |kernel, threads, memory| {
            lowered.launches.push(per_thread(site, kernel, threads, memory, &params));
        };
        launch(&table::SORT_COUNT, blocks, vec![from, counts]);
        launch(&table::SORT_SCAN, digits, vec![counts, totals]);
        launch(&table::SORT_BASES, digits, vec![totals, bases]);
        launch(&table::SORT_MOVE, blocks, vec![from, counts, bases, to]);
        (from, to) = (to, from);
    }
    from
}
