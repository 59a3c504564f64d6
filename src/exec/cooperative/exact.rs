//! What a sum of products should be, and how far from that it may be if its factors are rounded to `f16` and added in `f32`.

use half::f16;

use crate::random;

/// Numbers with all exponents from 2⁻²⁰ to 2¹² and both signs, among them zeros; every third cannot be held in `f16`.
pub(super) fn numbers(name: &str, count: usize) -> Vec<f32> {
    let key = random::key(0, name);
    let number = |i: u64| {
        let bits = random::bits(key, i);
        let size = 2.0f32.powi((bits % 33) as i32 - 20) * (1.0 + random::uniform(key ^ 1, i));
        let signed = if bits & 1 << 40 == 0 { size } else { -size };
        match bits >> 41 & 0xf {
            0 => 0.0,
            1..=5 => signed,
            _ => f16::from_f32(signed).to_f32(),
        }
    };
    (0..count as u64).map(number).collect()
}

/// A factor as it would be without transposition, with what rounding to `f16` may change of each element.
pub(super) struct Factor {
    pub(super) exact: Vec<f64>,
    pub(super) lost: Vec<f64>,
}

impl Factor {
    pub(super) fn new(data: &[f32], [rows, columns]: [usize; 2], transposed: bool) -> Self {
        let place = |at: usize| {
            let (matrix, row, column) = (at / (rows * columns), at / columns % rows, at % columns);
            matrix * rows * columns + if transposed { column * rows + row } else { row * columns + column }
        };
        let element = |at: usize| f64::from(data[place(at)]);
        let exact: Vec<f64> = (0..data.len()).map(element).collect();
        let lost = |x: f64| {
            let fits = f16::from_f64(x).to_f64() == x;
            if fits { 0.0 } else { x.abs() / 2048.0 + 1.0 / f64::from(1 << 24) }
        };
        Self { lost: exact.iter().copied().map(lost).collect(), exact }
    }
}

/// A sum of products.
#[derive(Clone, Copy, Default)]
pub(super) struct Exact {
    /// Itself.
    pub(super) sum: f64,
    /// What rounding the factors may change of it.
    lost: f64,
    /// The sum of the products' magnitudes.
    magnitude: f64,
    /// How many products there are.
    steps: f64,
}

impl Exact {
    /// Adds the product of two factors, each with what rounding it may change.
    pub(super) fn add(&mut self, (x, x_lost): (f64, f64), (y, y_lost): (f64, f64)) {
        self.sum += x * y;
        self.lost += x_lost * (y.abs() + y_lost) + y_lost * x.abs();
        self.magnitude += (x * y).abs();
        self.steps += 1.0;
    }

    /// How far a result may be from the sum.
    pub(super) fn bound(&self) -> f64 {
        self.lost + 2.0 * (self.steps + 1.0) * f64::from(f32::EPSILON) * self.magnitude
    }

    pub(super) fn admits(&self, result: f32) -> bool {
        let result = f64::from(result);
        match self.sum.is_finite() {
            true => (result - self.sum).abs() <= self.bound(),
            false => result == self.sum || result.is_nan() && self.sum.is_nan(),
        }
    }
}
