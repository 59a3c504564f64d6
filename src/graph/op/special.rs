//! The error function in `f64`.

use std::f64::consts::PI;

/// `erf x = 2/√π ∫₀ˣ e^(-t²) dt`, within 1e-15.
pub fn erf(x: f64) -> f64 {
    if x.abs() < SWITCH { series(x) } else { x.signum() * (1.0 - fraction(x.abs())) }
}

/// `1 - erf x` without cancellation for large `x`.
pub fn erfc(x: f64) -> f64 {
    if x.abs() < SWITCH {
        1.0 - series(x)
    } else if x > 0.0 {
        fraction(x)
    } else {
        2.0 - fraction(-x)
    }
}

const SWITCH: f64 = 2.0;

/// `erf x = 2/√π e^(-x²) Σ 2ⁿ x^(2n+1) / (2n+1)!!`: all terms have the same sign, so nothing cancels
/// (Abramowitz & Stegun 7.1.6).
fn series(x: f64) -> f64 {
    let (mut term, mut sum, mut n) = (x, x, 0.0);
    while term.abs() > 1e-18 * sum.abs() {
        n += 1.0;
        term *= 2.0 * x * x / (2.0 * n + 1.0);
        sum += term;
    }
    2.0 / PI.sqrt() * (-x * x).exp() * sum
}

/// `erfc x = e^(-x²)/√π · 1/(x + ½/(x + 1/(x + 3/2/(x + …))))` for positive `x` (Abramowitz & Stegun 7.1.14),
/// evaluated from its tail.
fn fraction(x: f64) -> f64 {
    let tail = (1..=150).rev().fold(x, |tail, n| x + f64::from(n) * 0.5 / tail);
    (-x * x).exp() / PI.sqrt() / tail
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values from mpmath with 30 digits.
    const KNOWN: [(f64, f64); 8] = [
        (0.0, 0.0),
        (1e-9, 1.128_379_167_095_512_6e-9),
        (0.1, 0.112_462_916_018_284_9),
        (0.5, 0.520_499_877_813_046_5),
        (1.0, 0.842_700_792_949_714_9),
        (2.0, 0.995_322_265_018_952_7),
        (2.5, 0.999_593_047_982_555),
        (6.0, 1.0),
    ];

    #[test]
    fn erf_matches_known_values_and_is_odd() {
        for (x, expected) in KNOWN {
            assert!((erf(x) - expected).abs() < 1e-14, "erf {x} = {}, not {expected}", erf(x));
            assert!((erf(-x) + expected).abs() < 1e-14);
            assert!((erf(x) + erfc(x) - 1.0).abs() < 1e-15);
            assert!((erfc(-x) - 1.0 - expected).abs() < 1e-14);
        }
    }

    #[test]
    fn erfc_is_accurate_where_it_is_small() {
        // From mpmath, as above.
        assert!((erfc(5.0) / 1.537_459_794_428_035_1e-12 - 1.0).abs() < 1e-13, "{}", erfc(5.0));
    }

    #[test]
    fn series_and_fraction_agree_where_they_meet() {
        for i in 0..100 {
            let x = 1.8 + 0.004 * f64::from(i);
            assert!((series(x) - (1.0 - fraction(x))).abs() < 1e-15, "at {x}");
        }
    }
}
