//! The operations a graph is made of, each with its formula. Shapes are row-major; `·` is the matrix product.

use super::window::Window;
use crate::dtype::DType;
use crate::shape::Shape;

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
    /// `y = x Φ(x)`, Φ the normal distribution function by `erf`
    Gelu,
    /// `y = x/2 (1 + tanh(√(2/π) (x + 0.044715 x³)))`
    GeluTanh,
    /// `y = x / (1 + e⁻ˣ)`
    Silu,
}

/// What the derivative of a [`Unary`] is computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saves {
    /// A constant factor: nothing is kept.
    Nothing,
    /// The input is kept until the backward pass.
    Input,
    /// The output is kept, so the input's memory may be reused at once.
    Output,
}

impl Unary {
    /// What the backward pass needs.
    pub fn saves(self) -> Saves {
        match self {
            Self::Neg | Self::Scale(_) | Self::Offset(_) => Saves::Nothing,
            // A negative slope would make the sign of the output say nothing about the sign of the input.
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

    /// Code that `shaders/prelude/unary.wgsl` switches on, and the function's two constants.
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

    fn name(self) -> &'static str {
        match self {
            Self::Neg => "neg",
            Self::Scale(_) => "scale",
            Self::Offset(_) => "offset",
            Self::Exp => "exp",
            Self::Log => "log",
            Self::Sqrt => "sqrt",
            Self::Abs => "abs",
            Self::Square => "square",
            Self::Recip => "recip",
            Self::Clamp(..) => "clamp",
            Self::Relu => "relu",
            Self::LeakyRelu(_) => "leaky_relu",
            Self::Sigmoid => "sigmoid",
            Self::Tanh => "tanh",
            Self::Gelu => "gelu",
            Self::GeluTanh => "gelu_tanh",
            Self::Silu => "silu",
        }
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
    /// Its derivative in `a`: `σ(a) - b`
    BceLogitsGrad,
}

impl Binary {
    /// Code that `shaders/prelude/binary.wgsl` switches on.
    pub fn code(self) -> u32 {
        self as u32
    }

    fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Sub => "sub",
            Self::Mul => "mul",
            Self::Div => "div",
            Self::Max => "max",
            Self::Min => "min",
            Self::Equal => "equal",
            Self::Greater => "greater",
            Self::BceLogits => "bce_logits",
            Self::BceLogitsGrad => "bce_logits_grad",
        }
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

/// An optimizer's update of one parameter, in place. `g` is the gradient, `w` the parameter, `η` the rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Update {
    /// `g += λw`; `w -= η g`. Inputs: `w, g, scalars`.
    Sgd {
        /// λ, the L2 penalty.
        weight_decay: f32,
    },
    /// `g += λw`; `v = μv + g`; `w -= η v` (Nesterov: `w -= η (g + μv)`), as `torch.optim.SGD`.
    /// Inputs: `w, g, scalars, v`.
    Momentum {
        /// μ
        momentum: f32,
        /// λ, the L2 penalty.
        weight_decay: f32,
        /// Look ahead by one momentum step.
        nesterov: bool,
    },
    /// Adam (Kingma & Ba 2015) as `torch.optim.Adam`; with `decoupled` decay AdamW (Loshchilov & Hutter 2019).
    /// `m = β₁m + (1-β₁)g`; `v = β₂v + (1-β₂)g²`; `w -= η/(1-β₁ᵗ) · m / (√v/√(1-β₂ᵗ) + ε)`.
    /// Inputs: `w, g, scalars, m, v`.
    Adam {
        /// β₁
        beta1: f32,
        /// β₂
        beta2: f32,
        /// ε
        eps: f32,
        /// λ
        weight_decay: f32,
        /// `w *= 1 - ηλ` first, instead of `g += λw`.
        decoupled: bool,
    },
}

/// What a batch norm applies to its result, so that neither it nor its input need be kept for the backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// `y = x`
    None,
    /// `y = max(x, 0)`
    Relu,
    /// `y = min(max(x, 0), 6)`; the derivative at 0 and 6 is 0.
    Relu6,
}

/// How an image is read between its pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resample {
    /// The pixel at `⌊i h / h'⌋`.
    Nearest,
    /// Bilinear, pixels being squares: `(i + ½) h / h' - ½`, not below 0.
    Bilinear,
    /// Bilinear with the corner pixels in place: `i (h - 1) / (h' - 1)`.
    BilinearCorners,
}

/// What an average is taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Averaging {
    /// A sliding window; padding counts as zeros or, without `count_padding`, not at all.
    Window {
        /// The window; its dilation is 1.
        window: Window,
        /// Divide by the whole window's size at the edges, too.
        count_padding: bool,
    },
    /// `h' × w'` bins, bin `i` from `⌊i h / h'⌋` to `⌈(i + 1) h / h'⌉`.
    Adaptive([usize; 2]),
}

/// One operation. Inputs and outputs are listed as `inputs → outputs`.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// `A, B → C = op(A) · op(B)`, with op = transpose of the last two dimensions where its flag is set.
    /// Leading dimensions are batches; they are equal or broadcast.
    MatMul {
        /// Transpose `A`.
        ta: bool,
        /// Transpose `B`.
        tb: bool,
    },
    /// `x → f(x)`
    Unary(Unary),
    /// `s, dy → dy f'(·)`, `s` being what [`Unary::saves`] says.
    UnaryGrad(Unary),
    /// `a, b → f(a, b)`
    Binary(Binary),
    /// `x → y` over the axes whose bit is set; they stay, with length 1.
    Reduce {
        /// How elements combine.
        kind: Reduction,
        /// Bit `i` is axis `i`.
        axes: u8,
    },
    /// `x → softmax(x)` over the last axis, or its logarithm.
    Softmax {
        /// Log-softmax.
        log: bool,
    },
    /// `y, dy → dx` of the softmax: `y (dy - Σ dy y)`, for the logarithm `dy - eʸ Σ dy`.
    SoftmaxGrad {
        /// Log-softmax.
        log: bool,
    },
    /// `logits [n, c], labels [n] → loss [n], lse [n, 2]`: `loss = Σ lse - logits[label]`, 0 where the label is [`IGNORE`];
    /// `lse` holds the row's maximum and `ln Σ e^(logits - max)`, apart so that large logits keep their digits.
    CrossEntropy,
    /// `logits [n, c], labels [n], lse [n, 2], dloss [n] → (softmax(logits) - onehot) dloss`
    CrossEntropyGrad,
    /// `labels [n] → 1 / max(1, number of labels that are not IGNORE)`, a scalar.
    LabelShare,
    /// `x → x`, another shape over the same memory.
    Reshape(Shape),
    /// `x → y` with `y.dims[i] = x.dims[perm[i]]`.
    Permute(Vec<usize>),
    /// `x → y`, broadcast.
    Expand(Shape),
    /// `x → x[.., start .. start + len, ..]` along `axis`.
    Slice {
        /// Which dimension.
        axis: usize,
        /// First index.
        start: usize,
        /// How many.
        len: usize,
    },
    /// `x → y`: zeros around `x` along `axis`.
    Pad {
        /// Which dimension.
        axis: usize,
        /// Zeros in front.
        before: usize,
        /// Zeros behind.
        after: usize,
    },
    /// `x₀, x₁, … → y` along `axis`.
    Concat {
        /// Which dimension.
        axis: usize,
    },
    /// `x → x` in another element type; `f32 → u32` truncates and saturates.
    Cast(DType),
    /// `x → x` in memory of its own.
    Copy,
    /// `→ y`, every element the same.
    Fill {
        /// Shape of the result.
        shape: Shape,
        /// The element.
        value: f32,
    },
    /// `x, scalars → x m / (1 - p)`, m drawn per element from (seed, step, `key`): drawn again, the same mask.
    Dropout {
        /// Chance that an element becomes 0.
        p: f32,
        /// Which dropout of the graph this is.
        key: u32,
    },
    /// Changes its inputs in place; no outputs.
    Update(Update),
    /// `x [n, c, h, w], w [o, c/g, kh, kw], bias [o]? → y [n, o, h', w']`, a cross-correlation as PyTorch's.
    Conv2d {
        /// The sliding kernel.
        window: Window,
        /// Channels are divided into this many groups.
        groups: usize,
    },
    /// `y [n, o, h', w'], w [o, c/g, kh, kw], bias [c]? → x [n, c, h, w]`: the transpose of [`Op::Conv2d`] in its image.
    Conv2dInput {
        /// The sliding kernel.
        window: Window,
        /// Channels are divided into this many groups.
        groups: usize,
        /// `h, w`; several sizes give the same `h', w'`.
        size: [usize; 2],
    },
    /// `x [n, c, h, w], dy [n, o, h', w'] → dw [o, c/g, kh, kw]`
    Conv2dWeight {
        /// The sliding kernel.
        window: Window,
        /// Channels are divided into this many groups.
        groups: usize,
    },
    /// `x [n, c, h, w] → y [n, c, h', w'], at`: maxima, and where in its window each was, as bytes, four to a word.
    MaxPool2d(Window),
    /// `at, dy [n, c, h', w'] → dx [n, c, h, w]`
    MaxPool2dGrad {
        /// The sliding window.
        window: Window,
        /// `h, w`
        size: [usize; 2],
    },
    /// `x [n, c, h, w] → y [n, c, h', w']`, averages.
    AvgPool2d(Averaging),
    /// `dy [n, c, h', w'] → dx [n, c, h, w]`
    AvgPool2dGrad {
        /// What was averaged.
        over: Averaging,
        /// `h, w`
        size: [usize; 2],
    },
    /// `x [n, c, h, w] → mean [c], 1/√(var + ε) [c], var [c]` over all but `c`; the variance is the biased one.
    BatchStats {
        /// ε
        eps: f32,
    },
    /// `x [n, c, h, w], mean [c], deviation⁻¹ [c], γ [c], β [c] → f(γ (x - mean) deviation⁻¹ + β)`
    BatchNorm(Activation),
    /// `x, mean, deviation⁻¹, γ, β, dy → dx, dγ, dβ`
    BatchNormGrad {
        /// f
        activation: Activation,
        /// Mean and deviation are functions of `x`, not constants.
        training: bool,
    },
    /// Moves running statistics in place; no outputs. Inputs: `running mean, running var, mean, var`, each `[c]`.
    /// `r += μ (s - r)`, the variance scaled to the unbiased one.
    RunningStats {
        /// μ
        momentum: f32,
        /// `n / (n - 1)`
        unbias: f32,
    },
    /// `x [n, c, h, w] → y [n, c, h', w']`
    Resample {
        /// How it reads between pixels.
        mode: Resample,
        /// `h', w'`
        size: [usize; 2],
    },
    /// `dy [n, c, h', w'] → dx [n, c, h, w]`
    ResampleGrad {
        /// How it read between pixels.
        mode: Resample,
        /// `h, w`
        size: [usize; 2],
    },
}

/// A label that counts for nothing: neither in the loss nor in its mean (PyTorch's `ignore_index`).
pub const IGNORE: u32 = u32::MAX;

impl Op {
    /// The name used in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::MatMul { .. } => "matmul",
            Self::Unary(f) => f.name(),
            Self::UnaryGrad(_) => "unary_grad",
            Self::Binary(f) => f.name(),
            Self::Reduce { kind: Reduction::Sum, .. } => "sum",
            Self::Reduce { kind: Reduction::Mean, .. } => "mean",
            Self::Reduce { kind: Reduction::Max, .. } => "max",
            Self::Reduce { kind: Reduction::SumSquares, .. } => "sum_squares",
            Self::Softmax { log: false } => "softmax",
            Self::Softmax { log: true } => "log_softmax",
            Self::SoftmaxGrad { .. } => "softmax_grad",
            Self::CrossEntropy => "cross_entropy",
            Self::CrossEntropyGrad => "cross_entropy_grad",
            Self::LabelShare => "label_share",
            Self::Reshape(_) => "reshape",
            Self::Permute(_) => "permute",
            Self::Expand(_) => "expand",
            Self::Slice { .. } => "slice",
            Self::Pad { .. } => "pad",
            Self::Concat { .. } => "concat",
            Self::Cast(_) => "cast",
            Self::Copy => "copy",
            Self::Fill { .. } => "fill",
            Self::Dropout { .. } => "dropout",
            Self::Update(Update::Sgd { .. }) => "sgd",
            Self::Update(Update::Momentum { .. }) => "momentum",
            Self::Update(Update::Adam { decoupled: false, .. }) => "adam",
            Self::Update(Update::Adam { decoupled: true, .. }) => "adamw",
            Self::Conv2d { .. } => "conv2d",
            Self::Conv2dInput { .. } => "conv2d_input",
            Self::Conv2dWeight { .. } => "conv2d_weight",
            Self::MaxPool2d(_) => "max_pool2d",
            Self::MaxPool2dGrad { .. } => "max_pool2d_grad",
            Self::AvgPool2d(_) => "avg_pool2d",
            Self::AvgPool2dGrad { .. } => "avg_pool2d_grad",
            Self::BatchStats { .. } => "batch_stats",
            Self::BatchNorm(_) => "batch_norm",
            Self::BatchNormGrad { .. } => "batch_norm_grad",
            Self::RunningStats { .. } => "running_stats",
            Self::Resample { mode: Resample::Nearest, .. } => "upsample_nearest",
            Self::Resample { .. } => "upsample_bilinear",
            Self::ResampleGrad { .. } => "upsample_grad",
        }
    }

    /// Positions of the inputs that the operation changes in place.
    pub fn mutates(&self) -> &'static [usize] {
        match self {
            Self::Update(Update::Sgd { .. }) => &[0],
            Self::Update(Update::Momentum { .. }) => &[0, 3],
            Self::Update(Update::Adam { .. }) => &[0, 3, 4],
            Self::RunningStats { .. } => &[0, 1],
            _ => &[],
        }
    }

    /// How many results it has.
    pub fn results(&self) -> usize {
        match self {
            Self::Update(_) | Self::RunningStats { .. } => 0,
            Self::CrossEntropy | Self::MaxPool2d(_) => 2,
            Self::BatchStats { .. } | Self::BatchNormGrad { .. } => 3,
            _ => 1,
        }
    }
}
