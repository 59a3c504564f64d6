//! Binary element-wise functions, and reductions.

/// A function of two elements; operands broadcast as in NumPy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binary {
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a b`
    Mul,
    /// `a / b`
    Div,
    /// `max(a, b)`
    Max,
    /// `min(a, b)`
    Min,
    /// 1 where `a = b`, else 0; no gradient
    Equal,
    /// 1 where `a > b`, else 0; no gradient
    Greater,
    /// Binary cross-entropy of logit `a` and target `b`: `max(a, 0) - a b + ln(1 + e^-|a|)`
    BceLogits,
    /// The derivative of `BceLogits` with respect to `a`: `σ(a) - b`
    BceLogitsGrad,
}

impl Binary {
    /// Returns the code that `shaders/elementwise/binary_functions.wgsl` switches on.
    pub fn code(self) -> u32 {
        self as u32
    }
}

named! {
    impl Binary {
        /// The names of all functions.
        NAMES;
        /// Returns the function's name in reports.
        name;
        Binary::Add => "add",
        Binary::Sub => "sub",
        Binary::Mul => "mul",
        Binary::Div => "div",
        Binary::Max => "max",
        Binary::Min => "min",
        Binary::Equal => "equal",
        Binary::Greater => "greater",
        Binary::BceLogits => "bce_logits",
        Binary::BceLogitsGrad => "bce_logits_grad",
    }
}

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
