//! The table of kernel variants for convolutions and their gradients: what each requires of the adapter, and
//! where it is preferred.

use super::{normed, of_two_sources, with_bias};
use crate::graph::{Activation, Source};
use crate::kernels::Kernel;
use crate::kernels::grid::fold;
use crate::kernels::needs::Needs;
use crate::kernels::split;
use crate::limits::{AdapterClass, Limits, ShapeClass};

/// What is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// A convolution, or the gradient of its image: rows are result channels, columns result pixels, steps
    /// pairs of a source channel and a tap.
    Image,
    /// The gradient of the weight: rows are result channels, columns pairs of a source channel and a tap,
    /// steps result pixels.
    Weight,
}

/// A convolution or one of its gradients as matrix products, one for each group.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// What is computed.
    pub pass: Pass,
    /// Groups of channels.
    pub groups: u64,
    /// Rows: result channels of a group.
    pub m: u64,
    /// Source channels of a group.
    pub kc: u64,
    /// Columns. For the image gradient of a strided convolution, those of the first phase, which is the
    /// largest.
    pub columns: u64,
    /// Steps of the inner dimension.
    pub steps: u64,
    /// Steps that may be split into pieces on GPUs: all, or none if the result takes several launches, one for each
    /// phase of the stride, or has parts of its own.
    pub divisible: u64,
}

/// Below this many channels in a group a tile would be mostly empty.
const FEW_CHANNELS: u64 = 8;

impl Case {
    /// Returns the class that its shape belongs to.
    pub(super) fn class(&self) -> ShapeClass {
        ShapeClass::of_convolution(self.groups, [self.m, self.columns, self.steps])
    }

    fn has_few_channels(&self) -> bool {
        self.groups > 1 && self.m.min(self.kc) < FEW_CHANNELS
    }
}

/// How a result is divided among workgroups.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tiling {
    /// Rows and columns per workgroup; 1 × 1: one thread per element.
    pub(super) tile: (u64, u64),
    /// Threads of a workgroup.
    pub(super) threads: u32,
    pub(super) parts: Parts,
}

/// How a weight gradient, a long sum over all pixels, is split into parts; each needs a workspace of one
/// gradient.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    /// Number of tiles that fills an adapter.
    pub(super) wanted: u64,
    /// Minimum pixels of a part.
    pub(super) smallest: u64,
    /// Maximum parts, unless parts would exceed `MAX_PART` pixels.
    pub(super) most: u64,
}

/// Split by one thread per element on GPUs.
const GPU_DIRECT: Parts = Parts { wanted: 1 << 17, smallest: 64, most: 2048 };

/// Maximum pixels that one thread sums over: below the 65,535 iterations at which lavapipe ends loops.
const MAX_PART: u64 = 32_768;

/// A kernel variant for convolutions. All variants read images of 16 and 32 bits, apply a batch norm or
/// concatenate two images while reading, add a bias and support epilogues.
pub struct Variant {
    /// Name for [`Products`](crate::limits::Products) and reports.
    pub name: &'static str,
    /// Kernel of a convolution or of its image gradient, for a plain source without bias.
    image: Kernel,
    /// Kernel of the weight gradient, for a plain source.
    weight: Kernel,
    /// Rows and columns per workgroup of an image, and of a weight gradient; 1 × 1: one thread per element.
    tiles: [(u64, u64); 2],
    parts: Parts,
    /// Source channels per loop iteration, `AT_ONCE` of `shaders/conv/unroll.wgsl`, if the kernel `conv_pack`
    /// reorders the weights first. `None`: weights are read as they are stored.
    pub(super) packed_at_once: Option<usize>,
    /// Whether it supports groups of few channels.
    few: bool,
    needs: Needs,
    /// Whether it is preferred to the variants after it.
    preferred: fn(AdapterClass) -> bool,
}

/// Tiles of 64 x 64 in workgroup memory, and the operands of cooperative matrices.
pub(in crate::kernels) const TILED64: Variant = Variant {
    name: "tiled64",
    image: Kernel::new("conv_tiled64", "tile/tile", &["STORE_LANES"], &[1, 2, 3], 64, &[&[]]),
    weight: Kernel::new("conv_weight_tiled64", "tile/tile", &["WEIGHT"], &[1, 2, 3], 64, &[&[]]),
    tiles: [(64, 64); 2],
    parts: Parts { wanted: 1 << 10, smallest: 256, most: 512 },
    packed_at_once: None,
    few: false,
    needs: Needs::TILE,
    preferred: |class| !class.is_cpu(),
};

/// Lanes of a subgroup read weights, or gradients, and share them by broadcast.
const PACKED: Variant = Variant {
    name: "packed",
    image: Kernel::new("conv_cpu", "conv/cpu", &["STORE_LANES"], &[1, 2, 3], 8, &[&[]]),
    weight: Kernel::new("conv_weight_cpu", "conv/weight_cpu", &["WEIGHT"], &[1, 2, 3], 8, &[&[]]),
    tiles: [(16, 64), (32, 32)],
    parts: Parts { wanted: 32, smallest: 512, most: 256 },
    packed_at_once: Some(2),
    few: false,
    needs: Needs::SHARING,
    preferred: |class| class.is_cpu(),
};

/// All variants. The first one that the class prefers and that can compute the convolution is selected.
pub static VARIANTS: [Variant; 4] = [
    PACKED,
    // The same for smaller subgroups.
    Variant {
        name: "packed4",
        image: Kernel::new("conv_cpu4", "conv/cpu", &["STORE_LANES", "LANES4"], &[1, 2, 3], 8, &[&[]]),
        weight: Kernel::new(
            "conv_weight_cpu4",
            "conv/weight_cpu",
            &["WEIGHT", "LANES4"],
            &[1, 2, 3],
            8,
            &[&[]],
        ),
        tiles: [(16, 64), (32, 32)],
        parts: Parts { wanted: 32, smallest: 512, most: 256 },
        packed_at_once: Some(1),
        few: false,
        needs: Needs { subgroup: 4, ..Needs::SHARING },
        preferred: |class| class.is_cpu(),
    },
    TILED64,
    // No shared loads.
    Variant {
        name: "direct",
        image: Kernel::new("conv_direct", "conv/direct", &[], &[1, 2, 3], 64, &[&[]]),
        weight: Kernel::new("conv_weight_direct", "conv/direct", &["WEIGHT"], &[1, 2, 3], 64, &[&[]]),
        tiles: [(1, 1); 2],
        parts: Parts { wanted: 1 << 14, smallest: 64, most: 256 },
        packed_at_once: None,
        few: true,
        needs: Needs::NOTHING,
        preferred: |_| true,
    },
];

impl Variant {
    /// Returns the variant of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        VARIANTS.iter().find(|row| row.name == name)
    }

    /// Whether an adapter can run it, regardless of what its class prefers.
    pub fn runs_on(&self, limits: &Limits) -> bool {
        self.needs.met_by(limits)
    }

    /// Whether it can compute this convolution, on an adapter that can run it.
    pub fn computes(&self, case: &Case) -> bool {
        self.few || !case.has_few_channels()
    }

    /// Returns all its kernels, for images of 32 bits.
    pub fn kernels(&self, pass: Pass) -> Vec<Kernel> {
        let sources = [Source::Tensor, Source::Normed(Activation::None), Source::Joined];
        match pass {
            Pass::Image if self.packed_at_once.is_some() => {
                sources.map(|source| self.image(false, source)).to_vec()
            }
            Pass::Image => {
                [false, true].into_iter().flat_map(|b| sources.map(|source| self.image(b, source))).collect()
            }
            Pass::Weight => [false, true].map(|normed| self.weight(normed)).to_vec(),
        }
    }

    /// Returns the kernel of a convolution or of its image gradient. If weights are packed, so is the bias.
    pub(super) fn image(&self, biased: bool, source: Source) -> Kernel {
        let kernel = with_bias(&self.image, biased && self.packed_at_once.is_none());
        match source {
            Source::Tensor => kernel,
            Source::Normed(_) => normed(&kernel),
            Source::Joined => of_two_sources(&kernel),
        }
    }

    /// Returns the kernel of the weight gradient.
    pub(super) fn weight(&self, through_norm: bool) -> Kernel {
        if through_norm { normed(&self.weight) } else { self.weight.clone() }
    }

    pub(super) fn tiling(&self, pass: Pass, class: AdapterClass) -> Tiling {
        let tile = self.tiles[usize::from(pass == Pass::Weight)];
        let alone = tile == (1, 1) && !class.is_cpu();
        let parts = if alone { GPU_DIRECT } else { self.parts };
        Tiling { tile, threads: self.image.workgroup, parts }
    }
}

impl Tiling {
    /// Returns the number of tiles along rows and columns.
    fn tiles(&self, case: &Case) -> [u64; 2] {
        let (rows, columns) = self.tile;
        [case.m.div_ceil(rows), case.columns.div_ceil(columns)]
    }

    /// Returns the steps of a part of the sum; the last part may be shorter. Only weight gradients are split.
    pub(super) fn part(&self, case: &Case) -> u64 {
        if case.pass == Pass::Image {
            return case.steps;
        }
        let [rows, columns] = self.tiles(case);
        let needed = case.steps.div_ceil(MAX_PART);
        let wanted = self.parts.wanted.div_ceil(rows * columns * case.groups);
        let parts =
            wanted.min(case.steps.div_ceil(self.parts.smallest)).min(self.parts.most).max(needed).max(1);
        case.steps.div_ceil(parts)
    }

    /// Returns the number of parts.
    pub(super) fn parts(&self, case: &Case) -> u64 {
        case.steps.div_ceil(self.part(case).max(1)).max(1)
    }

    /// Returns the pieces of the steps of a result on GPUs; each needs a workspace of one result.
    pub(super) fn pieces(&self, case: &Case, class: AdapterClass) -> u64 {
        let work = (self.work(case), self.threads);
        if self.tile == (1, 1) { 1 } else { split::pieces(class, work, case.divisible) }
    }

    /// Returns the number of workgroups, or with 1 × 1 tiles of threads.
    fn work(&self, case: &Case) -> u64 {
        let [rows, columns] = self.tiles(case);
        rows * columns * case.groups * self.parts(case)
    }

    /// Returns the grid of a launch for `pieces` of the steps and the two words after the grid's width: tiles along rows (with 1 × 1
    /// tiles, threads along x) and tiles along columns.
    pub(super) fn grid(
        &self,
        case: &Case,
        pieces: u64,
        kernel: &Kernel,
        limits: &Limits,
    ) -> ([u32; 3], [u32; 2]) {
        let [rows, columns] = self.tiles(case).map(|n| n as u32);
        if self.tile != (1, 1) {
            return (fold(self.work(case) * pieces, limits.max_workgroups), [rows, columns]);
        }
        let grid = fold(self.work(case).div_ceil(u64::from(kernel.workgroup)), limits.max_workgroups);
        (grid, [grid[0] * kernel.workgroup, columns])
    }
}

/// Returns the variant for a convolution: the one that the limits name if it can compute it, else the first
/// preferred one that can.
pub fn choose(case: &Case, limits: &Limits) -> &'static Variant {
    let steps = case.steps.min(if case.pass == Pass::Weight { MAX_PART } else { u64::MAX });
    let can = |row: &&Variant| row.runs_on(limits) && row.computes(case) && row.needs.ends(steps, limits);
    let named = limits.kernels.products.of(case.class()).and_then(Variant::named).filter(can);
    let preferred = || VARIANTS.iter().filter(can).find(|row| (row.preferred)(limits.class));
    // The last variant computes every convolution on every adapter.
    named.or_else(preferred).unwrap_or(&VARIANTS[VARIANTS.len() - 1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Products;

    fn image(m: u64, kc: u64, columns: u64) -> Case {
        Case { pass: Pass::Image, groups: 1, m, kc, columns, steps: kc * 9, divisible: kc * 9 }
    }

    fn weight(m: u64, kc: u64, pixels: u64) -> Case {
        Case { pass: Pass::Weight, groups: 1, m, kc, columns: kc * 9, steps: pixels, divisible: 0 }
    }

    fn chosen(preset: &str, case: &Case) -> &'static str {
        choose(case, &Limits::named(preset).expect("a preset")).name
    }

    #[test]
    fn each_adapter_class_has_its_preferred_rows() {
        for large in [image(256, 256, 12_544), weight(256, 256, 12_544)] {
            let of = |preset| chosen(preset, &large);
            assert_eq!(
                ["lavapipe", "swiftshader", "webgpu", "nvidia"].map(of),
                ["packed", "packed4", "tiled64", "tiled64"]
            );
        }
        let few = Case { groups: 64, ..image(4, 4, 12_544) };
        assert!(Limits::NAMES.iter().all(|preset| chosen(preset, &few) == "direct"));
    }

    #[test]
    fn parts_of_a_weight_gradient_cover_every_pixel() {
        for row in &VARIANTS {
            for pixels in [1, 63, 4096, 100_000, 40_000_000] {
                let case = weight(24, 3, pixels);
                let tiling = row.tiling(Pass::Weight, AdapterClass::Discrete);
                let (part, parts) = (tiling.part(&case), tiling.parts(&case));
                assert!(
                    part <= MAX_PART && part * parts >= pixels && part * (parts - 1) < pixels,
                    "{}",
                    row.name
                );
            }
        }
    }

    #[test]
    fn named_variant_is_used_where_it_can_run() {
        let limits = |name| {
            Limits::named("lavapipe")
                .expect("a preset")
                .choosing(|kernels| kernels.products = Products::all(name))
        };
        for case in [image(3, 3, 5), weight(3, 3, 5)] {
            for row in &VARIANTS {
                assert_eq!(choose(&case, &limits(row.name)).name, row.name);
            }
            assert_eq!(choose(&case, &limits("cpu_any")).name, "packed", "no way to compute convolutions");
            let small = Limits { max_workgroup_bytes: 4096, ..limits("tiled64") };
            assert_eq!(choose(&case, &small).name, "packed");
        }
        assert_eq!(choose(&Case { groups: 2, ..image(3, 3, 5) }, &limits("tiled64")).name, "direct");
    }

    #[test]
    fn weight_packing_matches_the_kernel_sources() {
        for row in &VARIANTS {
            for kernel in row.kernels(Pass::Image) {
                let text = kernel.source();
                let told = row.packed_at_once.map(|n| format!("const AT_ONCE = {n}u;"));
                assert!(
                    told.map_or(!text.contains("AT_ONCE"), |told| text.contains(&told)),
                    "{}",
                    kernel.name
                );
            }
        }
    }

    #[test]
    fn names_are_unique_and_the_last_row_computes_everything() {
        let names: std::collections::BTreeSet<_> = VARIANTS.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), VARIANTS.len());
        let last = &VARIANTS[VARIANTS.len() - 1];
        assert!(last.few && last.needs.subgroup + last.needs.workgroup_bytes == 0);
        assert!((last.preferred)(AdapterClass::Cpu));
    }
}
