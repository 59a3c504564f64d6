//! How a convolution is computed: by cooperative matrices where they are proved and of use, else by a row of the table.

use super::super::products::Sizes;
use super::super::{Site, cooperative};
use super::rows::{Case, MAX_PARTS, Parts, Pass, Row, Tiling, choose};
use crate::dtype::DType;
use crate::kernels::{Kernel, Prelude, of_half_image};

pub(super) struct Way {
    /// Reads images of the type that there is.
    pub(super) kernel: &'static Kernel,
    /// Beside those that say what is read.
    pub(super) constants: Vec<(&'static str, f64)>,
    pub(super) tiling: Tiling,
    /// As in [`Row`].
    pub(super) packed_at_once: Option<usize>,
}

/// Parts of a weight's gradient by cooperative matrices: half as many as in tiles of 64, whose sums take longer.
const PARTS: Parts = Parts { wanted: 1 << 9, smallest: 256 };

impl Way {
    /// Of a convolution for which each row has a kernel, and cooperative matrices one made from `tiled`.
    pub(super) fn of(
        site: &Site,
        case: &Case,
        tiled: &'static Kernel,
        of_row: impl Fn(&'static Row) -> &'static Kernel,
    ) -> Self {
        let Case { pass, groups, m, columns: n, steps: k, .. } = *case;
        // Parts are blocks of their own: large ones may fill an adapter where the gradient itself is small.
        let parts = if pass == Pass::Weight { k.div_ceil(PARTS.smallest).min(MAX_PARTS) } else { 1 };
        let image = site.inputs[0].1;
        let sizes = Sizes { batch: groups * parts, m, n, k };
        if let Some(choice) = cooperative::convolution(tiled, image, sizes, site.limits) {
            let cooperative::Choice { kernel, tile, constants } = choice;
            return Self { kernel, constants, tiling: Tiling { tile, parts: PARTS }, packed_at_once: None };
        }
        let row = choose(case, site.limits);
        let kernel = match image {
            DType::F16 => of_half_image(of_row(row), Prelude::F16),
            DType::BF16 => of_half_image(of_row(row), Prelude::Bf16),
            _ => of_row(row),
        };
        Self { kernel, constants: Vec::new(), tiling: row.tiling(pass), packed_at_once: row.packed_at_once }
    }
}
