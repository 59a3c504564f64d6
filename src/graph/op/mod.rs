//! The operations a graph is made of, each with its formula. Shapes are row-major; `·` is the matrix product.

/// A name for each variant: the function that tells it, and the list of all names. A new variant has to be named.
macro_rules! named {
    (impl $kind:ident { $(#[$all_doc:meta])* $all:ident; $(#[$doc:meta])* $name:ident; $($pattern:pat => $text:literal,)* }) => {
        impl $kind {
            $(#[$all_doc])*
            pub const $all: &'static [&'static str] = &[$($text),*];

            $(#[$doc])*
            pub fn $name(&self) -> &'static str {
                match self {
                    $($pattern => $text,)*
                }
            }
        }
    };
}

mod attention;
mod chain;
mod elementwise;
mod images;
mod kept;
mod loss_scale;
mod rows;
mod update;

pub use attention::{Attend, AttendSizes, MAX_HEAD};
pub use chain::{Arg, Chain, Link, Read};
pub(crate) use chain::{is_link, only_reads, reads};
pub use elementwise::{Binary, Reduction, Saves, Unary};
pub use images::{Activation, Averaging, Resample, Source};
pub use kept::Kept;
pub use loss_scale::{Counting, LossScale};
pub use rows::RowNorm;
pub use update::{Stored, Update};

use std::sync::Arc;

use super::window::Window;
use crate::dtype::DType;
use crate::shape::Shape;

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
        /// What becomes of `C` before it is stored. Its operand 0 is `C`, the others follow the product's own.
        then: Option<Arc<Chain>>,
    },
    /// `x → f(x)`
    Unary(Unary),
    /// `s, dy → dy f'(·)`, `s` being what [`Unary::saves`] says.
    UnaryGrad(Unary),
    /// `s → bits [n / 32]`: where `f'` is 1, `s` being what [`Unary::saves`] says; for functions with one other slope.
    Mask(Unary),
    /// `bits, dy → dy f'(·)`, from [`Op::Mask`].
    MaskGrad(Unary),
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
    /// `logits [n, c], labels [n], lse [n, 2], dloss [n], or one number → (softmax(logits) - onehot) dloss`
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
    /// `x → x` in another element type. `f32 → u32` truncates and saturates. `f32 → f16, bf16` rounds to nearest, ties to
    /// even; what is larger than the largest number, infinities too, becomes that number; NaN stays NaN.
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
        p: f64,
        /// Which dropout of the graph this is.
        key: u32,
    },
    /// Changes its inputs in place; no outputs. The parameter may be held in 16 bits: it is widened, and what it becomes
    /// rounded.
    Update(Update, Stored),
    /// `x →`: its bytes go to the host's memory, under a number. Plans add it; models cannot ask for it.
    ToHost {
        /// The number.
        slot: u32,
    },
    /// `→ x`: what [`Op::ToHost`] took away under that number.
    FromHost {
        /// The number.
        slot: u32,
    },
    /// `q [b, s, h, d], k [b, t, hkv, d], v [b, t, hkv, d], scalars? → o [b, s, h, d], lse [b, h, s]`, or packed,
    /// `qkv [b, s, h + 2 hkv, d], scalars? → o, lse`; `lse = ln Σ e^score` over the keys that a query sees.
    Attention(Attend),
    /// `q, k, v, o, lse, do, scalars? → dq, dk, dv`, or packed, `qkv, o, lse, do, scalars? → dqkv`
    AttentionGrad(Attend),
    /// `state [4] → scale []`: what the loss's gradient starts as; `start` as long as the state is all zeros.
    LossScaleSeed {
        /// The first scale.
        start: f32,
    },
    /// `x → 1` if any element is NaN or its magnitude exceeds the largest number of `held`, else `0`, a scalar.
    NotFinite {
        /// The type that `x` is stored in until its update.
        held: DType,
    },
    /// `state [4], bad [], scalars [8] → scalars [8], 1/scale []`: whether the step counts, and in place the next scale.
    LossScale {
        /// How the scale moves.
        settings: LossScale,
        /// What of the scalars leaves out skipped steps.
        counting: Counting,
        /// Gradients are multiplied by the second result; the scalars then say that there is no scale left.
        early: bool,
    },
    /// `s, x, scalars → s'`: `s' = s + share (scale x - s)`, with the share that the step's scalars hold for Adafactor. `s`
    /// lives from step to step and is changed in place too.
    MovingAverage {
        /// Factor of `x`.
        scale: f32,
    },
    /// `x [n, c, h, w], w [o, c/g, kh, kw], bias [o]? → y [n, o, h', w']`, a cross-correlation as PyTorch's.
    Conv2d {
        /// The sliding kernel.
        window: Window,
        /// Channels are divided into this many groups.
        groups: usize,
        /// What `x` is.
        source: Source,
        /// What becomes of `y` before it is stored, of the same shape. Its operand 0 is `y`, the others follow the
        /// convolution's own.
        then: Option<Arc<Chain>>,
    },
    /// `y [n, o, h', w'], w [o, c/g, kh, kw], bias [c]? → x [n, c, h, w]`: the transpose of [`Op::Conv2d`] in its image.
    Conv2dInput {
        /// The sliding kernel.
        window: Window,
        /// Channels are divided into this many groups.
        groups: usize,
        /// `h, w`; several sizes give the same `h', w'`.
        size: [usize; 2],
        /// As for [`Op::Conv2d`].
        then: Option<Arc<Chain>>,
    },
    /// `x [n, c, h, w], dy [n, o, h', w'] → dw [o, c/g, kh, kw]`
    Conv2dWeight {
        /// The sliding kernel.
        window: Window,
        /// Channels are divided into this many groups.
        groups: usize,
        /// With it `x` is read as [`Source::Normed`], `mean, deviation⁻¹, γ, β` following `dy`.
        normed: Option<Activation>,
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
    /// `table [v, d], ids [..] → y [.., d]`, the rows that the ids name; an id of `v` or more is taken for `v - 1`. The table
    /// may be held in 16 bits.
    Embedding,
    /// `ids [..], dy [.., d], earlier [v, d]? → dtable [v, d]`: each row the sum of its `dy`, in the order of the ids,
    /// beside what `earlier` has; over `earlier` where nobody else reads it.
    EmbeddingGrad {
        /// `v`
        rows: usize,
    },
    /// `x [.., d], γ [d], β [d]? → γ x̂ + β [.., d], statistics [rows, 2 or 1]`, x̂ being the row normalised; RMS norm has
    /// no β. The statistics are those of [`RowNorm::statistics`].
    RowNorm {
        /// How a row is normalised.
        kind: RowNorm,
        /// ε
        eps: f32,
    },
    /// `x [.., d], statistics, γ [d], dy [.., d] → dx [.., d], dγ [d], dβ [d]?`
    RowNormGrad {
        /// How a row was normalised.
        kind: RowNorm,
    },
    /// `x [b, s, h, d] → y`: in the first `heads` heads elements `i` and `i + d/2` of position `p` (along `s`) are turned
    /// by `p base^(-2i/d)` radians: rotary position embedding (Su et al. 2021) with Hugging Face's `rotate_half`.
    Rotary {
        /// How many heads are turned; the others pass.
        heads: usize,
        /// Base of the frequencies.
        base: f32,
        /// Turns the other way: the gradient.
        back: bool,
    },
    /// Several of the above one after the other: operands → the last link's result.
    Chain(Arc<Chain>),
}

named! {
    impl Op {
        /// Every kind of operation.
        KINDS;
        /// The operation's kind, one of [`Op::KINDS`]; functions of elements are of one kind each.
        kind;
        Op::MatMul { .. } => "matmul",
        Op::Unary(_) => "unary",
        Op::UnaryGrad(_) => "unary_grad",
        Op::Mask(_) => "mask",
        Op::MaskGrad(_) => "mask_grad",
        Op::Binary(_) => "binary",
        Op::Reduce { kind: Reduction::Sum, .. } => "sum",
        Op::Reduce { kind: Reduction::Mean, .. } => "mean",
        Op::Reduce { kind: Reduction::Max, .. } => "max",
        Op::Reduce { kind: Reduction::SumSquares, .. } => "sum_squares",
        Op::Softmax { log: false } => "softmax",
        Op::Softmax { log: true } => "log_softmax",
        Op::SoftmaxGrad { .. } => "softmax_grad",
        Op::CrossEntropy => "cross_entropy",
        Op::CrossEntropyGrad => "cross_entropy_grad",
        Op::LabelShare => "label_share",
        Op::Reshape(_) => "reshape",
        Op::Permute(_) => "permute",
        Op::Expand(_) => "expand",
        Op::Slice { .. } => "slice",
        Op::Pad { .. } => "pad",
        Op::Concat { .. } => "concat",
        Op::Cast(_) => "cast",
        Op::Copy => "copy",
        Op::Fill { .. } => "fill",
        Op::Dropout { .. } => "dropout",
        Op::Update(Update::Sgd { .. }, _) => "sgd",
        Op::Update(Update::Momentum { .. }, _) => "momentum",
        Op::Update(Update::Adam { decoupled: false, .. }, _) => "adam",
        Op::Update(Update::Adam { decoupled: true, .. }, _) => "adamw",
        Op::ToHost { .. } => "to_host",
        Op::FromHost { .. } => "from_host",
        Op::Attention(_) => "attention",
        Op::AttentionGrad(_) => "attention_grad",
        Op::Update(Update::Lion { .. }, _) => "lion",
        Op::Update(Update::Adafactor { .. }, _) => "adafactor",
        Op::Update(Update::Adam8bit { .. }, _) => "adam8bit",
        Op::MovingAverage { .. } => "moving_average",
        Op::LossScaleSeed { .. } => "loss_scale_seed",
        Op::NotFinite { .. } => "not_finite",
        Op::LossScale { .. } => "loss_scale",
        Op::Conv2d { .. } => "conv2d",
        Op::Conv2dInput { .. } => "conv2d_input",
        Op::Conv2dWeight { .. } => "conv2d_weight",
        Op::MaxPool2d(_) => "max_pool2d",
        Op::MaxPool2dGrad { .. } => "max_pool2d_grad",
        Op::AvgPool2d(_) => "avg_pool2d",
        Op::AvgPool2dGrad { .. } => "avg_pool2d_grad",
        Op::BatchStats { .. } => "batch_stats",
        Op::BatchNorm(_) => "batch_norm",
        Op::BatchNormGrad { .. } => "batch_norm_grad",
        Op::RunningStats { .. } => "running_stats",
        Op::Resample { mode: Resample::Nearest, .. } => "upsample_nearest",
        Op::Resample { .. } => "upsample_bilinear",
        Op::ResampleGrad { .. } => "upsample_grad",
        Op::Embedding => "embedding",
        Op::EmbeddingGrad { .. } => "embedding_grad",
        Op::RowNorm { kind: RowNorm::Layer, .. } => "layer_norm",
        Op::RowNorm { kind: RowNorm::Rms, .. } => "rms_norm",
        Op::RowNormGrad { .. } => "row_norm_grad",
        Op::Rotary { .. } => "rotary",
        Op::Chain(_) => "chain",
    }
}

/// A label that counts for nothing: neither in the loss nor in its mean (PyTorch's `ignore_index`).
pub const IGNORE: u32 = u32::MAX;

impl Op {
    /// The name used in reports.
    pub fn name(&self) -> &'static str {
        if let Some(chain) = self.then() {
            return chain.name();
        }
        match self {
            Self::Unary(f) => f.name(),
            Self::Binary(f) => f.name(),
            Self::Chain(chain) => chain.name(),
            _ => self.kind(),
        }
    }

    /// What becomes of the result before it is stored; the first operand of that is the result.
    pub fn then(&self) -> Option<&Arc<Chain>> {
        match self {
            Self::MatMul { then, .. } | Self::Conv2d { then, .. } | Self::Conv2dInput { then, .. } => {
                then.as_ref()
            }
            _ => None,
        }
    }

    /// The same operation with `chain` behind it, or with nothing; `None` for operations that store nothing but their own.
    pub(crate) fn followed(&self, chain: Option<Chain>) -> Option<Self> {
        let mut op = self.clone();
        match &mut op {
            Self::MatMul { then, .. } | Self::Conv2d { then, .. } | Self::Conv2dInput { then, .. } => {
                *then = chain.map(Arc::new);
            }
            _ => return None,
        }
        Some(op)
    }

    /// Whether operand `i` may be held in 16 bits: it is widened while it is read.
    pub(crate) fn widens(&self, i: usize) -> bool {
        match self {
            Self::MatMul { .. } => i < 2,
            Self::Conv2d { source, .. } => i == 0 && *source != Source::Joined,
            Self::Conv2dWeight { .. } => i == 0,
            _ => false,
        }
    }

    /// How many of so many operands are the operation's own; those behind are for what becomes of its result.
    pub fn own(&self, operands: usize) -> usize {
        operands.saturating_sub(self.then().map_or(0, |chain| chain.operands() - 1))
    }

    /// Positions of the inputs that the operation changes in place.
    pub fn mutates(&self) -> &'static [usize] {
        match self {
            Self::Update(Update::Sgd { .. } | Update::Adafactor { .. }, _) | Self::MovingAverage { .. } => {
                &[0]
            }
            Self::Update(Update::Momentum { .. } | Update::Lion { .. }, _) => &[0, 3],
            Self::Update(Update::Adam8bit { .. }, _) => &[0, 3, 4, 5],
            Self::Update(Update::Adam { .. }, _) => &[0, 3, 4],
            Self::LossScale { .. } => &[0],
            Self::RunningStats { .. } => &[0, 1],
            _ => &[],
        }
    }

    /// Which random draw of the graph the operation makes, if it makes one. An operation and its gradient share a key.
    pub(crate) fn draw_key(&mut self) -> Option<&mut u32> {
        match self {
            Self::Dropout { key, .. } => Some(key),
            Self::Attention(attend) | Self::AttentionGrad(attend) if attend.dropout > 0.0 => {
                Some(&mut attend.key)
            }
            _ => None,
        }
    }

    /// How many results it has.
    pub fn results(&self) -> usize {
        match self {
            Self::Update(..) | Self::RunningStats { .. } | Self::ToHost { .. } => 0,
            Self::CrossEntropy
            | Self::MaxPool2d(_)
            | Self::Attention(_)
            | Self::RowNorm { .. }
            | Self::LossScale { .. } => 2,
            Self::AttentionGrad(attend) => attend.operands(),
            Self::RowNormGrad { kind: RowNorm::Rms } => 2,
            Self::BatchStats { .. } | Self::BatchNormGrad { .. } | Self::RowNormGrad { .. } => 3,
            _ => 1,
        }
    }
}
