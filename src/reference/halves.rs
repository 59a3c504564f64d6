//! Rounding of updated weights to 16 bits, and what corrects it.

use super::elementwise::{BF16_MAX, exponent, pcg4d};
use crate::dtype::DType;
use crate::graph::Stored;

/// Prepares the weight `memory[0]` for its update: one with corrections, which are last, has 24 bits.
pub(super) fn load(stored: Stored, memory: &mut [Vec<f64>]) {
    if let (Stored::Corrected, [weight, .., words]) = (stored, memory) {
        *weight = corrected(weight, words);
    }
}

/// Returns numbers of 24 bits: a `bf16`, and a byte of `words` that counts 1/256 of the distance to the next.
pub(crate) fn corrected(weight: &[f64], words: &[f64]) -> Vec<f64> {
    let one = |(i, x): (usize, &f64)| {
        let byte = i32::from((words[i / 4] as u32 >> (8 * (i % 4))) as u8 as i8);
        let magnitude = (x.abs() as f32).to_bits() as i32 + 256 * byte;
        if x.is_finite() { f64::from(f32::from_bits(magnitude.max(0) as u32)).copysign(*x) } else { *x }
    };
    weight.iter().enumerate().map(one).collect()
}

/// Rounds an updated weight, `memory[0]`, to its storage type. The step scalars in `memory[2]` and the number of each element, of
/// which `first` is that of the first one here, seed stochastic rounding.
pub(super) fn store(held: DType, (stored, first): (Stored, u64), memory: &mut [Vec<f64>]) {
    let scalars: Vec<u32> = memory[2].iter().map(|&word| word as u32).collect();
    if !held.is_half() {
        return;
    }
    if let (Stored::Corrected, [weight, .., words]) = (stored, &mut *memory) {
        words.fill(0.0);
        for (i, x) in weight.iter_mut().enumerate() {
            let byte;
            (*x, byte) = split(*x);
            words[i / 4] += f64::from(u32::from(byte as u8) << (8 * (i % 4)));
        }
        return;
    }
    for (i, x) in memory[0].iter_mut().enumerate() {
        let drawn = match stored {
            Stored::Nearest | Stored::Corrected => None,
            Stored::Stochastic(key) => {
                let [step, low, high] = [3, 4, 5].map(|at| scalars[at]);
                Some(pcg4d([((first + i as u64) / 4) as u32, key | 1 << 31, step ^ high, low])[i % 4])
            }
        };
        *x = rounded(held, *x, drawn);
    }
}

/// Rounds to 24 bits and returns the nearest `bf16`, of two the one away from zero, and what is missing.
fn split(x: f64) -> (f64, i8) {
    if !x.is_finite() {
        return (x, 0);
    }
    let bits = (to_digits(15, -126, x, None).abs() as f32).to_bits() >> 8;
    let upper = (bits + 0x80) >> 8;
    let half = f64::from(f32::from_bits(upper << 16)).copysign(x);
    (half, bits.wrapping_sub(upper << 8) as u8 as i8)
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
    let result = to_digits(digits, lowest, x, drawn);
    if result.abs() > largest { f64::INFINITY.copysign(x) } else { result }
}

/// Rounds to `digits` binary digits after the first, or to fewer below 2^`lowest`.
fn to_digits(digits: i32, lowest: i32, x: f64, drawn: Option<u32>) -> f64 {
    if x == 0.0 {
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
    (whole * step).copysign(x)
}
