//! How exactly an operation of the backward pass needs what the forward pass left for it.

use super::{Binary, Op, Unary};

/// What may become of an operand that is stored in 16 bits between the forward and the backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kept {
    /// It may be rounded: the result is a smooth function of it, evaluated at most half a unit in the last place away.
    Rounded,
    /// It may be rounded if the forward pass reads the rounded value too: the operation compares it, an exponential of it, or
    /// its distance from a mean, with another result of the forward pass.
    Consistent,
    /// It stays in 32 bits: zero and infinity matter, as in the list of operations that PyTorch's autocast runs in `float32`.
    Exact,
}

impl Op {
    /// What operand `i` may be, if it was made in the forward pass and is read in the backward pass. Every operation is named:
    /// a new one has to decide.
    pub fn kept(&self, i: usize) -> Kept {
        match self {
            // 1 / x, 1 / 2y and -y² are infinite where the stored number is 0, or wrong where it is the largest.
            Self::UnaryGrad(Unary::Log | Unary::Sqrt | Unary::Recip | Unary::Exp) if i == 0 => Kept::Exact,
            Self::Binary(Binary::Div) if i == 1 => Kept::Exact,
            // The gradient of a maximum finds where it came from.
            Self::Binary(Binary::Equal | Binary::Greater) => Kept::Consistent,
            // e^(x - lse), with the lse of the forward pass.
            Self::CrossEntropyGrad if i == 0 => Kept::Consistent,
            Self::AttentionGrad(attend) if i < attend.operands() => Kept::Consistent,
            // (x - mean) / deviation, with the statistics of the forward pass: where x is nearly constant, its rounding errors
            // are multiplied by 1 / √ε.
            Self::RowNormGrad { .. } | Self::BatchNormGrad { .. } if i == 0 => Kept::Consistent,
            Self::MatMul { .. }
            | Self::Unary(_)
            | Self::UnaryGrad(_)
            | Self::Mask(_)
            | Self::MaskGrad(_)
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
            | Self::Pad { .. }
            | Self::Concat { .. }
            | Self::Cast(_)
            | Self::Copy
            | Self::Fill { .. }
            | Self::Dropout { .. }
            | Self::Update(..)
            | Self::ToHost { .. }
            | Self::FromHost { .. }
            | Self::Attention(_)
            | Self::AttentionGrad(_)
            | Self::LossScaleSeed { .. }
            | Self::NotFinite { .. }
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
            | Self::RunningStats { .. }
            | Self::Resample { .. }
            | Self::ResampleGrad { .. }
            | Self::Embedding
            | Self::EmbeddingGrad { .. }
            | Self::RowNorm { .. }
            | Self::RowNormGrad { .. }
            | Self::Rotary { .. }
            | Self::Chain(_) => Kept::Rounded,
        }
    }
}
