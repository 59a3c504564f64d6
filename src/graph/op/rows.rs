//! Settings of the operations on rows.

/// The gates of a recurrent layer, in PyTorch's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gates {
    /// Input, forget, new and output of a long short-term memory (Hochreiter & Schmidhuber 1997).
    Lstm,
    /// Reset, update and new of a gated recurrent unit (Cho et al. 2014), which resets the product with the state.
    Gru,
}

impl Gates {
    /// Returns their number.
    pub const fn count(self) -> usize {
        match self {
            Self::Lstm => 4,
            Self::Gru => 3,
        }
    }
}

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
