//! How a convolution is computed: by cooperative matrices where they are proved and of use, else by a row of the table.

use super::of_image;
use super::variants::{Case, MAX_PARTS, Parts, Pass, TILED64, Tiling, Variant, choose};
use crate::kernels::matmul::Sizes;
use crate::kernels::{Kernel, Site, cooperative};

pub(super) struct Choice {
    /// Reads images of the type that there is.
    pub(super) kernel: Kernel,
    /// Beside those that say what is read.
    pub(super) constants: Vec<(&'static str, f64)>,
    pub(super) tiling: Tiling,
    /// As in [`Variant`].
    pub(super) packed_at_once: Option<usize>,
}

/// Parts of a weight's gradient by cooperative matrices: half as many as in tiles of 64, whose sums take longer.
const PARTS: Parts = Parts { wanted: 1 << 9, smallest: 256 };

impl Choice {
    /// Of a convolution for which `kernel` gives the kernel of each variant, or cooperative matrices in place of tiles of 64.
    pub(super) fn of(site: &Site, case: &Case, kernel: impl Fn(&Variant) -> Kernel) -> Self {
        let Case { pass, groups, m, columns: n, steps: k, .. } = *case;
        // Parts are blocks of their own: large ones may fill an adapter where the gradient itself is small.
        let parts = if pass == Pass::Weight { k.div_ceil(PARTS.smallest).min(MAX_PARTS) } else { 1 };
        let image = site.inputs[0].1;
        let sizes = Sizes { batch: groups * parts, m, n, k };
        if let Some(choice) = cooperative::convolution(&kernel(&TILED64), image, sizes, site.limits) {
            let cooperative::Choice { kernel, tile, constants } = choice;
            return Self { kernel, constants, tiling: Tiling { tile, parts: PARTS }, packed_at_once: None };
        }
        let variant = choose(case, site.limits);
        let kernel = of_image(kernel(variant), image);
        let (tiling, packed_at_once) = (variant.tiling(pass), variant.packed_at_once);
        Self { kernel, constants: Vec::new(), tiling, packed_at_once }
    }
}
