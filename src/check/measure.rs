//! Tolerances, and the measured differences between results.

use super::reference::{Perturbation, Tensors};
use crate::compile::PlanOptions;
use crate::dtype::Precision;
use crate::error::Result;

/// A difference, in multiples of the tolerance.
pub(super) struct Difference {
    pub what: String,
    pub error: f64,
}

impl Difference {
    pub(super) fn none() -> Self {
        Self { what: String::new(), error: 0.0 }
    }

    pub(super) fn or(self, other: Self) -> Self {
        if other.error > self.error || other.error.is_nan() { other } else { self }
    }
}

/// Returns the relative rounding error of what a plan stores; at least that of arithmetic in `f32`.
pub(super) fn rounding(options: &PlanOptions) -> f64 {
    match options.precision {
        Precision::F32 => 2f64.powi(-22),
        Precision::F16 => 2f64.powi(-11),
        Precision::Bf16 => 2f64.powi(-8),
        // Levels are shares of a group's range, so that small elements have relative errors above 1/255 and 1/15.
        Precision::Int8 => 2f64.powi(-5),
        Precision::Int4 => 2f64.powi(-1),
    }
}

/// A result may differ by this many times the change that perturbations cause.
const FACTOR: f64 = 4.0;

/// Returns seeds of perturbations and their sizes, in units of a rounding error. Repeated and larger
/// perturbations cross kinks that are about one rounding error away.
pub(super) fn perturbations() -> impl Iterator<Item = (u64, f64)> {
    (1..).zip([1.0; 2].into_iter().chain([8.0; 6]).chain([64.0; 6]))
}

/// Returns the largest magnitude in all tensors.
pub(super) fn largest(tensors: &Tensors) -> f64 {
    tensors.values().flatten().fold(0f64, |all, x| all.max(x.abs()))
}

/// Tolerance in addition to what [`Perturbation`]s measure.
pub(super) struct Allowed {
    /// Fraction of the tensor's largest magnitude, or of a tenth of the largest magnitude of all tensors if
    /// that is more.
    pub floor: f64,
    /// Absolute tolerance.
    pub jump: f64,
}

/// Results of perturbed reference runs, `N` kinds of tensors each. Runs are lazy.
pub(super) struct Moved<const N: usize, F> {
    rounding: f64,
    run: F,
    runs: Vec<[Tensors; N]>,
}

impl<const N: usize, F: Fn(Perturbation) -> Result<[Tensors; N]>> Moved<N, F> {
    /// Perturbations have sizes in multiples of `rounding`.
    pub(super) fn new(rounding: f64, run: F) -> Self {
        Self { rounding, run, runs: Vec::new() }
    }

    /// Returns the largest difference of any tensor, in units of the tolerance. The tolerance is measured
    /// with two perturbations first, and with more of them as long as the difference exceeds it.
    pub(super) fn measured(
        &mut self,
        what: &str,
        kind: usize,
        actual: &Tensors,
        expected: &Tensors,
        allowed: &Allowed,
    ) -> Result<Difference> {
        let mut worst = Difference::none();
        let all = largest(expected);
        for (i, (seed, size)) in perturbations().enumerate() {
            if i == self.runs.len() {
                self.runs.push((self.run)(Perturbation { seed, size: size * self.rounding })?);
            }
            if i == 0 {
                continue;
            }
            worst = Difference::none();
            for (name, numbers) in expected {
                let own = self.runs[..=i].iter().map(|run| apart(numbers, &run[kind][name]));
                let allowed = allowed.of(numbers, all, own.fold(0f64, f64::max));
                worst = worst.or(difference(what, name, actual.get(name), numbers, allowed));
            }
            if worst.error <= 1.0 || worst.error.is_infinite() {
                break;
            }
        }
        Ok(worst)
    }
}

impl Allowed {
    /// Returns the tolerance for a tensor. `all` is the largest magnitude of all tensors, `moved` the change
    /// that perturbations cause in this one.
    fn of(&self, numbers: &[f64], all: f64, moved: f64) -> f64 {
        let most = numbers.iter().fold(0f64, |all, x| all.max(x.abs()));
        FACTOR * moved + self.floor * most.max(all * 0.1) + self.jump + 1e-12
    }
}

/// Returns the largest difference between two tensors; infinite if a number is NaN.
fn apart(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| distance(*a, *b)).fold(0.0, f64::max)
}

fn distance(a: f64, b: f64) -> f64 {
    if (a - b).is_nan() { f64::INFINITY } else { (a - b).abs() }
}

fn difference(
    what: &str,
    name: &str,
    actual: Option<&Vec<f64>>,
    expected: &[f64],
    allowed: f64,
) -> Difference {
    let Some(actual) = actual else {
        return Difference { what: format!("{what} `{name}` is missing"), error: f64::INFINITY };
    };
    let (at, own, should) = farthest(actual, expected);
    let what =
        format!("{what} `{name}` at {at} is {own:.6e}, should be {should:.6e} with {allowed:.1e} allowed");
    Difference { what, error: distance(own, should) / allowed }
}

/// Returns the index at which two tensors differ most, and both numbers there.
fn farthest(actual: &[f64], expected: &[f64]) -> (usize, f64, f64) {
    let pairs = actual.iter().zip(expected).enumerate();
    let largest = pairs.max_by(|(_, (a, b)), (_, (c, d))| distance(**a, **b).total_cmp(&distance(**c, **d)));
    largest.map_or((0, 0.0, 0.0), |(at, (own, should))| (at, *own, *should))
}
