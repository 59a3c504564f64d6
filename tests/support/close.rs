//! Comparison of the results of a device with the twin's.

/// The allowed error of a result.
#[derive(Clone, Copy, Debug)]
pub struct Near {
    /// Relative to the true value.
    pub rel: f64,
    /// Absolute, added to the relative error.
    pub abs: f64,
}

/// A unit in the last place of an `f32`, relative to the value: 2⁻²³ at most.
pub const ULP: f64 = f32::EPSILON as f64;

/// The same number.
pub const EXACT: Near = Near { rel: 0.0, abs: 0.0 };

/// Within `n` units in the last place.
pub const fn ulps(n: f64) -> Near {
    Near { rel: n * ULP, abs: 0.0 }
}

/// Adapters may flush operands (which are then multiplied) and results that are smaller than any normal
/// number to 0.
const TINY: f64 = 8.0 * f32::MIN_POSITIVE as f64;

/// Fails with the worst element, where `bound(i)` is the largest error of element `i`.
#[track_caller]
pub fn assert_within(what: &str, actual: &[f32], expected: &[f64], bound: impl Fn(usize) -> f64) {
    assert_eq!(actual.len(), expected.len(), "{what}: number of elements");
    let mut worst: Option<(f64, usize)> = None;
    for (i, (&a, &e)) in actual.iter().zip(expected).enumerate() {
        let excess = excess(f64::from(a), e, bound(i));
        if excess > 1.0 && worst.is_none_or(|(most, _)| excess > most) {
            worst = Some((excess, i));
        }
    }
    let Some((excess, i)) = worst else { return };
    let wrong =
        (0..actual.len()).filter(|&i| self::excess(f64::from(actual[i]), expected[i], bound(i)) > 1.0);
    panic!(
        "{what}: element {i} is {:e}, should be {:e}: {excess:.3e} times the allowed error {:.3e} ({} of {} are wrong)",
        actual[i],
        expected[i],
        bound(i),
        wrong.count(),
        actual.len()
    );
}

/// Returns the error as a multiple of the bound; infinite where it cannot be compared.
fn excess(actual: f64, expected: f64, bound: f64) -> f64 {
    if expected.is_nan() {
        return if actual.is_nan() { 0.0 } else { f64::INFINITY };
    }
    let beyond = expected.is_infinite() || expected.abs() > f64::from(f32::MAX) - bound;
    if beyond && actual.is_infinite() && (actual > 0.0) == (expected > 0.0) {
        return 0.0;
    }
    if expected.is_infinite() || actual.is_nan() || actual.is_infinite() {
        return f64::INFINITY;
    }
    let error = (actual - expected).abs();
    if error == 0.0 { 0.0 } else { error / (bound + TINY) }
}

/// Fails with the worst element, unless all are near.
#[track_caller]
pub fn assert_close(what: &str, actual: &[f32], expected: &[f64], near: Near) {
    assert_within(what, actual, expected, |i| near.rel * expected[i].abs() + near.abs);
}

/// Fails at the first element whose bits differ.
#[track_caller]
pub fn assert_same_bits(what: &str, a: &[f32], b: &[f32]) {
    assert_eq!(a.len(), b.len(), "{what}: number of elements");
    if let Some(i) = (0..a.len()).find(|&i| a[i].to_bits() != b[i].to_bits()) {
        let many = (0..a.len()).filter(|&i| a[i].to_bits() != b[i].to_bits()).count();
        panic!("{what}: element {i} is {:e} and {:e} ({many} of {} differ)", a[i], b[i], a.len());
    }
}
