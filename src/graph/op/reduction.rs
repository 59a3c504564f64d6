//! Reductions.

/// How a reduction combines elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// `Σ x`
    Sum,
    /// `Σ x / n`
    Mean,
    /// `max x`
    Max,
    /// `Σ x²`
    SumSquares,
}
