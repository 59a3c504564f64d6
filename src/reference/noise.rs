//! Relative changes as small as rounding errors, which tell how well a result is determined in arithmetic of few digits.

use crate::graph::{Binary, Op, Reduction};
use crate::random::mix;

/// Each number times 1 ± `size`, by chance, and 0 where `f32` underflows. The same number at the same place changes alike, so
/// that what is computed again comes out the same. With an even seed numbers are `f32`, change alike at any place, and every
/// other one is only rounded: what ties on a device, as a number does with its sum with a much smaller one, may tie here.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Noise {
    pub seed: u64,
    pub size: f64,
}

impl Noise {
    /// Changes each number.
    pub(super) fn change(self, numbers: &mut [f64]) {
        if self.size == 0.0 {
            return;
        }
        let ties = self.seed.is_multiple_of(2);
        for (i, x) in numbers.iter_mut().enumerate() {
            let place = if ties { 0 } else { (i as u64) << 20 };
            if ties {
                *x = f64::from(*x as f32);
            }
            let drawn = mix(x.to_bits() ^ mix(self.seed.wrapping_add(place)));
            if !ties || drawn.is_multiple_of(2) {
                *x *= 1.0 + self.size * (drawn as i64 as f64 / 2f64.powi(63));
            }
            if ties {
                *x = f64::from(*x as f32);
            }
            if x.abs() < f64::from(f32::MIN_POSITIVE) {
                *x = 0.0;
            }
        }
    }

    /// Changes the results of an operation that rounds.
    pub(super) fn change_results(self, op: &Op, results: &mut [Vec<f64>]) {
        if rounds(op) {
            results.iter_mut().for_each(|numbers| self.change(numbers));
        }
    }
}

/// Whether an operation computes numbers, as opposed to moving, choosing or counting them.
fn rounds(op: &Op) -> bool {
    !matches!(
        op,
        Op::Mask(_)
            | Op::Binary(Binary::Equal | Binary::Greater | Binary::Max | Binary::Min)
            | Op::Reduce { kind: Reduction::Max, .. }
            | Op::Reshape(_)
            | Op::Permute(_)
            | Op::Expand(_)
            | Op::Slice { .. }
            | Op::Pad { .. }
            | Op::Concat { .. }
            | Op::Cast(_)
            | Op::Copy
            | Op::Fill { .. }
            | Op::LossScaleSeed { .. }
            | Op::NotFinite { .. }
            | Op::MaxPool2d(_)
            | Op::Embedding
            | Op::Chain(_)
    )
}
