//! The operations of a graph, each with its formula. Shapes are row-major; `·` is the matrix product.

mod attention;
mod binary;
mod fused;
mod images;
mod kept;
mod loss_scale;
mod names;
mod reduction;
mod rows;
pub(crate) mod special;
mod unary;
mod update;

pub use attention::{Attend, AttendSizes, Band, MAX_HEAD};
pub use binary::Binary;
pub(crate) use binary::{Pair, Results, largest};
pub use fused::{Arg, FusedElementwise, FusedOp, Read};
pub(crate) use fused::{can_fuse, only_reads, reads};
pub use images::{Activation, Averaging, Resample, Running, Source};
pub use kept::Kept;
pub use loss_scale::{Counting, LossScale};
pub use reduction::Reduction;
pub use rows::{Gates, RowNorm};
#[cfg(any(test, feature = "gpu"))]
pub(crate) use unary::Domain;
pub(crate) use unary::sigmoid;
pub use unary::{Saves, Unary};
pub(crate) use update::{CORRECTION, corrections};
pub use update::{MomentCodes, Share, Stored, Update};

use std::sync::Arc;

use super::custom::CustomKernel;
use super::rope::Rope;
use super::window::Window;
use crate::dtype::DType;
use crate::shape::Shape;

/// One operation. Inputs and outputs are listed as `inputs → outputs`.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// `A, B → C = op(A) · op(B)`, where op transposes the last two dimensions if its flag is set. Leading
    /// dimensions are batches; they are equal or broadcast.
    MatMul {
        /// Transpose `A`.
        ta: bool,
        /// Transpose `B`.
        tb: bool,
        /// Epilogue applied to `C` before it is stored. Operand 0 of the epilogue is `C`; its other operands
        /// follow those of the product.
        then: Option<Arc<FusedElementwise>>,
    },
    /// `x → f(x)`
    Unary(Unary),
    /// `s, dy → dy f'(·)`, where `s` is what [`Unary::saves`] returns.
    UnaryGrad(Unary),
    /// `s → bits [n / 32]`: set where `f'` is 1; `s` is what [`Unary::saves`] returns. For functions with
    /// only one other slope.
    Mask(Unary),
    /// `bits, dy → dy f'(·)`, from [`Op::Mask`].
    MaskGrad(Unary),
    /// `x, step scalars → x` as [`DType::Uint8`] or [`DType::Uint4`], rounded stochastically. A group
    /// of 64 with NaN or infinity is all NaN.
    Quantise {
        /// What it is stored as.
        dtype: DType,
        /// Which random numbers are drawn.
        key: u32,
    },
    /// `a, b → f(a, b)`
    Binary(Binary),
    /// `x → y`, reduced over the axes in `axes`; they remain, with length 1.
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
    /// `logits [n, c], labels [n] → loss [n], lse [n, 2]`: `loss = Σ lse - logits[label]`, 0 where the label
    /// is [`IGNORE`]; `lse` holds the row's maximum and `ln Σ e^(logits - max)` separately, so that large
    /// logits keep their precision.
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
    /// `x → y` with `y[.., i, ..] = x[.., start + step i, ..]` along `axis`; a negative step reverses.
    Stride {
        /// Which dimension.
        axis: usize,
        /// First index.
        start: usize,
        /// From one index to the next; not 0.
        step: isize,
        /// How many.
        len: usize,
    },
    /// `x → y`: zeros of length `len` along `axis`, but `y[.., start + step i, ..] = x[.., i, ..]`: padding,
    /// and the transpose of [`Op::Stride`].
    Place {
        /// Which dimension.
        axis: usize,
        /// Index of the first element.
        start: usize,
        /// From one index to the next; not 0.
        step: isize,
        /// Length of the result.
        len: usize,
    },
    /// `x₀, x₁, … → y` along `axis`.
    Concat {
        /// Which dimension.
        axis: usize,
    },
    /// `x → x` in another element type. `f32 → u32` truncates and saturates. `f32 → f16, bf16` rounds to
    /// nearest, ties to even; numbers beyond the largest finite one, infinities included, become that number;
    /// NaN stays NaN.
    Cast(DType),
    /// `x → x`, a copy in separate memory.
    Copy,
    /// `x → x` without a gradient. A pass removes it after differentiation.
    Detach,
    /// `→ y`, every element the same.
    Fill {
        /// Shape of the result.
        shape: Shape,
        /// The element.
        value: f32,
    },
    /// `→ y`, the index of each element along `axis`.
    Iota {
        /// Shape of the result.
        shape: Shape,
        /// Which dimension.
        axis: usize,
    },
    /// `x, ids → y`: along `axis`, the elements of `x` at `ids`. Other dimensions of `ids` are those of `x` or 1,
    /// which repeats them. An id past the end reads the last element.
    Gather {
        /// Which dimension.
        axis: usize,
    },
    /// `ids, dy → y`: zeros of length `len` along `axis`, to which each `dy` is added at its id, in their order: the
    /// transpose of [`Op::Gather`].
    ScatterAdd {
        /// Which dimension.
        axis: usize,
        /// Length of the result.
        len: usize,
    },
    /// `x → ids`: the indices along the last axis that sort its rows; equal elements keep their order, and NaN counts
    /// as the largest number.
    ArgSort {
        /// Largest first.
        descending: bool,
    },
    /// `x, scalars → x m / (1 - p)`. The mask m is drawn per element from (seed, step / `every`, `key`), so a
    /// recomputation draws the same mask.
    Dropout {
        /// Probability that an element becomes 0.
        p: f64,
        /// Key of the random draw.
        key: u32,
        /// Steps that draw the same mask.
        every: u32,
    },
    /// Changes its inputs in place; no outputs. The parameter may be stored in 16 bits: it is widened to
    /// `f32`, and the new value is rounded.
    Update {
        /// The rule.
        rule: Update,
        /// Factor of the step's learning rate: [`ParamGroup::rate`](super::ParamGroup).
        rate: f32,
        /// How the new weight is rounded.
        stored: Stored,
        /// The elements of the parameter that it updates; `None` for all. Gradient and state are of these elements or of
        /// all.
        share: Option<Share>,
    },
    /// `x →`: offloads `x` to host memory, to a numbered slot. Only plans add it.
    ToHost {
        /// The slot.
        slot: u32,
    },
    /// `→ x`: restores from host memory what [`Op::ToHost`] offloaded to that slot.
    FromHost {
        /// The slot.
        slot: u32,
    },
    /// `x, token? → token []`: copies `x` to host memory, to its place among the words that an exchange of
    /// [`Graph::exchanges`](super::Graph::exchanges) sends. Tokens hold nothing: they put sends and receives
    /// in one order, the same on all ranks. Only plans add it.
    Send {
        /// Index of the exchange.
        exchange: u32,
        /// First word.
        start: u64,
        /// The elements of `x` that are sent, a parameter's, after their update; `None` for all of `x`.
        share: Option<Share>,
    },
    /// `w, token → token []`: overwrites a parameter with words that an exchange received. Only plans add it.
    Replace {
        /// Index of the exchange.
        exchange: u32,
        /// First word.
        start: u64,
    },
    /// `token → x, token []`: copies `x` from the words that an exchange received. Only plans add it.
    Receive {
        /// Index of the exchange.
        exchange: u32,
        /// First word.
        start: u64,
        /// Shape of `x`.
        shape: Shape,
        /// Element type of `x`.
        dtype: DType,
    },
    /// `q [b, s, h, d], k [b, t, hkv, d], v [b, t, hkv, d], documents?, scalars? → o [b, s, h, d], lse [b, h, s]`, or packed,
    /// `qkv [b, s, h + 2 hkv, d], documents?, scalars? → o, lse`; `lse = ln Σ e^score` over the keys that a query sees.
    Attention(Attend),
    /// `q, k, v, o, lse, do, documents?, scalars? → dq, dk, dv`, or packed, `qkv, o, lse, do, documents?, scalars? → dqkv`
    AttentionGrad(Attend),
    /// `q [b, s, h, d], k [b, s, hkv, d], v, cached k [p, t, hkv, d], cached v, pages [b, n], length [b] → o [b, s, h, d]`: row
    /// `j` of a text is row `j % t` of page `pages[j / t]` of the caches. Query `i` sees the first `length` rows of its text and
    /// then rows `0..=i` of `k` and `v`, as far as the band reaches. Rows of `k` and `v` are stored into the caches, from row
    /// `length` of the text on; those past its pages, and those of a page from `p` on, are not; such a page is read as page
    /// `p - 1`. The caches may be stored in 16 bits, or in codes. Forward passes only.
    CachedAttention(Attend),
    /// `x [n, ..], sum? → sum + x[0] + x[1] + ..`, in this order: the parts that ranks sent, added as one device adds them.
    /// Only plans add it.
    SumParts {
        /// Shape of the sum and of each part.
        shape: Shape,
    },
    /// `x → Σ x` over the ranks that compute a layer together; with `of_gradient`, `x → x`, whose gradient is that sum.
    /// Only plans add it, and replace it by sends, receives and sums.
    SumRanks {
        /// Whether the gradient is summed, in place of the tensor.
        of_gradient: bool,
    },
    /// `state [4] → scale []`: the initial gradient of the loss; `start` while the state is all zeros.
    LossScaleSeed {
        /// The first scale.
        start: f32,
    },
    /// `flag [], x₀, x₁, … → flag`: 1 if an element is NaN or infinite or, in a tensor of 16 bits, has the largest
    /// magnitude, which is stored of what is beyond it; else as before. The result may overwrite the operand.
    NotFinite,
    /// `state [4], bad [], scalars [9] → scalars [9], 1/scale []`: decides whether the step is skipped, and
    /// updates the scale in place.
    LossScale {
        /// How the scale changes.
        settings: LossScale,
        /// Which of the scalars leave out skipped steps.
        counting: Counting,
        /// Gradients are unscaled with the second result before the update; the resulting scalars then have
        /// an `unscale` of 1.
        early: bool,
    },
    /// `s, x, scalars → s'`: `s' = s + share (scale x - s)`. `s` persists across steps and is also changed in place.
    MovingAverage {
        /// Factor of `x`.
        scale: f32,
        /// The share; `None` for Adafactor's, from the step scalars.
        share: Option<f32>,
    },
    /// `x [n, c, h, w], w [o, c/g, kh, kw], bias [o]? → y [n, o, h', w']`, a cross-correlation as in PyTorch.
    Conv2d {
        /// The sliding kernel.
        window: Window,
        /// Channels are divided into this many groups.
        groups: usize,
        /// What `x` is.
        source: Source,
        /// Epilogue applied to `y` before it is stored, of the same shape. Operand 0 of the epilogue is `y`;
        /// its other operands follow those of the convolution.
        then: Option<Arc<FusedElementwise>>,
    },
    /// `y [n, o, h', w'], w [o, c/g, kh, kw], bias [c]? → x [n, c, h, w]`: the transpose of [`Op::Conv2d`]
    /// with respect to `x`.
    Conv2dInput {
        /// The sliding kernel.
        window: Window,
        /// Channels are divided into this many groups.
        groups: usize,
        /// `h, w`; several sizes give the same `h', w'`.
        size: [usize; 2],
        /// As for [`Op::Conv2d`].
        then: Option<Arc<FusedElementwise>>,
    },
    /// `x [n, c, h, w], dy [n, o, h', w'] → dw [o, c/g, kh, kw]`
    Conv2dWeight {
        /// The sliding kernel.
        window: Window,
        /// Channels are divided into this many groups.
        groups: usize,
        /// If set, `x` is read as [`Source::Normed`], and `mean, deviation⁻¹, γ, β` follow `dy`.
        normed: Option<Activation>,
    },
    /// `x [n, c, h, w] → y [n, c, h', w'], at`: maxima, and the position of each in its window as a byte,
    /// four to a word.
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
    /// `x [n, c, h, w], running? → mean [c], 1/√(var + ε) [c], var [c]` over all axes but `c`, with the biased
    /// variance. With running statistics, mean and variance, it does what [`Op::RunningStats`] does as well.
    BatchStats {
        /// ε
        eps: f32,
        /// How running statistics move. Only plans set it.
        running: Option<Running>,
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
    /// Updates running statistics in place; no outputs. Inputs: `running mean [c], running var [c], mean, var`, the latter `[c]`
    /// or, of several parts of a batch one after another, `[parts, c]`.
    RunningStats(Running),
    /// `x [n, c, h, w] → y [n, c, h', w']`
    Resample {
        /// Interpolation between pixels.
        mode: Resample,
        /// `h', w'`
        size: [usize; 2],
    },
    /// `dy [n, c, h', w'] → dx [n, c, h, w]`
    ResampleGrad {
        /// Interpolation of the forward pass.
        mode: Resample,
        /// `h, w`
        size: [usize; 2],
    },
    /// `table [v, d], ids [..] → y [.., d]`, the rows selected by the ids; an id of `v` or more reads row
    /// `v - 1`. The table may be stored in 16 bits.
    Embedding,
    /// `ids [..], dy [.., d], earlier [v, d]? → dtable [v, d]`: each row is the sum of its `dy`, in the order
    /// of the ids, plus the row of `earlier`. The result overwrites `earlier` if nothing else reads it.
    EmbeddingGrad {
        /// `v`
        rows: usize,
        /// Computes these elements of `dtable` alone: `earlier [len]? → [len]`. They begin and end at multiples of 4, or with it.
        share: Option<Share>,
    },
    /// `x [.., d], γ [d], β [d]? → γ x̂ + β [.., d], statistics [rows, 2 or 1]`, where x̂ is the normalised
    /// row; RMS norm has no β. [`RowNorm::statistics`] describes the statistics.
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
    /// `x [b, s, h, d], positions [b, s]? → y`: in the first `heads` heads elements `i` and `i + d/2` of position `p` (along
    /// `s`, or as `positions` says) are rotated by `p` times the frequency of pair `i`: rotary position embedding (Su et al. 2021) with Hugging
    /// Face's `rotate_half`.
    Rotary {
        /// Number of rotated heads; the others are unchanged.
        heads: usize,
        /// Frequencies of the pairs.
        rope: Rope,
        /// Rotates in the opposite direction, for the gradient.
        back: bool,
    },
    /// What a step of a recurrent layer computes after its products. LSTM: `x [n, 4 h], c [n, h] → o tanh c', c' [n, h]`
    /// with `c' = f c + i g` and `i, f, o = σ(x)`, `g = tanh x`. GRU: `x [n, 3 h], u [n, 3 h], y [n, h] → m + z (y - m)
    /// [n, h]` with `r, z = σ(x + u)` and `m = tanh(x + r u)`.
    Gates(Gates),
    /// LSTM: `x, c, c', dy, dc' → dx, dc`. GRU: `x, u, y, dy' → dx, du, dy`.
    GatesGrad(Gates),
    /// A fused chain of element-wise operations: operands → the last link's result.
    Fused(Arc<FusedElementwise>),
    /// A kernel of the model's own: operands → its result ([`Trace::kernel`](crate::graph::Trace::kernel)).
    Custom(Arc<CustomKernel>),
}

/// A label that is ignored, in the loss and in its mean (PyTorch's `ignore_index`).
pub const IGNORE: u32 = u32::MAX;

impl Op {
    /// Returns the name used in reports.
    pub fn name(&self) -> &'static str {
        if let Some(chain) = self.epilogue() {
            return chain.name();
        }
        match self {
            Self::Unary(f) => f.name(),
            Self::Binary(f) => f.name(),
            Self::Fused(chain) => chain.name(),
            _ => self.kind(),
        }
    }

    /// Returns the epilogue applied to the result before it is stored. Operand 0 of the epilogue is the
    /// result.
    pub fn epilogue(&self) -> Option<&Arc<FusedElementwise>> {
        match self {
            Self::MatMul { then, .. } | Self::Conv2d { then, .. } | Self::Conv2dInput { then, .. } => {
                then.as_ref()
            }
            _ => None,
        }
    }

    /// Returns the same operation with `chain` as its epilogue, or without one; `None` for operations that
    /// cannot have an epilogue.
    pub(crate) fn with_epilogue(&self, chain: Option<FusedElementwise>) -> Option<Self> {
        let mut op = self.clone();
        match &mut op {
            Self::MatMul { then, .. } | Self::Conv2d { then, .. } | Self::Conv2dInput { then, .. } => {
                *then = chain.map(Arc::new);
            }
            _ => return None,
        }
        Some(op)
    }

    /// Whether operand `i` may be stored in 16 bits; it is widened while it is read.
    pub(crate) fn widens(&self, i: usize) -> bool {
        match self {
            Self::MatMul { .. } => i < 2,
            Self::Conv2d { source, .. } => i == 0 && *source != Source::Joined,
            Self::Conv2dWeight { .. }
            | Self::RowNorm { .. }
            | Self::RowNormGrad { .. }
            | Self::BatchStats { .. }
            | Self::BatchNorm(_)
            | Self::BatchNormGrad { .. }
            | Self::Reduce { kind: Reduction::SumSquares, .. } => i == 0,
            Self::Update { .. } => i == 1,
            _ => false,
        }
    }

    /// Whether operand `i` may have these codes of 4 or 8 bits, of frozen weights, which are decoded while it is read.
    pub(crate) fn reads_codes(&self, i: usize, dtype: DType) -> bool {
        let own = match self {
            Self::MatMul { .. } => i == 1,
            Self::Reduce { kind: Reduction::SumSquares, .. } => i == 0,
            _ => false,
        };
        own && !dtype.is_affine()
    }

    /// Returns how many of `operands` are the operation's own; those after them belong to the epilogue.
    pub(crate) fn main_inputs(&self, operands: usize) -> usize {
        operands.saturating_sub(self.epilogue().map_or(0, |chain| chain.operands() - 1))
    }

    /// Returns the positions of the inputs that the operation changes in place.
    pub fn mutates(&self) -> &'static [usize] {
        match self {
            Self::Update { rule, stored, .. } => rule.mutates(*stored == Stored::Corrected),
            Self::MovingAverage { .. } => &[0],
            Self::LossScale { .. } | Self::Replace { .. } => &[0],
            // It changes nothing, and waits for the update.
            Self::Send { share: Some(_), .. } => &[0],
            Self::RunningStats(_) => &[0, 1],
            Self::BatchStats { running: Some(_), .. } => &[1, 2],
            Self::CachedAttention(_) => &Attend::CACHES,
            _ => &[],
        }
    }

    /// Returns the key of the operation's random draw, if it makes one. An operation and its gradient share a
    /// key.
    pub(crate) fn draw_key(&mut self) -> Option<&mut u32> {
        match self {
            Self::Dropout { key, .. } => Some(key),
            Self::Attention(attend) | Self::AttentionGrad(attend) if attend.dropout > 0.0 => {
                Some(&mut attend.key)
            }
            _ => None,
        }
    }

    /// Whether the operation copies between the device and host memory and computes nothing.
    pub(crate) fn moves(&self) -> bool {
        self.exchanges() || matches!(self, Self::ToHost { .. } | Self::FromHost { .. })
    }

    /// Whether the operation is part of an exchange between ranks.
    pub(crate) fn exchanges(&self) -> bool {
        matches!(self, Self::Send { .. } | Self::Receive { .. } | Self::Replace { .. })
    }

    /// Returns the number of results.
    pub fn results(&self) -> usize {
        match self {
            Self::Update { .. } | Self::RunningStats(_) | Self::ToHost { .. } => 0,
            Self::Gates(Gates::Lstm) | Self::GatesGrad(Gates::Lstm) => 2,
            Self::GatesGrad(Gates::Gru) => 3,
            Self::CrossEntropy
            | Self::MaxPool2d(_)
            | Self::Receive { .. }
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
