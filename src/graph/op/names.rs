//! The name of every operation, and the numbers that its sizes depend on.

use super::super::window::Window;
use super::{Averaging, Gates, MomentCodes, Op, Reduction, Resample, RowNorm, Update};

/// Defines a name for each variant: a function that returns it, and a list of all names. A new variant must
/// be named.
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

named! {
    impl Op {
        /// Every kind of operation.
        KINDS;
        /// Returns the operation's kind, one of [`Op::KINDS`]; all unary functions are one kind, and so are
        /// all binary ones.
        kind;
        Op::MatMul { .. } => "matmul",
        Op::Unary(_) => "unary",
        Op::UnaryGrad(_) => "unary_grad",
        Op::Mask(_) => "mask",
        Op::MaskGrad(_) => "mask_grad",
        Op::Quantise { .. } => "quantise",
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
        Op::Stride { .. } => "stride",
        Op::Place { .. } => "pad",
        Op::Iota { .. } => "iota",
        Op::Gather { .. } => "gather",
        Op::ScatterAdd { .. } => "scatter_add",
        Op::ArgSort { .. } => "argsort",
        Op::Detach => "detach",
        Op::Concat { .. } => "concat",
        Op::Cast(_) => "cast",
        Op::Copy => "copy",
        Op::Fill { .. } => "fill",
        Op::Dropout { .. } => "dropout",
        Op::Update { rule: Update::Sgd { .. }, .. } => "sgd",
        Op::Update { rule: Update::Momentum { .. }, .. } => "momentum",
        Op::Update { rule: Update::Adam { decoupled: false, .. }, .. } => "adam",
        Op::Update { rule: Update::Adam { decoupled: true, .. }, .. } => "adamw",
        Op::ToHost { .. } => "to_host",
        Op::FromHost { .. } => "from_host",
        Op::Send { .. } => "send",
        Op::Receive { .. } => "receive",
        Op::Replace { .. } => "replace",
        Op::SumParts { .. } => "sum_parts",
        Op::SumRanks { .. } => "sum_ranks",
        Op::Attention(_) => "attention",
        Op::AttentionGrad(_) => "attention_grad",
        Op::CachedAttention(_) => "cached_attention",
        Op::Update { rule: Update::Lion { .. }, .. } => "lion",
        Op::Update { rule: Update::RmsProp { keep: 1.0, .. }, .. } => "adagrad",
        Op::Update { rule: Update::RmsProp { .. }, .. } => "rmsprop",
        Op::Update { rule: Update::Adafactor { .. }, .. } => "adafactor",
        Op::Update { rule: Update::AdamCodes { codes: MomentCodes::Eight, .. }, .. } => "adam8bit",
        Op::Update { rule: Update::AdamCodes { codes: MomentCodes::Four, .. }, .. } => "adam4bit",
        Op::Update { rule: Update::AdamMini { .. }, .. } => "adammini",
        Op::MovingAverage { .. } => "moving_average",
        Op::LossScaleSeed { .. } => "loss_scale_seed",
        Op::NotFinite => "not_finite",
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
        Op::RunningStats(_) => "running_stats",
        Op::Resample { mode: Resample::Nearest, .. } => "upsample_nearest",
        Op::Resample { .. } => "upsample_bilinear",
        Op::ResampleGrad { .. } => "upsample_grad",
        Op::Embedding => "embedding",
        Op::EmbeddingGrad { .. } => "embedding_grad",
        Op::RowNorm { kind: RowNorm::Layer, .. } => "layer_norm",
        Op::RowNorm { kind: RowNorm::Rms, .. } => "rms_norm",
        Op::RowNormGrad { .. } => "row_norm_grad",
        Op::Rotary { .. } => "rotary",
        Op::Gates(Gates::Lstm) => "lstm_gates",
        Op::Gates(Gates::Gru) => "gru_gates",
        Op::GatesGrad(_) => "gates_grad",
        Op::Fused(_) => "chain",
        Op::Custom(_) => "custom",
    }
}

impl Op {
    /// Returns the numbers from which sizes are computed. They are checked against
    /// [`MAX_DIM`](crate::shape::MAX_DIM) before.
    pub(in crate::graph) fn numbers(&self) -> Vec<usize> {
        let of = |window: &Window| [window.kernel, window.stride, window.padding, window.dilation].concat();
        let averaged = |over: &Averaging| match over {
            Averaging::Window { window, .. } => of(window),
            Averaging::Adaptive(size) => size.to_vec(),
        };
        match self {
            Self::Reshape(shape)
            | Self::Expand(shape)
            | Self::Fill { shape, .. }
            | Self::Iota { shape, .. } => shape.dims().to_vec(),
            Self::Permute(axes) => axes.clone(),
            Self::Slice { axis, start, len } => vec![*axis, *start, *len],
            Self::Stride { axis, start, step, len } | Self::Place { axis, start, step, len } => {
                vec![*axis, *start, step.unsigned_abs(), *len]
            }
            Self::Gather { axis } => vec![*axis],
            Self::ScatterAdd { axis, len } => vec![*axis, *len],
            Self::Concat { axis } => vec![*axis],
            Self::Conv2d { window, groups, .. } | Self::Conv2dWeight { window, groups, .. } => {
                [of(window), vec![*groups]].concat()
            }
            Self::Conv2dInput { window, groups, size, .. } => {
                [of(window), vec![*groups], size.to_vec()].concat()
            }
            Self::MaxPool2d(window) => of(window),
            Self::MaxPool2dGrad { window, size } => [of(window), size.to_vec()].concat(),
            Self::AvgPool2d(over) => averaged(over),
            Self::AvgPool2dGrad { over, size } => [averaged(over), size.to_vec()].concat(),
            Self::Resample { size, .. } | Self::ResampleGrad { size, .. } => size.to_vec(),
            Self::EmbeddingGrad { rows, share } => {
                let share = share.iter().flat_map(|share| [share.start, share.len]);
                share.map(|number| number as usize).chain([*rows]).collect()
            }
            Self::Rotary { heads, .. } => vec![*heads],
            Self::Custom(own) => own.result.0.dims().to_vec(),
            Self::Attention(attend) | Self::AttentionGrad(attend) | Self::CachedAttention(attend) => {
                attend.packed.map_or(Vec::new(), |heads| heads.to_vec())
            }
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
            | Self::Cast(_)
            | Self::Copy
            | Self::Detach
            | Self::ArgSort { .. }
            | Self::Dropout { .. }
            | Self::Update { .. }
            | Self::ToHost { .. }
            | Self::FromHost { .. }
            | Self::Send { .. }
            | Self::Receive { .. }
            | Self::Replace { .. }
            | Self::SumParts { .. }
            | Self::SumRanks { .. }
            | Self::LossScaleSeed { .. }
            | Self::NotFinite
            | Self::LossScale { .. }
            | Self::MovingAverage { .. }
            | Self::BatchStats { .. }
            | Self::BatchNorm(_)
            | Self::BatchNormGrad { .. }
            | Self::RunningStats(_)
            | Self::Embedding
            | Self::RowNorm { .. }
            | Self::RowNormGrad { .. }
            | Self::Gates(_)
            | Self::GatesGrad(_)
            | Self::Fused(_) => Vec::new(),
        }
    }
}
