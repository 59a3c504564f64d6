//! Rounding of updated weights to 16 bits.

use super::elementwise::{BF16_MAX, exponent, pcg4d};
use crate::dtype::DType;
use crate::graph::Stored;

/// Rounds an updated weight, `memory[0]`, to its storage type. The step scalars in `memory[2]` seed
/// stochastic rounding.
pub(super) fn store(held: DType, stored: Stored, memory: &mut [Vec<f64>]) {
    let scalars: Vec<u32> = memory[2].iter().map(|&word| word as u32).collect();
    if !held.is_half() {
        return;
    }
    for (i, x) in memory[0].iter_mut().enumerate() {
        let drawn = match stored {
            Stored::Nearest => None,
            Stored::Stochastic(key) => {
                let [step, low, high] = [3, 4, 5].map(|at| scalars[at]);
                Some(pcg4d([(i / 4) as u32, key | 1 << 31, step ^ high, low])[i % 4])
            }
        };
        *x = rounded(held, *x, drawn);
    }
}

/// Rounds to nearest, ties to even, or stochastically with 32 random bits. The probability to round up is the
/// fraction of a step in those bits of an `f32` of this size that the format drops. Beyond the largest number
/// the result is infinite.
fn rounded(held: DType, x: f64, drawn: Option<u32>) -> f64 {
    let (digits, lowest, largest) =
        if held == DType::F16 { (10, -14, 65_504.0) } else { (7, -126, BF16_MAX) };
    if x == 0.0 || !x.is_finite() {
        return x;
    }
    let at = |lowest: i32| exponent(x).max(lowest);
    let step = 2f64.powi(at(lowest) - digits);
    let steps = x.abs() / step;
    let whole = match drawn {
        None => steps.round_ties_even(),
        Some(drawn) => {
            let lost = (at(lowest) - at(-126) + 23 - digits).min(31);
            let all = 2f64.powi(lost);
            let share = ((steps - steps.floor()) * all).floor();
            steps.floor() + f64::from(u8::from(share + f64::from(drawn >> (32 - lost)) >= all))
        }
    };
    let result = (whole * step).copysign(x);
    if result.abs() > largest { f64::INFINITY.copysign(x) } else { result }
}
