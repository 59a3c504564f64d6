//! Matrix products by cooperative matrices: how much of the result a workgroup computes.

use super::flag;
use super::products::{Case, Row, Sizes};
use crate::kernels::table::matmul_cooperative;
use crate::kernels::{Held, Kernel};
use crate::limits::{Cooperative, Limits};

/// Subgroups of a workgroup, two of them along M, with the matrices of sums that each holds.
#[derive(Clone, Copy)]
pub struct Block {
    /// Its name, for [`Limits::product`] and for reports.
    pub name: &'static str,
    groups_n: u32,
    rows: u32,
    columns: u32,
}

/// Every block, the preferred one for large results first, the one for small results last.
pub static BLOCKS: [Block; 3] = [
    Block { name: "cooperative", groups_n: 4, rows: 4, columns: 2 },
    // As large, with half the subgroups: they read less of workgroup memory, and there are fewer to wait for each other's loads.
    Block { name: "cooperative_wide", groups_n: 2, rows: 4, columns: 4 },
    Block { name: "cooperative_small", groups_n: 2, rows: 2, columns: 2 },
];

/// Large blocks that are enough to keep an adapter busy.
const ENOUGH: u64 = 128;

/// Threads that every adapter allows in a workgroup.
const THREADS: u32 = 256;

impl Block {
    /// The block of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        BLOCKS.iter().find(|block| block.name == name)
    }

    /// Whether an adapter's matrices can be used in such blocks.
    pub fn runs_on(&self, limits: &Limits) -> bool {
        limits.cooperative.is_some_and(|matrices| self.of(matrices).is_some())
    }

    /// The same with fewer subgroups if they have many lanes; `None` if a thread would bring more than eight fours of a tile
    /// of 32 steps, or less than one.
    fn of(self, Cooperative { side, lanes }: Cooperative) -> Option<Self> {
        let block = Self { groups_n: self.groups_n.min(THREADS / (2 * lanes)), ..self };
        let (threads, (m, n)) = (u64::from(2 * block.groups_n * lanes), block.tile(side));
        (block.groups_n > 0 && m.max(n) <= threads && threads <= 8 * m.min(n)).then_some(block)
    }

    /// Rows and columns of the result.
    fn tile(&self, side: u32) -> (u64, u64) {
        (u64::from(2 * self.rows * side), u64::from(self.groups_n * self.columns * side))
    }

    fn blocks(&self, side: u32, Sizes { batch, m, n, .. }: Sizes) -> u64 {
        let tile = self.tile(side);
        m.div_ceil(tile.0) * n.div_ceil(tile.1) * batch
    }
}

/// How a product is computed.
pub(super) struct Choice {
    pub(super) kernel: &'static Kernel,
    pub(super) tile: (u64, u64),
    pub(super) constants: Vec<(&'static str, f64)>,
}

/// The kernel for a product; `None` without matrices, where the limits name another way, for operands that `f16` cannot hold,
/// and for results that are lower or narrower than a matrix, which would be mostly zeros.
pub(super) fn choose(case: &Case, held: [Held; 2], limits: &Limits) -> Option<Choice> {
    let matrices = limits.cooperative?;
    let (side, Sizes { m, n, k, .. }) = (matrices.side, case.sizes);
    let otherwise = limits.product.is_some_and(|name| Row::named(name).is_some());
    if otherwise || case.apart || m.min(n) < u64::from(side) {
        return None;
    }
    let large = BLOCKS[0].of(matrices).filter(|block| block.blocks(side, case.sizes) >= ENOUGH);
    let by_size = || large.or_else(|| BLOCKS[BLOCKS.len() - 1].of(matrices));
    let named = limits.product.and_then(Block::named).and_then(|block| block.of(matrices));
    let block = named.or_else(by_size)?;
    let lines = [if case.ta { m } else { k }, if case.tb { k } else { n }];
    let fours = lines.map(|line| flag(line.is_multiple_of(4)));
    Some(Choice {
        kernel: matmul_cooperative(side, held)?,
        tile: block.tile(side),
        constants: vec![
            ("LANES", f64::from(matrices.lanes)),
            ("GROUPS_N", f64::from(block.groups_n)),
            ("ROWS", f64::from(block.rows)),
            ("COLUMNS", f64::from(block.columns)),
            ("TRANSPOSE_A", flag(case.ta)),
            ("TRANSPOSE_B", flag(case.tb)),
            ("FOURS_A", fours[0]),
            ("FOURS_B", fours[1]),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(limits: &Limits, [m, n, k]: [u64; 3], held: [Held; 2]) -> Option<(u64, u64)> {
        let case = Case { sizes: Sizes { batch: 1, m, n, k }, ta: false, tb: false, apart: false };
        choose(&case, held, limits).map(|choice| choice.tile)
    }

    #[test]
    fn blocks_follow_sizes_unless_one_is_named() {
        let cooperative = Some(Cooperative { side: 16, lanes: 32 });
        let limits = Limits { cooperative, ..Limits::default() };
        let of = |sizes| chosen(&limits, sizes, [Held::F16; 2]);
        assert_eq!(of([4096, 4096, 4096]), Some((128, 128)));
        assert_eq!(of([512, 512, 4096]), Some((64, 64)), "too few large blocks");
        assert_eq!(of([4096, 15, 4096]), None);
        assert_eq!(chosen(&limits, [4096; 3], [Held::F32, Held::Bf16]), None);
        for block in &BLOCKS {
            assert!(block.runs_on(&limits) && !block.runs_on(&Limits::default()));
            let named = Limits { product: Some(block.name), ..limits.clone() };
            assert_eq!(chosen(&named, [64; 3], [Held::F32; 2]), Some(block.tile(16)));
        }
        let other = Limits { product: Some("tiled64"), ..limits.clone() };
        assert_eq!(chosen(&other, [4096; 3], [Held::F16; 2]), None);
    }

    #[test]
    fn threads_bring_one_to_eight_fours() {
        for (side, lanes) in [(8, 8), (8, 16), (8, 32), (8, 64), (16, 16), (16, 32), (16, 64)] {
            let matrices = Cooperative { side, lanes };
            assert!(BLOCKS[0].of(matrices).is_some() && BLOCKS[2].of(matrices).is_some(), "{matrices}");
        }
        assert!(BLOCKS[1].of(Cooperative { side: 8, lanes: 8 }).is_none());
        assert!(BLOCKS[0].of(Cooperative { side: 16, lanes: 8 }).is_none());
    }
}
