//! Exact sums of products, and bounds on the error of a sum whose factors are rounded to `f16` and whose
//! products are added in `f32`.

use half::f16;

use crate::random;

/// Returns numbers with all exponents from 2⁻²⁰ to 2¹² and both signs, among them zeros; about one in three
/// is not representable in `f16`.
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

/// The elements of a factor in untransposed order, and the most that rounding to `f16` may change each.
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
    /// The sum.
    pub(super) sum: f64,
    /// The most that rounding the factors may change it.
    lost: f64,
    /// The sum of the products' magnitudes.
    magnitude: f64,
    /// Number of products.
    steps: f64,
}

impl Exact {
    /// Adds the product of two factors; each comes with the most that rounding may change it.
    pub(super) fn add(&mut self, (x, x_lost): (f64, f64), (y, y_lost): (f64, f64)) {
        self.sum += x * y;
        self.lost += x_lost * (y.abs() + y_lost) + y_lost * x.abs();
        self.magnitude += (x * y).abs();
        self.steps += 1.0;
    }

    /// Returns the largest admissible distance of a result from the sum.
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
