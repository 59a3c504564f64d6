//! Unary and binary element-wise functions, and reductions.

/// A function of one element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unary {
    /// `y = -x`
    Neg,
    /// `y = a x`
    Scale(f32),
    /// `y = x + a`
    Offset(f32),
    /// `y = eˣ`
    Exp,
    /// `y = ln x`
    Log,
    /// `y = √x`
    Sqrt,
    /// `y = |x|`
    Abs,
    /// `y = x²`
    Square,
    /// `y = 1/x`
    Recip,
    /// `y = min(max(x, lo), hi)`
    Clamp(f32, f32),
    /// `y = max(x, 0)`
    Relu,
    /// `y = x` where `x > 0`, else `a x`
    LeakyRelu(f32),
    /// `y = 1 / (1 + e⁻ˣ)`
    Sigmoid,
    /// `y = tanh x`
    Tanh,
    /// `y = x Φ(x)`, where Φ is the normal distribution function, by `erf`
    Gelu,
    /// `y = x/2 (1 + tanh(√(2/π) (x + 0.044715 x³)))`
    GeluTanh,
    /// `y = x / (1 + e⁻ˣ)`
    Silu,
}

/// What the backward pass of a [`Unary`] saves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saves {
    /// Nothing: the derivative is a constant factor.
    Nothing,
    /// The input.
    Input,
    /// The output, so the input's memory may be reused at once.
    Output,
}

impl Unary {
    /// Returns what the backward pass needs.
    pub fn saves(self) -> Saves {
        match self {
            Self::Neg | Self::Scale(_) | Self::Offset(_) => Saves::Nothing,
            // With a negative slope the sign of the output does not determine the sign of the input.
            Self::LeakyRelu(slope) if slope < 0.0 => Saves::Input,
            Self::Exp
            | Self::Sqrt
            | Self::Recip
            | Self::Relu
            | Self::LeakyRelu(_)
            | Self::Sigmoid
            | Self::Tanh => Saves::Output,
            Self::Log
            | Self::Abs
            | Self::Square
            | Self::Clamp(..)
            | Self::Gelu
            | Self::GeluTanh
            | Self::Silu => Saves::Input,
        }
    }

    /// Returns the code that `shaders/elementwise/unary_functions.wgsl` switches on, and the function's two
    /// constants.
    pub fn code(self) -> (u32, [f32; 2]) {
        match self {
            Self::Neg => (0, [-1.0, 0.0]),
            Self::Scale(a) => (0, [a, 0.0]),
            Self::Offset(a) => (1, [a, 0.0]),
            Self::Exp => (2, [0.0; 2]),
            Self::Log => (3, [0.0; 2]),
            Self::Sqrt => (4, [0.0; 2]),
            Self::Abs => (5, [0.0; 2]),
            Self::Square => (6, [0.0; 2]),
            Self::Recip => (7, [0.0; 2]),
            Self::Clamp(lo, hi) => (8, [lo, hi]),
            Self::Relu => (9, [0.0; 2]),
            Self::LeakyRelu(a) => (10, [a, 0.0]),
            Self::Sigmoid => (11, [0.0; 2]),
            Self::Tanh => (12, [0.0; 2]),
            Self::Gelu => (13, [0.0; 2]),
            Self::GeluTanh => (14, [0.0; 2]),
            Self::Silu => (15, [0.0; 2]),
        }
    }
}

named! {
    impl Unary {
        /// The names of all functions.
        NAMES;
        /// Returns the function's name in reports.
        name;
        Unary::Neg => "neg",
        Unary::Scale(_) => "scale",
        Unary::Offset(_) => "offset",
        Unary::Exp => "exp",
        Unary::Log => "log",
        Unary::Sqrt => "sqrt",
        Unary::Abs => "abs",
        Unary::Square => "square",
        Unary::Recip => "recip",
        Unary::Clamp(..) => "clamp",
        Unary::Relu => "relu",
        Unary::LeakyRelu(_) => "leaky_relu",
        Unary::Sigmoid => "sigmoid",
        Unary::Tanh => "tanh",
        Unary::Gelu => "gelu",
        Unary::GeluTanh => "gelu_tanh",
        Unary::Silu => "silu",
    }
}

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
