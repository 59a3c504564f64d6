//! Selection of a convolution's kernel: cooperative matrices if the limits have them and the sizes suit them,
//! else a variant of the table.

use super::of_image;
use super::variants::{Case, Parts, Pass, TILED64, Tiling, Variant, choose};
use crate::kernels::matmul::Sizes;
use crate::kernels::{Kernel, Site, cooperative};

pub(super) struct Choice {
    /// Kernel for the element type of the image.
    pub(super) kernel: Kernel,
    /// Constants, in addition to those of the source.
    pub(super) constants: Vec<(&'static str, f64)>,
    pub(super) tiling: Tiling,
    /// As in [`Variant`].
    pub(super) packed_at_once: Option<usize>,
}

/// Split of a weight gradient by cooperative matrices: half as many parts as with `TILED64`, whose sums take
/// longer.
const PARTS: Parts = Parts { wanted: 1 << 9, smallest: 256, most: 256 };

impl Choice {
    /// Selects for a convolution; `kernel` returns the kernel of a variant. Cooperative matrices replace
    /// `TILED64`.
    pub(super) fn of(site: &Site, case: &Case, kernel: impl Fn(&Variant) -> Kernel) -> Self {
        let Case { pass, groups, m, columns: n, steps: k, divisible, .. } = *case;
        // Parts count as blocks: large blocks may fill an adapter even if the gradient is small.
        let parts = if pass == Pass::Weight { k.div_ceil(PARTS.smallest).min(PARTS.most) } else { 1 };
        let image = site.inputs[0].1;
        let sizes = Sizes { batch: groups * parts, m, n, k };
        let named = site.limits.kernels.products.of(case.class());
        if let Some(choice) =
            cooperative::convolution((&kernel(&TILED64), image), (sizes, divisible), named, site.limits)
        {
            let cooperative::Choice { kernel, tile, threads, constants } = choice;
            let tiling = Tiling { tile, threads, parts: PARTS };
            return Self { kernel, constants, tiling, packed_at_once: None };
        }
        let variant = choose(case, site.limits);
        let kernel = of_image(kernel(variant), image);
        let (tiling, packed_at_once) = (variant.tiling(pass, site.limits.class), variant.packed_at_once);
        Self { kernel, constants: Vec::new(), tiling, packed_at_once }
    }
}
