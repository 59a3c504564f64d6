//! Matrix products: the kernel for an adapter and a shape, from one table.

use super::grid::fold;
use super::{Lowered, Operand, Site, chain, cooperative, reduce};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::{Kernel, Launch, table};
use crate::limits::{AdapterClass, Limits};
use crate::shape::Shape;

/// Sizes of `C [batch, m, n] = op(A) op(B)`, k being the inner dimension.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) batch: u64,
    pub(super) m: u64,
    pub(super) n: u64,
    pub(super) k: u64,
}

/// A kernel with the part of the result that one workgroup computes.
pub(super) struct Choice {
    pub(super) kernel: &'static Kernel,
    pub(super) tile: (u64, u64),
    pub(super) constants: Vec<(&'static str, f64)>,
}

/// Subgroups of this size share 32 rows of `A` that their lanes have read, those of half the size 8 rows.
const WIDE_SUBGROUP: u32 = 8;
const SMALL_SUBGROUP: u32 = 4;
/// Narrower results leave most lanes of the sharing kernels idle.
const NARROW: u64 = 24;
/// Results with few rows waste most of a tile of 32.
const LOW: u64 = 8;

/// Any sizes and strides.
fn any(lanes_n: u64, lanes_m: u64) -> Choice {
    Choice {
        kernel: &table::MATMUL_ANY,
        tile: (4 * lanes_m, 4 * lanes_n),
        constants: vec![("LANES_N", lanes_n as f64), ("LANES_M", lanes_m as f64)],
    }
}

/// Any sizes and strides, on a CPU adapter.
fn any_for_cpu(limits: &Limits) -> Choice {
    if limits.min_subgroup >= WIDE_SUBGROUP {
        Choice { kernel: &table::MATMUL_CPU_ANY, tile: (32, 16), constants: Vec::new() }
    } else {
        any(4, 2)
    }
}

/// The kernels in which a subgroup reads `A` once for all its lanes; `None` where sizes or subgroups do not fit them.
fn sharing(sizes: &Sizes, ta: bool, tb: bool, limits: &Limits) -> Option<Choice> {
    let fours = |n: u64| n.is_multiple_of(4);
    let (wide, small) = match (ta, tb) {
        (false, false) if fours(sizes.k) => (&table::MATMUL_CPU_NN, &table::MATMUL_CPU8_NN),
        (false, true) if fours(sizes.k) => (&table::MATMUL_CPU_NT, &table::MATMUL_CPU8_NT),
        (true, false) if fours(sizes.m) => (&table::MATMUL_CPU_TN, &table::MATMUL_CPU8_TN),
        _ => return None,
    };
    if !fours(sizes.n) || sizes.n < NARROW || limits.min_subgroup < SMALL_SUBGROUP {
        return None;
    }
    let low = sizes.m <= LOW || limits.min_subgroup < WIDE_SUBGROUP;
    let (kernel, rows) = if low { (small, 8) } else { (wide, 32) };
    Some(Choice { kernel, tile: (rows, 32), constants: Vec::new() })
}

fn choose(sizes: &Sizes, ta: bool, tb: bool, limits: &Limits) -> Choice {
    let flag = |on: bool| f64::from(u8::from(on));
    if let Some(choice) =
        limits.cooperative.and_then(|matrices| cooperative::choose(sizes, [ta, tb], matrices))
    {
        return choice;
    }
    match limits.class {
        AdapterClass::Cpu => sharing(sizes, ta, tb, limits).unwrap_or_else(|| any_for_cpu(limits)),
        AdapterClass::Gpu if sizes.m.min(sizes.n) <= 16 => any(8, 8),
        AdapterClass::Gpu => Choice {
            kernel: &table::MATMUL_TILED,
            tile: (64, 64),
            constants: vec![("TRANSPOSE_A", flag(ta)), ("TRANSPOSE_B", flag(tb))],
        },
    }
}

/// The longest inner dimension of one dispatch on CPU adapters: kernels take four steps a turn, and lavapipe ends a
/// thread's loops after 65,535 turns.
const MAX_INNER: u64 = 1 << 17;

/// Whether a result may be written over what is added to it: it is not summed up from pieces first, which only products do
/// that are longer in any direction.
pub(super) fn in_one_go(inputs: &[(Shape, DType)]) -> bool {
    inputs[..2].iter().all(|(shape, _)| shape.dims().iter().all(|&dim| dim as u64 <= MAX_INNER))
}

pub(super) fn matmul(site: &Site, ta: bool, tb: bool) -> Result<Lowered> {
    let (a, b, c) = (site.inputs[0].0, site.inputs[1].0, site.output());
    let (a_rows, a_cols) = rows_and_cols(a);
    let (b_rows, b_cols) = rows_and_cols(b);
    let (m, k) = if ta { (a_cols, a_rows) } else { (a_rows, a_cols) };
    let n = if tb { b_rows } else { b_cols };
    let sizes = Sizes { batch: c.numel() / (m * n), m, n, k };
    let step = |all: u64, one: u64| if all > one { one } else { 0 };
    let product = Product {
        a_batch: step(a.numel(), m * k),
        b_batch: step(b.numel(), k * n),
        a_strides: if ta { (1, a_cols) } else { (a_cols, 1) },
        b_strides: if tb { (1, b_cols) } else { (b_cols, 1) },
        sizes,
    };
    if site.limits.class == AdapterClass::Cpu && k > MAX_INNER {
        let mut lowered = long(site, &product)?;
        lowered.launches.extend(site.op.then().map(|chain| chain::over_result(site, chain)));
        return Ok(lowered);
    }
    let choice = choose(&product.sizes, ta, tb, site.limits);
    Ok(chain::behind(site, product.launch(site, choice, Operand::Output(0))).into())
}

/// A product as kernels see it; strides in elements.
struct Product {
    sizes: Sizes,
    a_batch: u64,
    b_batch: u64,
    /// Along m and k.
    a_strides: (u64, u64),
    /// Along k and n.
    b_strides: (u64, u64),
}

impl Product {
    fn launch(&self, site: &Site, choice: Choice, to: Operand) -> Launch<Operand> {
        let Sizes { batch, m, n, k } = self.sizes;
        let (tiles_m, tiles_n) = (m.div_ceil(choice.tile.0), n.div_ceil(choice.tile.1));
        let grid = fold(tiles_m * tiles_n * batch, site.limits.max_workgroups);
        let words = [
            m,
            n,
            k,
            batch,
            tiles_m,
            tiles_n,
            u64::from(grid[0]),
            self.a_batch,
            self.b_batch,
            m * n,
            self.a_strides.0,
            self.a_strides.1,
            self.b_strides.0,
            self.b_strides.1,
        ];
        Launch {
            kernel: choice.kernel,
            constants: choice.constants,
            memory: vec![Operand::Input(0), Operand::Input(1), to],
            params: words.map(|word| word as u32).to_vec(),
            grid,
        }
    }
}

/// A product with a long inner dimension: pieces of it as batches into scratch, then their sum. The pieces must be
/// equal, so their number divides k.
fn long(site: &Site, product: &Product) -> Result<Lowered> {
    let Sizes { batch, m, n, k } = product.sizes;
    let pieces = (k.div_ceil(MAX_INNER)..=4 * k.div_ceil(MAX_INNER)).find(|pieces| k.is_multiple_of(*pieces));
    let (Some(pieces), 1) = (pieces, batch) else {
        return Err(Error::Option(format!(
            "matmul: the inner dimension {k} is too long for the software adapter `{}`, which takes {MAX_INNER}, or a \
             small multiple of a number up to that without batches; pad it with zeros",
            site.limits.name
        )));
    };
    let piece = k / pieces;
    let parts = Product {
        sizes: Sizes { batch: pieces, m, n, k: piece },
        a_batch: piece * product.a_strides.1,
        b_batch: piece * product.b_strides.0,
        ..*product
    };
    let choice = any_for_cpu(site.limits);
    let scratch = Operand::Workspace(0);
    let mut lowered =
        Lowered { launches: vec![parts.launch(site, choice, scratch)], workspace: vec![pieces * m * n * 4] };
    reduce::sum_of_parts(site, scratch, pieces, m * n, &mut lowered);
    Ok(lowered)
}

fn rows_and_cols(shape: Shape) -> (u64, u64) {
    let dims = shape.dims();
    (dims[dims.len() - 2] as u64, dims[dims.len() - 1] as u64)
}
