//! Settings of the operations on rows.

/// How a row is normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowNorm {
    /// `(x - mean) / √(var + ε)`, the variance being the biased one (Ba et al. 2016).
    Layer,
    /// `x / √(mean of x² + ε)` (Zhang & Sennrich 2019).
    Rms,
}

impl RowNorm {
    /// Numbers kept for each row: mean and 1/deviation, or the latter alone.
    pub const fn statistics(self) -> usize {
        match self {
            Self::Layer => 2,
            Self::Rms => 1,
        }
    }
}
