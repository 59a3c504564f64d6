//! Precision that the backward pass needs of the tensors that the forward pass saves.

use super::{Binary, Op, Reduction, Results, Unary};

/// Whether an operand may be stored in 16 bits between the forward and the backward pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kept {
    /// It may be rounded: the result is a smooth function of it, evaluated at most half a unit in the last
    /// place away.
    #[default]
    Rounded,
    /// It may be rounded if the forward pass reads the rounded value too: the operation compares the operand,
    /// its exponential, or its distance from a mean, with another result of the forward pass.
    Consistent,
    /// It stays in 32 bits: zero and infinity matter, as for the operations that PyTorch's autocast runs in
    /// `float32`.
    Exact,
}

impl Op {
    /// Returns how operand `i` may be stored, if the forward pass computes it and the backward pass reads it.
    /// The match lists every operation, so that a new one has to decide.
    pub fn kept(&self, i: usize) -> Kept {
        match self {
            // 1 / x and 1 / 2y are infinite where the stored number is 0; -y² and y are wrong where y
            // saturated at the largest number.
            Self::UnaryGrad(f) if i == 0 && f.function().exact => Kept::Exact,
            Self::Binary(f) if f.function().exact.contains(&i) => Kept::Exact,
            // The gradient of a maximum compares to find the element that it came from.
            Self::Binary(f) if f.function().results == Results::Flags => Kept::Consistent,
            // Rounded numbers have more ties, and another order.
            Self::ArgSort { .. } => Kept::Exact,
            // e^(x - lse), with the lse of the forward pass. The backward pass begins with it: nothing would be saved.
            Self::CrossEntropyGrad if i == 0 => Kept::Exact,
            Self::AttentionGrad(attend) if i < attend.operands() => Kept::Consistent,
            // (x - mean) / deviation, with the statistics of the forward pass: where x is nearly constant,
            // its rounding errors are multiplied by 1 / √ε.
            Self::RowNormGrad { .. } | Self::BatchNormGrad { .. } if i == 0 => Kept::Consistent,
            Self::MatMul { .. }
            | Self::Unary(_)
            | Self::UnaryGrad(_)
            | Self::Mask(_)
            | Self::MaskGrad(_)
            | Self::Quantise { .. }
            | Self::Binary(_)
            | Self::Reduce { .. }
            | Self::Softmax { .. }
            | Self::SoftmaxGrad { .. }
            | Self::CrossEntropy
            | Self::CrossEntropyGrad
            | Self::LabelShare
            | Self::Reshape(_)
            | Self::Permute(_)
            | Self::Expand(_)
            | Self::Slice { .. }
            | Self::Stride { .. }
            | Self::Place { .. }
            | Self::Iota { .. }
            | Self::Gather { .. }
            | Self::ScatterAdd { .. }
            | Self::Detach
            | Self::Concat { .. }
            | Self::Cast(_)
            | Self::Copy
            | Self::Fill { .. }
            | Self::Dropout { .. }
            | Self::Update { .. }
            | Self::ToHost { .. }
            | Self::FromHost { .. }
            | Self::Send { .. }
            | Self::Receive { .. }
            | Self::Replace { .. }
            | Self::SumParts { .. }
            | Self::SumRanks { .. }
            | Self::Attention(_)
            | Self::AttentionGrad(_)
            | Self::CachedAttention(_)
            | Self::LossScaleSeed { .. }
            | Self::NotFinite
            | Self::LossScale { .. }
            | Self::MovingAverage { .. }
            | Self::Conv2d { .. }
            | Self::Conv2dInput { .. }
            | Self::Conv2dWeight { .. }
            | Self::MaxPool2d(_)
            | Self::MaxPool2dGrad { .. }
            | Self::AvgPool2d(_)
            | Self::AvgPool2dGrad { .. }
            | Self::BatchStats { .. }
            | Self::BatchNorm(_)
            | Self::BatchNormGrad { .. }
            | Self::RunningStats(_)
            | Self::Resample { .. }
            | Self::ResampleGrad { .. }
            | Self::Embedding
            | Self::EmbeddingGrad { .. }
            | Self::RowNorm { .. }
            | Self::RowNormGrad { .. }
            | Self::Rotary { .. }
            | Self::Gates(_)
            | Self::GatesGrad(_)
            | Self::Custom(_)
            | Self::Fused(_) => Kept::Rounded,
        }
    }

    /// Whether operand `i`, computed by the forward pass and read by the backward pass, may be stored in 8 or 4 bits: the result is
    /// linear in it, or a function without kinks whose slope is bounded, so that the error of the result is at most proportional. ReLUs and
    /// clamps are computed again from codes, but their gradients read masks.
    pub fn takes_codes(&self, i: usize) -> bool {
        match self {
            Self::MatMul { .. } | Self::Conv2dInput { .. } => true,
            Self::Conv2dWeight { .. }
            | Self::BatchNorm(_)
            | Self::BatchNormGrad { .. }
            | Self::RowNorm { .. }
            | Self::RowNormGrad { .. }
            | Self::SoftmaxGrad { log: false } => i == 0,
            Self::Unary(f) => smooth(*f) || f.has_two_slopes(),
            Self::UnaryGrad(f) => i == 0 && smooth(*f),
            Self::Binary(f) => matches!(f, Binary::Add | Binary::Sub | Binary::Mul),
            Self::Reduce { kind: Reduction::Sum | Reduction::Mean, .. } => true,
            Self::Reshape(_)
            | Self::Permute(_)
            | Self::Expand(_)
            | Self::Slice { .. }
            | Self::Stride { .. }
            | Self::Place { .. }
            | Self::Concat { .. }
            | Self::Copy
            | Self::Dropout { .. }
            | Self::AvgPool2d(_)
            | Self::Resample { .. } => true,
            _ => false,
        }
    }
}

fn smooth(f: Unary) -> bool {
    matches!(
        f,
        Unary::Square
            | Unary::Gelu
            | Unary::GeluTanh
            | Unary::Silu
            | Unary::Sigmoid
            | Unary::Tanh
            | Unary::Scale(_)
            | Unary::Offset(_)
            | Unary::Neg
    )
}
