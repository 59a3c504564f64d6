//! Matrix products: one dispatch, or a split-K product: pieces of the inner dimension, and their sum. GPUs split
//! where a result has few tiles, software adapters where the inner dimension is too long for a thread.

mod variants;

use super::elementwise::fused;
use super::grid::fold;
use super::{Kernel, Launch, Lowered, Operand, Site, cooperative, reduce, split};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::Shape;
pub(super) use variants::reading;
pub use variants::{Case, Sizes, VARIANTS, Variant, choose};

/// Element types of the first operand, and of the second: frozen weights have fewer bits.
pub(super) const FIRST: [DType; 3] = [DType::F32, DType::F16, DType::BF16];
pub(super) const SECOND: [DType; 6] =
    [DType::F32, DType::F16, DType::BF16, DType::Int8, DType::Int4, DType::Nf4];

pub(super) fn kernels() -> Vec<Kernel> {
    let types = FIRST.into_iter().flat_map(|a| SECOND.map(|b| [a, b]));
    let of = |types| VARIANTS.iter().flat_map(Variant::kernels).map(move |kernel| reading(kernel, types));
    let mut kernels: Vec<Kernel> = types.flat_map(of).collect();
    // A kernel may be in several variants.
    kernels.sort_by(|a, b| a.name.cmp(&b.name));
    kernels.dedup();
    kernels
}

/// Maximum inner dimension of one dispatch on CPU adapters: lavapipe ends a thread's loops after 65,535
/// iterations, and the kernel `matmul_cpu_any` takes two steps per iteration. The other kernels for these
/// adapters take four, but one limit is simpler to explain.
const MAX_INNER: u64 = 130_000;

/// Whether no adapter splits the inner dimension, so that the result may overwrite an operand of its
/// epilogue.
pub(super) fn in_one_go(a: Shape, ta: bool) -> bool {
    let (rows, columns) = rows_and_cols(a);
    (if ta { rows } else { columns }) <= MAX_INNER
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
        case: Case { sizes, ta, tb, apart: false },
        types: [site.inputs[0].1, site.inputs[1].1],
    };
    if site.limits.class.is_cpu() && k > MAX_INNER {
        let mut lowered = long(site, &product)?;
        lowered.launches.extend(site.op.epilogue().map(|chain| fused::over_result(site, chain)));
        return Ok(lowered);
    }
    Ok(product.lower(site))
}

/// Parameters of a product for its kernel; strides in elements.
struct Product {
    case: Case,
    a_batch: u64,
    b_batch: u64,
    /// Along m and k.
    a_strides: (u64, u64),
    /// Along k and n.
    b_strides: (u64, u64),
    types: [DType; 2],
}

impl Product {
    /// Lowers the product to one launch, or on GPUs to pieces in scratch and their sum.
    fn lower(&self, site: &Site) -> Lowered {
        let (launch, parts) = self.launch(site, None);
        if parts == 1 {
            return fused::with_epilogue(site, launch).into();
        }
        let (scratch, len) = (Operand::Workspace(0), site.output().numel());
        let sum = reduce::sum_in_order(site, scratch, parts, len);
        Lowered { launches: vec![launch, sum], workspace: vec![parts * len * 4] }
    }

    /// Returns the launch and the number of pieces of its inner dimension. One piece is written to `to`, by default the
    /// output; more are only made for the default, and are written to scratch.
    fn launch(&self, site: &Site, to: Option<Operand>) -> (Launch<Operand>, u64) {
        let Sizes { batch, m, n, k } = self.case.sizes;
        let (choice, splits) = match cooperative::choose(&self.case, self.types, site.limits) {
            Some(choice) => (choice, true),
            None => {
                let row = choose(&self.case, site.limits);
                let kernel = reading(row.kernel(&self.case), self.types);
                let (tile, threads, constants) = (row.tile, kernel.workgroup, row.constants(&self.case));
                (cooperative::Choice { kernel, tile, threads, constants }, row.splits)
            }
        };
        let cooperative::Choice { kernel, tile, threads, constants } = choice;
        let (tiles_m, tiles_n) = (m.div_ceil(tile.0), n.div_ceil(tile.1));
        let workgroups = tiles_m * tiles_n * batch;
        let parts = if splits && to.is_none() {
            split::pieces_of_product(site.limits.class, (workgroups, threads), k, m.min(n))
        } else {
            1
        };
        let grid = fold(workgroups * parts, site.limits.max_workgroups);
        let default = if parts == 1 { Operand::Output(0) } else { Operand::Workspace(0) };
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
            parts,
            split::length(k, parts),
        ];
        let launch = Launch {
            kernel,
            constants,
            memory: vec![Operand::Input(0), Operand::Input(1), to.unwrap_or(default)],
            params: words.map(|word| word as u32).to_vec(),
            grid,
        };
        (launch, parts)
    }
}

/// Lowers a product with a long inner dimension: products of pieces of it, as batches with results in
/// scratch, then their sum. The pieces must be equal, so their number divides k.
fn long(site: &Site, product: &Product) -> Result<Lowered> {
    let Sizes { batch, m, n, k } = product.case.sizes;
    let pieces = (k.div_ceil(MAX_INNER)..=4 * k.div_ceil(MAX_INNER)).find(|pieces| k.is_multiple_of(*pieces));
    let (Some(pieces), 1) = (pieces, batch) else {
        return Err(Error::unsupported(
            &site.limits.name,
            format!(
                "matmul: the inner dimension {k} is too long for the software adapter `{}`, which takes {MAX_INNER}, or a \
             small multiple of a number up to that without batches; pad it with zeros",
                site.limits.name
            ),
        ));
    };
    let piece = k / pieces;
    let parts = Product {
        case: Case { sizes: Sizes { batch: pieces, m, n, k: piece }, apart: true, ..product.case },
        a_batch: piece * product.a_strides.1,
        b_batch: piece * product.b_strides.0,
        ..*product
    };
    let scratch = Operand::Workspace(0);
    let mut lowered =
        Lowered { launches: vec![parts.launch(site, Some(scratch)).0], workspace: vec![pieces * m * n * 4] };
    reduce::sum_of_parts(site, scratch, pieces, m * n, &mut lowered);
    Ok(lowered)
}

fn rows_and_cols(shape: Shape) -> (u64, u64) {
    let dims = shape.dims();
    (dims[dims.len() - 2] as u64, dims[dims.len() - 1] as u64)
}
