//! Element-wise functions, from their definitions.

use super::{Array, offsets};
use crate::dtype::DType;
use crate::graph::{Binary, StepScalars, Unary};
use crate::shape::Shape;

pub(super) fn unary_grad(f: Unary, s: Array, dy: Array) -> Vec<f64> {
    s.data.iter().zip(dy.data).map(|(&s, &dy)| dy * f.slope(s)).collect()
}

/// Returns one bit for each element, 32 to a word, set where the slope is 1.
pub(super) fn mask(f: Unary, s: &[f64]) -> Vec<f64> {
    let bit = |(i, &s): (usize, &f64)| u32::from(f.slope(s) == 1.0) << i;
    s.chunks(32).map(|part| f64::from(part.iter().enumerate().map(bit).sum::<u32>())).collect()
}

pub(super) fn mask_grad(f: Unary, bits: &[f64], dy: &[f64]) -> Vec<f64> {
    let other = if let Unary::LeakyRelu(slope) = f { f64::from(slope) } else { 0.0 };
    let slope = |i: usize| if bits[i / 32] as u32 >> (i % 32) & 1 == 1 { 1.0 } else { other };
    dy.iter().enumerate().map(|(i, dy)| dy * slope(i)).collect()
}

pub(super) fn binary(f: Binary, a: Array, b: Array, out: Shape) -> Vec<f64> {
    let value = f.function().value;
    let places = |x: &Array| offsets(out.dims(), &x.shape.broadcast_strides(&out));
    places(&a).into_iter().zip(places(&b)).map(|(i, j)| value(a.data[i], b.data[j])).collect()
}

pub(super) fn cast(x: Array, to: DType) -> Vec<f64> {
    match to {
        // `as` truncates, saturates, and maps NaN to 0.
        DType::U32 => x.data.iter().map(|&v| f64::from(v as u32)).collect(),
        // Nothing is cast to codes.
        DType::F32 | DType::Int8 | DType::Int4 | DType::Nf4 | DType::Uint8 | DType::Uint4 => {
            x.data.iter().map(|&v| f64::from(v as f32)).collect()
        }
        DType::F16 => x.data.iter().map(|&v| to_format(v, 10, -14, 65_504.0)).collect(),
        DType::BF16 => x.data.iter().map(|&v| to_format(v, 7, -126, BF16_MAX)).collect(),
    }
}

/// `(2 - 2⁻⁷) 2¹²⁷`
pub(super) const BF16_MAX: f64 = 3.389_531_389_251_535_5e38;

/// Rounds to nearest, ties to even, in a format with `digits` fraction bits and the smallest normal number
/// `2^lowest`; saturates at `largest`. Every step but that rounding is exact in `f64`.
fn to_format(v: f64, digits: i32, lowest: i32, largest: f64) -> f64 {
    if v.is_nan() {
        return v;
    }
    let limited = v.clamp(-2.0 * largest, 2.0 * largest);
    let exponent = if limited == 0.0 { lowest } else { exponent(limited).max(lowest) };
    let step = 2f64.powi(exponent - digits);
    ((limited / step).round_ties_even() * step).clamp(-largest, largest)
}

/// Returns `⌊log₂ |v|⌋` of a number that is normal in `f64`.
pub(super) fn exponent(v: f64) -> i32 {
    (v.to_bits() >> 52 & 0x7ff) as i32 - 1023
}

/// Whether dropout with probability `p` keeps element `i`, for these words of the step scalars.
pub fn dropout_keeps(i: usize, [key, every]: [u32; 2], scalars: [u32; StepScalars::WORDS], p: f64) -> bool {
    let [_, _, _, step, low, high, ..] = scalars;
    let drawn = pcg4d([(i / 4) as u32, key, (step / every) ^ high, low])[i % 4];
    u64::from(drawn) >= (p * 4_294_967_296.0) as u64
}

/// Whether attention's dropout keeps the weight of key `col` in row `row = (b heads + head) queries + query`:
/// four neighbouring keys share a draw.
pub fn attention_keeps(row: usize, col: usize, key: u32, scalars: [u32; StepScalars::WORDS], p: f64) -> bool {
    let [_, _, _, step, low, high, ..] = scalars;
    let stream = low ^ key.wrapping_mul(0x9e37_79b9);
    let drawn = pcg4d([row as u32, (col / 4) as u32, step ^ high, stream])[col % 4];
    u64::from(drawn) >= (p * 4_294_967_296.0) as u64
}

/// Jarzynski & Olano, "Hash Functions for GPU Rendering" (JCGT 2020), section 4.
pub(super) fn pcg4d(seed: [u32; 4]) -> [u32; 4] {
    let mut v = seed.map(|x| x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
    let mix = |v: &mut [u32; 4]| {
        v[0] = v[0].wrapping_add(v[1].wrapping_mul(v[3]));
        v[1] = v[1].wrapping_add(v[2].wrapping_mul(v[0]));
        v[2] = v[2].wrapping_add(v[0].wrapping_mul(v[1]));
        v[3] = v[3].wrapping_add(v[1].wrapping_mul(v[2]));
    };
    mix(&mut v);
    v = v.map(|x| x ^ (x >> 16));
    mix(&mut v);
    v
}

/// The elements as [`Op::Quantise`](crate::graph::Op::Quantise) stores them, decoded.
pub(super) fn quantise(x: Array, scalars: Array, dtype: DType, key: u32) -> Vec<f64> {
    let [_, _, _, step, low, high, ..] = words_of(scalars);
    let elements: Vec<f32> = x.data.iter().map(|&v| v as f32).collect();
    let draw = |i: usize| pcg4d([(i / 4) as u32, key, step ^ high, low])[i % 4];
    dtype.stochastic(&elements, draw).into_iter().map(f64::from).collect()
}

fn words_of(scalars: Array) -> [u32; StepScalars::WORDS] {
    let mut words = [0; StepScalars::WORDS];
    words.iter_mut().zip(scalars.data).for_each(|(word, &value)| *word = value as u32);
    words
}

pub(super) fn dropout(x: Array, scalars: Array, p: f64, draw: [u32; 2]) -> Vec<f64> {
    let words = words_of(scalars);
    let scale = 1.0 / (1.0 - p);
    let one = |(i, &v): (usize, &f64)| if dropout_keeps(i, draw, words, p) { v * scale } else { 0.0 };
    x.data.iter().enumerate().map(one).collect()
}
