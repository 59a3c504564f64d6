//! Which of two metrics is better.

/// Which metric is the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Best {
    /// The highest, such as an accuracy.
    Highest,
    /// The lowest, such as a loss.
    Lowest,
}

impl Best {
    /// Whether a metric exceeds the best before it by more than this share of that. NaN never does.
    pub(super) fn is_better(self, value: f64, before: Option<f64>, threshold: f64) -> bool {
        match (self, before) {
            (_, None) => !value.is_nan(),
            (Self::Highest, Some(before)) => value > before * (1.0 + threshold),
            (Self::Lowest, Some(before)) => value < before * (1.0 - threshold),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_is_never_the_best() {
        for best in [Best::Highest, Best::Lowest] {
            assert!(!best.is_better(f64::NAN, None, 0.0) && !best.is_better(f64::NAN, Some(0.0), 0.0));
            assert!(best.is_better(0.5, None, 0.0) && !best.is_better(0.5, Some(0.5), 0.0));
        }
        assert!(Best::Highest.is_better(0.6, Some(0.5), 0.0) && Best::Lowest.is_better(0.4, Some(0.5), 0.0));
    }
}
