//! Matrix products and convolutions by cooperative matrices: kernels, and the block of the result per
//! workgroup.

use super::kernel::Variants;
use super::lower::flag;
use super::matmul::{Case, FIRST, SECOND, Sizes};
use super::{Kernel, conv, split};
use crate::dtype::DType;
use crate::limits::{Cooperative, Limits};

/// All subgroup sizes, block shapes and transposes, with rows in memory of any length and of multiples of
/// four.
const PRODUCTS: Variants = &[
    &[("LANES", 32.0), ("VEC4_A", 1.0), ("VEC4_B", 1.0)],
    &[("LANES", 32.0), ("GROUPS_N", 2.0), ("ROWS", 2.0), ("TRANSPOSE_B", 1.0), ("VEC4_A", 1.0)],
    &[("LANES", 32.0), ("COLUMNS", 4.0), ("TRANSPOSE_A", 1.0), ("VEC4_B", 1.0)],
    &[("LANES", 32.0), ("GROUPS_N", 2.0), ("COLUMNS", 4.0), ("TRANSPOSE_A", 1.0), ("TRANSPOSE_B", 1.0)],
    &[("LANES", 64.0), ("GROUPS_N", 2.0)],
    &[("LANES", 16.0), ("GROUPS_N", 2.0), ("ROWS", 2.0), ("TRANSPOSE_A", 1.0)],
];

/// The same without the constants of matrix products. `NORMED` adds the activation after a batch norm of the
/// image.
const CONVOLUTIONS: Variants = &[
    &[("LANES", 32.0)],
    &[("LANES", 32.0), ("GROUPS_N", 2.0), ("ROWS", 2.0)],
    &[("LANES", 32.0), ("GROUPS_N", 2.0), ("COLUMNS", 4.0)],
    &[("LANES", 64.0), ("GROUPS_N", 2.0)],
    &[("LANES", 16.0), ("GROUPS_N", 2.0), ("ROWS", 2.0)],
];
const NORMED: Variants = &[
    &[("LANES", 32.0), ("ACTIVATION", 0.0)],
    &[("LANES", 32.0), ("GROUPS_N", 2.0), ("ROWS", 2.0), ("ACTIVATION", 1.0)],
    &[("LANES", 32.0), ("GROUPS_N", 2.0), ("COLUMNS", 4.0), ("ACTIVATION", 2.0)],
    &[("LANES", 64.0), ("GROUPS_N", 2.0), ("ACTIVATION", 1.0)],
];

/// Matrix product with cooperative matrices of 16 × 16.
static PRODUCT: Kernel = Kernel::new(
    "matmul_cooperative16",
    "cooperative/main",
    &["MATMUL", "STORE_LANES"],
    &[1, 2, 3],
    256,
    PRODUCTS,
);

/// Supported sides of cooperative matrices.
const SIDES: [u32; 2] = [8, 16];

pub(super) fn kernels() -> Vec<Kernel> {
    let types = FIRST.into_iter().flat_map(|a| SECOND.map(|b| [a, b]));
    let products = types.flat_map(|types| SIDES.map(|side| product(side, types)));
    let tiled = [conv::Pass::Image, conv::Pass::Weight].map(|pass| conv::TILED64.kernels(pass)).concat();
    let of = |kernel: &Kernel| SIDES.map(|side| [false, true].map(|half| cooperating(kernel, side, half)));
    products.flatten().chain(tiled.iter().flat_map(of).flatten()).collect()
}

/// Returns the kernel for products of these operand types, the second of which may have codes of 4 or 8 bits; `None` for
/// types whose values `f16` cannot hold.
fn product(side: u32, types: [DType; 2]) -> Option<Kernel> {
    let kernel = if side == 8 {
        let kernel = PRODUCT.with("SIDE8");
        let (name, module) = (PRODUCT.name.replace("16", "8"), "cooperative/main");
        kernel.in_module(name, module)
    } else {
        PRODUCT.clone()
    };
    let fits = |dtype: DType| matches!(dtype, DType::F32 | DType::F16);
    let [a, b] = types;
    (fits(a) && (fits(b) || b.is_quantised())).then(|| super::matmul::reading(&kernel, types))
}

/// Returns the kernel that computes `tiled`, a convolution or weight gradient, with matrices of `side` ×
/// `side`; if `half`, its image is `f16`.
fn cooperating(tiled: &Kernel, side: u32, half: bool) -> Kernel {
    let name = tiled.name.replacen("tiled64", &format!("cooperative{side}"), 1);
    let kernel = tiled.clone().in_module(name, "cooperative/main");
    let kernel = if side == 8 { kernel.with("SIDE8") } else { kernel };
    let kernel = if half { kernel.with("IMAGE_COOPERATIVE").suffixed("f16") } else { kernel };
    Kernel { workgroup: 256, variants: if kernel.is("NORMED") { NORMED } else { CONVOLUTIONS }, ..kernel }
}

/// How a workgroup divides its block of the result: two subgroups along M and `groups_n` along N, each with
/// `rows` × `columns` matrices of sums.
#[derive(Clone, Copy)]
pub struct Block {
    /// Name for [`Products`](crate::limits::Products) and reports.
    pub name: &'static str,
    groups_n: u32,
    rows: u32,
    columns: u32,
}

/// Every block: for large results, the same with half the subgroups, and for small results.
pub static BLOCKS: [Block; 3] = [
    Block { name: "cooperative", groups_n: 4, rows: 4, columns: 2 },
    // Preferred for products, where subgroups have enough lanes to load its tiles: fewer reads of workgroup memory.
    // An H100 takes 0.88 of the time for products of 4,096³, but 1.44 for convolutions: half the subgroups hide
    // less of the latency of what they gather.
    Block { name: "cooperative_wide", groups_n: 2, rows: 4, columns: 4 },
    Block { name: "cooperative_small", groups_n: 2, rows: 2, columns: 2 },
];

/// Threads that every adapter allows in a workgroup.
const THREADS: u32 = 256;

impl Block {
    /// Returns the block of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        BLOCKS.iter().find(|block| block.name == name)
    }

    /// Whether this block is supported on an adapter.
    pub fn runs_on(&self, limits: &Limits) -> bool {
        limits.kernels.cooperative.is_some_and(|matrices| self.of(matrices).is_some())
    }

    /// Returns the block with fewer subgroups if they have many lanes; `None` if a thread would load more
    /// than eight vec4s of an operand's tile of 32 steps, or less than one.
    fn of(self, Cooperative { side, lanes }: Cooperative) -> Option<Self> {
        let block = Self { groups_n: self.groups_n.min(THREADS / (2 * lanes)), ..self };
        let (threads, (m, n)) = (u64::from(block.threads(Cooperative { side, lanes })), block.tile(side));
        (block.groups_n > 0 && m.max(n) <= threads && threads <= 8 * m.min(n)).then_some(block)
    }

    fn threads(&self, Cooperative { lanes, .. }: Cooperative) -> u32 {
        2 * self.groups_n * lanes
    }

    /// Returns the rows and columns of the result that a workgroup computes.
    fn tile(&self, side: u32) -> (u64, u64) {
        (u64::from(2 * self.rows * side), u64::from(self.groups_n * self.columns * side))
    }

    /// Returns the elements of an m × n result padded to whole blocks.
    fn padded(&self, side: u32, Sizes { m, n, .. }: Sizes) -> u64 {
        let tile = self.tile(side);
        m.next_multiple_of(tile.0) * n.next_multiple_of(tile.1)
    }

    fn constants(&self, Cooperative { lanes, .. }: Cooperative) -> Vec<(&'static str, f64)> {
        vec![
            ("LANES", f64::from(lanes)),
            ("GROUPS_N", f64::from(self.groups_n)),
            ("ROWS", f64::from(self.rows)),
            ("COLUMNS", f64::from(self.columns)),
        ]
    }

    fn blocks(&self, side: u32, Sizes { batch, m, n, .. }: Sizes) -> u64 {
        let tile = self.tile(side);
        m.div_ceil(tile.0) * n.div_ceil(tile.1) * batch
    }
}

/// Kernel of a product, with its tile, the threads of a workgroup and constants.
pub(super) struct Choice {
    pub(super) kernel: Kernel,
    pub(super) tile: (u64, u64),
    pub(super) threads: u32,
    pub(super) constants: Vec<(&'static str, f64)>,
}

/// Returns the kernel for a product. `None` if the adapter has no cooperative matrices, if the limits name
/// another variant, if `f16` cannot hold an operand, if operand rows are not contiguous, and if the result
/// has fewer rows or columns than a matrix, which would be mostly zeros.
pub(super) fn choose(case: &Case, types: [DType; 2], limits: &Limits) -> Option<Choice> {
    if case.apart {
        return None;
    }
    let named = limits.kernels.products.of(case.sizes.product_class());
    let large = |matrices| BLOCKS[1].of(matrices).or(BLOCKS[0].of(matrices));
    let (matrices, block) = blocks((case.sizes, case.sizes.k), named, limits, large)?;
    let Sizes { m, n, k, .. } = case.sizes;
    let lines = [if case.ta { m } else { k }, if case.tb { k } else { n }];
    let vec4s = lines.map(|line| flag(line.is_multiple_of(4)));
    let told = [
        ("TRANSPOSE_A", flag(case.ta)),
        ("TRANSPOSE_B", flag(case.tb)),
        ("VEC4_A", vec4s[0]),
        ("VEC4_B", vec4s[1]),
    ];
    Some(Choice {
        kernel: product(matrices.side, types)?,
        tile: block.tile(matrices.side),
        threads: block.threads(matrices),
        constants: block.constants(matrices).into_iter().chain(told).collect(),
    })
}

/// Returns the kernel that replaces `tiled`, a convolution or weight gradient with an image of this type;
/// `sizes` are those of one product per group, with the steps that may be split. `None` as for products, if the inner dimension is shorter than
/// a matrix, and if only matrix products are faster with cooperative matrices.
pub(super) fn convolution(
    (tiled, image): (&Kernel, DType),
    (sizes, divisible): (Sizes, u64),
    named: Option<&str>,
    limits: &Limits,
) -> Option<Choice> {
    let half = match image {
        DType::F32 => false,
        DType::F16 => true,
        _ => return None,
    };
    // Layers with many pixels have few channels, and the empty half of a block takes as long as a full one.
    let filled = |matrices: Cooperative| {
        let (large, small) = (BLOCKS[0].of(matrices)?, BLOCKS[BLOCKS.len() - 1]);
        let [large_one, small_one] = [large, small].map(|block| block.padded(matrices.side, sizes));
        (2 * large_one <= 3 * small_one).then_some(large)
    };
    let (matrices, block) = blocks((sizes, divisible), named, limits, filled)?;
    (limits.kernels.cooperative_convolutions && sizes.k >= u64::from(matrices.side)).then(|| Choice {
        kernel: cooperating(tiled, matrices.side, half),
        tile: block.tile(matrices.side),
        threads: block.threads(matrices),
        constants: block.constants(matrices),
    })
}

/// Returns the matrices, and the block for results of these sizes, whose inner dimension of `steps` may be split: the
/// named one, or one by size. `None` if another variant is named;
/// `large` returns the large block, if one may be used.
fn blocks(
    (sizes, steps): (Sizes, u64),
    named: Option<&str>,
    limits: &Limits,
    large: impl Fn(Cooperative) -> Option<Block>,
) -> Option<(Cooperative, Block)> {
    let matrices = limits.kernels.cooperative?;
    let side = matrices.side;
    let otherwise = named.is_some_and(|name| Block::named(name).is_none());
    if otherwise || sizes.m.min(sizes.n) < u64::from(side) {
        return None;
    }
    let fills = |block: &Block| {
        split::fills(limits.class, (block.blocks(side, sizes), block.threads(matrices)), steps)
    };
    let by_size = || large(matrices).filter(fills).or_else(|| BLOCKS[BLOCKS.len() - 1].of(matrices));
    let named = named.and_then(Block::named).and_then(|block| block.of(matrices));
    Some((matrices, named.or_else(by_size)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{Products, ShapeClass};

    fn chosen(limits: &Limits, [m, n, k]: [u64; 3], types: [DType; 2]) -> Option<(u64, u64)> {
        let case = Case { sizes: Sizes { batch: 1, m, n, k }, ta: false, tb: false, apart: false };
        choose(&case, types, limits).map(|choice| choice.tile)
    }

    #[test]
    fn blocks_are_chosen_by_size_unless_named() {
        let cooperative = Some(Cooperative { side: 16, lanes: 32 });
        let limits = Limits::default().choosing(|kernels| kernels.cooperative = cooperative);
        let of = |sizes| chosen(&limits, sizes, [DType::F16; 2]);
        assert_eq!(of([4096, 4096, 4096]), Some((128, 128)));
        assert_eq!(of([512, 512, 4352]), Some((128, 128)), "enough in pieces");
        assert_eq!(of([512, 512, 512]), Some((64, 64)), "too few large blocks");
        assert_eq!(of([4096, 15, 4096]), None);
        for other in [DType::BF16, DType::Nf4] {
            assert_eq!(chosen(&limits, [4096; 3], [other, DType::F32]), None);
        }
        assert_eq!(chosen(&limits, [4096; 3], [DType::F32, DType::BF16]), None);
        assert_eq!(chosen(&limits, [4096; 3], [DType::F16, DType::Nf4]), Some((128, 128)));
        for block in &BLOCKS {
            assert!(block.runs_on(&limits) && !block.runs_on(&Limits::default()));
            let named = limits.choosing(|kernels| kernels.products = Products::all(block.name));
            assert_eq!(chosen(&named, [64; 3], [DType::F32; 2]), Some(block.tile(16)));
        }
        let other = limits.choosing(|kernels| kernels.products = Products::all("tiled64"));
        assert_eq!(chosen(&other, [4096; 3], [DType::F16; 2]), None);
    }

    #[test]
    fn convolutions_use_the_block_with_less_padding() {
        let cooperative = Some(Cooperative { side: 16, lanes: 32 });
        let limits = Limits::default().choosing(|kernels| kernels.cooperative = cooperative);
        let with = |limits: &Limits, image, [batch, m, n, k]: [u64; 4]| {
            let named = limits.kernels.products.of(ShapeClass::of_convolution(batch, [m, n, k]));
            let tiled = &conv::TILED64.kernels(conv::Pass::Image)[0];
            let choice = convolution((tiled, image), (Sizes { batch, m, n, k }, k), named, limits)
                .map(|c| (c.kernel.name, c.tile));
            choice.map(|(name, tile)| (name.into_owned(), tile))
        };
        let tile = |sizes| with(&limits, DType::F32, sizes).map(|(_, tile)| tile);
        assert_eq!(
            tile([1, 64, 1 << 16, 576]),
            Some((64, 64)),
            "half of a large block's rows would be empty"
        );
        assert_eq!(tile([1, 128, 1 << 16, 576]), Some((128, 128)));
        assert_eq!(tile([1, 192, 1 << 16, 576]), Some((128, 128)), "a quarter");
        assert_eq!(tile([1, 512, 512, 4352]), Some((128, 128)), "enough in pieces");
        assert_eq!(tile([1, 512, 512, 576]), Some((64, 64)), "too few large blocks");
        assert_eq!(tile([16, 512, 512, 576]), Some((128, 128)), "groups make more");
        for few in [[1, 15, 4096, 576], [1, 64, 15, 576], [1, 64, 4096, 15]] {
            assert_eq!(tile(few), None, "matrices of mostly zeros: {few:?}");
        }
        let names =
            [DType::F32, DType::F16].map(|image| with(&limits, image, [1, 64, 4096, 576]).expect("one").0);
        assert_eq!(names, ["conv_cooperative16", "conv_cooperative16_f16"]);
        assert_eq!(with(&limits, DType::BF16, [1, 64, 4096, 576]), None);
        assert_eq!(with(&Limits::default(), DType::F32, [1, 64, 4096, 576]), None);
        for block in &BLOCKS {
            let named = limits.choosing(|kernels| kernels.products = Products::all(block.name));
            assert_eq!(with(&named, DType::F32, [1, 16, 16, 16]).map(|(_, tile)| tile), Some(block.tile(16)));
        }
        let named = limits.choosing(|kernels| kernels.products = Products::all("tiled64"));
        let slower = limits.choosing(|kernels| kernels.cooperative_convolutions = false);
        for other in [named, slower] {
            assert_eq!(with(&other, DType::F32, [1, 64, 4096, 576]), None);
        }
    }

    #[test]
    fn unsupported_blocks_are_not_offered() {
        for (side, lanes) in [(8, 8), (8, 16), (8, 32), (8, 64), (16, 16), (16, 32), (16, 64)] {
            let matrices = Cooperative { side, lanes };
            assert!(BLOCKS[0].of(matrices).is_some() && BLOCKS[2].of(matrices).is_some(), "{matrices}");
        }
        assert!(BLOCKS[1].of(Cooperative { side: 8, lanes: 8 }).is_none());
        assert!(BLOCKS[0].of(Cooperative { side: 16, lanes: 8 }).is_none());
    }
}
