//! Settings of the operations on rows.

/// How a row is normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowNorm {
    /// `(x - mean) / √(var + ε)` with the biased variance (Ba et al. 2016).
    Layer,
    /// `x / √(mean of x² + ε)` (Zhang & Sennrich 2019).
    Rms,
}

impl RowNorm {
    /// Returns how many numbers are saved for each row: mean and 1/deviation, or 1/deviation alone.
    pub const fn statistics(self) -> usize {
        match self {
            Self::Layer => 2,
            Self::Rms => 1,
        }
    }
}
