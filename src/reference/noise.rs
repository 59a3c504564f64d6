//! Random relative changes as small as rounding errors. Their effect on a result measures how well the result
//! is conditioned in arithmetic of low precision.

use crate::graph::{Op, Reduction, Results};
use crate::random::mix;

/// Multiplies each number by a random factor of 1 ± `size`, and flushes it to 0 where `f32` underflows. Equal
/// numbers at the same index change equally, so that a recomputation gives the same result.
///
/// With an even seed numbers are rounded to `f32`, equal numbers change equally at any index, and every other
/// number is only rounded. So numbers that tie on a device, such as a number and its sum with a much smaller
/// one, may tie here too.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Noise {
    pub seed: u64,
    pub size: f64,
}

impl Noise {
    /// Perturbs each number.
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

    /// Perturbs the results of an operation that rounds.
    pub(super) fn change_results(self, op: &Op, results: &mut [Vec<f64>]) {
        if rounds(op) {
            results.iter_mut().for_each(|numbers| self.change(numbers));
        }
    }
}

/// Whether an operation computes numbers, rather than moves, selects or counts them.
fn rounds(op: &Op) -> bool {
    if let Op::Binary(f) = op {
        return f.function().results == Results::Rounded;
    }
    !matches!(
        op,
        Op::Mask(_)
            | Op::Quantise { .. }
            | Op::Reduce { kind: Reduction::Max, .. }
            | Op::Reshape(_)
            | Op::Permute(_)
            | Op::Expand(_)
            | Op::Slice { .. }
            | Op::Stride { .. }
            | Op::Place { .. }
            | Op::Iota { .. }
            | Op::Gather { .. }
            | Op::ArgSort { .. }
            | Op::Detach
            | Op::SumRanks { .. }
            | Op::Concat { .. }
            | Op::Cast(_)
            | Op::Copy
            | Op::Fill { .. }
            | Op::LossScaleSeed { .. }
            | Op::NotFinite
            | Op::MaxPool2d(_)
            | Op::Embedding
            | Op::Fused(_)
    )
}
