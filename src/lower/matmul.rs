//! Matrix products: the kernel for an adapter and a shape, from one table.

use super::grid::fold;
use super::{Lowered, Operand, Site};
use crate::kernels::{Kernel, Launch, table};
use crate::limits::{AdapterClass, Limits};
use crate::shape::Shape;

/// Sizes of `C [batch, m, n] = op(A) op(B)`, k being the inner dimension.
struct Sizes {
    batch: u64,
    m: u64,
    n: u64,
    k: u64,
}

/// A kernel with the part of the result that one workgroup computes.
struct Choice {
    kernel: &'static Kernel,
    tile: (u64, u64),
    constants: Vec<(&'static str, f64)>,
}

/// Subgroups of this size or more share the elements of `A` that one lane has read.
const SHARING_SUBGROUP: u32 = 8;
/// Narrower results leave most lanes of the wide kernels idle.
const NARROW: u64 = 24;

fn choose(sizes: &Sizes, ta: bool, tb: bool, limits: &Limits) -> Choice {
    let fours = |n: u64| n % 4 == 0;
    let flag = |on: bool| f64::from(u8::from(on));
    let any = |lanes_n: u64, lanes_m: u64| Choice {
        kernel: &table::MATMUL_ANY,
        tile: (4 * lanes_m, 4 * lanes_n),
        constants: vec![("LANES_N", lanes_n as f64), ("LANES_M", lanes_m as f64)],
    };
    match limits.class {
        AdapterClass::Cpu if limits.min_subgroup >= SHARING_SUBGROUP => {
            let wide = match (ta, tb) {
                (false, false) if fours(sizes.k) => Some(&table::MATMUL_CPU_NN),
                (false, true) if fours(sizes.k) => Some(&table::MATMUL_CPU_NT),
                (true, false) if fours(sizes.m) => Some(&table::MATMUL_CPU_TN),
                _ => None,
            };
            match wide {
                Some(kernel) if fours(sizes.n) && sizes.n >= NARROW && sizes.k > 0 => {
                    Choice { kernel, tile: (32, 32), constants: Vec::new() }
                }
                _ => Choice { kernel: &table::MATMUL_CPU_ANY, tile: (32, 16), constants: Vec::new() },
            }
        }
        AdapterClass::Cpu => any(4, 2),
        AdapterClass::Gpu if sizes.m.min(sizes.n) <= 16 => any(8, 8),
        AdapterClass::Gpu => Choice {
            kernel: &table::MATMUL_TILED,
            tile: (64, 64),
            constants: vec![("TRANSPOSE_A", flag(ta)), ("TRANSPOSE_B", flag(tb))],
        },
    }
}

pub(super) fn matmul(site: &Site, ta: bool, tb: bool) -> Lowered {
    let (a, b, c) = (site.inputs[0].0, site.inputs[1].0, site.output());
    let (a_rows, a_cols) = rows_and_cols(a);
    let (b_rows, b_cols) = rows_and_cols(b);
    let (m, k) = if ta { (a_cols, a_rows) } else { (a_rows, a_cols) };
    let n = if tb { b_rows } else { b_cols };
    let sizes = Sizes { batch: c.numel() / (m * n), m, n, k };
    let choice = choose(&sizes, ta, tb, site.limits);
    let (tiles_m, tiles_n) = (m.div_ceil(choice.tile.0), n.div_ceil(choice.tile.1));
    let grid = fold(tiles_m * tiles_n * sizes.batch, site.limits.max_workgroups);
    let step = |all: u64, one: u64| if all > one { one } else { 0 };
    let (a_row, a_col) = if ta { (1, a_cols) } else { (a_cols, 1) };
    let (b_row, b_col) = if tb { (1, b_cols) } else { (b_cols, 1) };
    let words = [
        m,
        n,
        k,
        sizes.batch,
        tiles_m,
        tiles_n,
        u64::from(grid[0]),
        step(a.numel(), m * k),
        step(b.numel(), k * n),
        m * n,
        a_row,
        a_col,
        b_row,
        b_col,
    ];
    let launch = Launch {
        kernel: choice.kernel,
        constants: choice.constants,
        memory: vec![Operand::Input(0), Operand::Input(1), Operand::Output(0)],
        params: words.map(|word| word as u32).to_vec(),
        grid,
    };
    launch.into()
}

fn rows_and_cols(shape: Shape) -> (u64, u64) {
    let dims = shape.dims();
    (dims[dims.len() - 2] as u64, dims[dims.len() - 1] as u64)
}
