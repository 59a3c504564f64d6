//! Matrix products by cooperative matrices: how much of the result a workgroup computes.

use super::matmul::{Choice, Sizes};
use crate::kernels::table::{MATMUL_COOPERATIVE8, MATMUL_COOPERATIVE16};
use crate::limits::Cooperative;

/// Subgroups of a workgroup, two of them along M, with the matrices of sums that each holds.
struct Block {
    groups_n: u32,
    rows: u32,
    columns: u32,
}

/// For large results: each element read is used most often.
const LARGE: Block = Block { groups_n: 4, rows: 4, columns: 2 };
/// For results that large blocks would cut into too few.
const SMALL: Block = Block { groups_n: 2, rows: 2, columns: 2 };

/// Large blocks that are enough to keep an adapter busy.
const ENOUGH: u64 = 128;

/// Threads that every adapter allows in a workgroup.
const THREADS: u32 = 256;

impl Block {
    /// Rows and columns of the result.
    fn tile(&self, side: u32) -> (u64, u64) {
        (u64::from(2 * self.rows * side), u64::from(self.groups_n * self.columns * side))
    }

    /// With fewer subgroups if they have many lanes.
    fn of(self, lanes: u32) -> Self {
        Self { groups_n: self.groups_n.min(THREADS / (2 * lanes)), ..self }
    }
}

/// The kernel for a product of `transposed` operands; `None` where the result is lower or narrower than a matrix, which would
/// be mostly zeros.
pub(super) fn choose(sizes: &Sizes, transposed: [bool; 2], matrices: Cooperative) -> Option<Choice> {
    let Sizes { batch, m, n, k } = *sizes;
    let Cooperative { side, lanes } = matrices;
    if m.min(n) < u64::from(side) {
        return None;
    }
    let blocks = |tile: (u64, u64)| m.div_ceil(tile.0) * n.div_ceil(tile.1) * batch;
    let large = LARGE.of(lanes);
    let block = if blocks(large.tile(side)) >= ENOUGH { large } else { SMALL.of(lanes) };
    let kernels = if side == 8 { &MATMUL_COOPERATIVE8 } else { &MATMUL_COOPERATIVE16 };
    let flag = |on: bool| f64::from(u8::from(on));
    let [ta, tb] = transposed;
    let lines = [if ta { m } else { k }, if tb { k } else { n }];
    let fours = lines.map(|line| flag(line.is_multiple_of(4)));
    Some(Choice {
        kernel: &kernels[0][0],
        tile: block.tile(side),
        constants: vec![
            ("LANES", f64::from(lanes)),
            ("GROUPS_N", f64::from(block.groups_n)),
            ("ROWS", f64::from(block.rows)),
            ("COLUMNS", f64::from(block.columns)),
            ("TRANSPOSE_A", flag(ta)),
            ("TRANSPOSE_B", flag(tb)),
            ("FOURS_A", fours[0]),
            ("FOURS_B", fours[1]),
        ],
    })
}
