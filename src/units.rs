//! Sizes in bytes, and counts. Both are `u64`. Sizes are printed in binary units (KiB, MiB, GiB), other
//! counts with decimal prefixes.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::str::FromStr;

/// A number of bytes. `Display` prints binary units with one decimal: `392.0 MiB`.
///
/// ```
/// use wgrad::Bytes;
/// assert_eq!(Bytes::mib(392).to_string(), "392.0 MiB");
/// assert_eq!(Bytes(700).to_string(), "700 B");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl Bytes {
    /// `n` × 1,024 bytes.
    pub const fn kib(n: u64) -> Self {
        Self(n << 10)
    }
    /// `n` × 1,048,576 bytes.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }
    /// `n` × 1,073,741,824 bytes.
    pub const fn gib(n: u64) -> Self {
        Self(n << 30)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return f.pad(&format!("{} B", self.0));
        }
        let mut value = self.0 as f64 / 1024.0;
        let mut unit = 0;
        // 1023.95 would print as "1024.0" of the smaller unit.
        while value >= 1023.95 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        f.pad(&format!("{value:.1} {}", UNITS[unit]))
    }
}

/// Returns round numbers from 0 to `total` bytes for an axis, at most nine: multiples of a power of two that
/// print exactly.
pub(crate) fn ticks(total: u64) -> Vec<u64> {
    let unit = std::iter::successors(Some(1u64), |unit| unit.checked_mul(1024));
    let unit = unit.take_while(|unit| *unit <= total).last().unwrap_or(1);
    let quarter = (total / 4).max(1);
    let step = (1u64 << quarter.ilog2()).max(unit / 2).max(1);
    (0..=total / step).map(|i| i * step).collect()
}

impl FromStr for Bytes {
    type Err = String;

    /// Parses a number with a unit: `5GB` and `600 MB` are powers of 1,000, `5 GiB` and `600MiB` powers of
    /// 1,024; without a unit, bytes.
    ///
    /// ```
    /// use wgrad::Bytes;
    /// assert_eq!("1.5 KiB".parse(), Ok(Bytes(1536)));
    /// assert_eq!("5GB".parse(), Ok(Bytes(5_000_000_000)));
    /// ```
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{text}` is no size: expected a number and a unit, such as 5GB, 5 GiB or 600MiB");
        let digits =
            text.trim().find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.trim().len());
        let (number, unit) = text.trim().split_at(digits);
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            "kib" => 1 << 10,
            "mib" => 1 << 20,
            "gib" => 1 << 30,
            "tib" => 1 << 40,
            _ => return Err(wrong()),
        };
        let bytes = number * factor as f64;
        if bytes < u64::MAX as f64 {
            Ok(Self(bytes.round() as u64))
        } else {
            Err(format!("`{text}` is 2^64 bytes or more"))
        }
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sub for Bytes {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl std::iter::Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
        Self(items.map(|b| b.0).sum())
    }
}

/// A number of things, such as parameters or operations. `Display` prints decimal prefixes: `25.6 M`.
///
/// ```
/// use wgrad::units::Count;
/// assert_eq!(Count(25_557_032).to_string(), "25.6 M");
/// assert_eq!(Count(640).to_string(), "640");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Count(pub u64);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const PREFIXES: [&str; 6] = ["k", "M", "G", "T", "P", "E"];
        if self.0 < 1000 {
            return f.pad(&self.0.to_string());
        }
        let (mut value, mut prefix) = (self.0 as f64 / 1000.0, 0);
        // 999.95 would print as "1000.0" of the smaller prefix.
        while value >= 999.95 {
            value /= 1000.0;
            prefix += 1;
        }
        f.pad(&format!("{value:.1} {}", PREFIXES[prefix]))
    }
}

/// Returns the smallest multiple of `align` that is ≥ `n`; `None` on overflow. `align` must not be 0.
pub(crate) const fn align_up(n: u64, align: u64) -> Option<u64> {
    n.checked_next_multiple_of(align)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_printed_in_binary_units_with_one_decimal() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1_048_575, "1.0 MiB"),
            (11_500_000, "11.0 MiB"),
            (u64::MAX, "16.0 EiB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
        assert_eq!(format!("{:>10}", Bytes(5)), "       5 B");
    }

    #[test]
    fn ticks_are_few_and_print_exactly() {
        let gib = 1u64 << 30;
        assert_eq!(ticks(3 * gib / 2), [0, gib / 2, gib, 3 * gib / 2]);
        assert_eq!(ticks(0), [0]);
        for total in (0..64).flat_map(|bit| [1u64 << bit, (1 << bit) + (1 << bit) / 3, u64::MAX >> bit]) {
            let ticks = ticks(total);
            assert!(ticks.len() <= 9 && (total < 2 || ticks.len() >= 3), "{total}: {ticks:?}");
            for tick in ticks {
                let text = Bytes(tick).to_string();
                let (number, unit) = text.split_once(' ').unwrap();
                let exact = number.parse::<f64>().unwrap()
                    * 1024f64.powi(match unit {
                        "B" => 0,
                        "KiB" => 1,
                        "MiB" => 2,
                        "GiB" => 3,
                        "TiB" => 4,
                        "PiB" => 5,
                        _ => 6,
                    });
                assert_eq!(exact, tick as f64, "{tick} prints as {text}");
            }
        }
    }

    #[test]
    fn counts_have_decimal_prefixes() {
        let cases = [(0, "0"), (999, "999"), (1000, "1.0 k"), (999_950, "1.0 M"), (u64::MAX, "18.4 E")];
        for (count, text) in cases {
            assert_eq!(Count(count).to_string(), text);
        }
    }

    #[test]
    fn sizes_are_read_in_both_families_of_units() {
        let cases = [
            ("7", 7),
            ("7 B", 7),
            ("0.5 kb", 500),
            ("3MB", 3_000_000),
            ("5GB", 5_000_000_000),
            ("2tb", 2_000_000_000_000),
            ("1.5KiB", 1536),
            ("600mib", 600 << 20),
            (" 5 GiB ", 5 << 30),
            ("1TiB", 1 << 40),
        ];
        for (text, bytes) in cases {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "GB", "5 parsecs", "-1GB", "1e30TB", "1.2.3MB", "99999999999 TB"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_added_and_subtracted() {
        let mut bytes = Bytes(7) + Bytes(5);
        assert_eq!(bytes, Bytes(12));
        bytes += Bytes(30);
        assert_eq!(bytes - Bytes(2), Bytes(40));
        assert_eq!([Bytes(1), Bytes(2), Bytes(4)].into_iter().sum::<Bytes>(), Bytes(7));
    }

    #[test]
    fn alignment_does_not_wrap() {
        assert_eq!(align_up(1, 256), Some(256));
        assert_eq!(align_up(512, 256), Some(512));
        assert_eq!(align_up(u64::MAX, 256), None);
    }
}
