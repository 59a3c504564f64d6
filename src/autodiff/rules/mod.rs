//! One rule for each operation: the vector-Jacobian product. The rule determines what is saved for the
//! backward pass.

mod attention;
mod elementwise;
mod images;
mod linear;
mod loss;
mod movement;
mod recurrent;
mod reduce;
mod rows;

use crate::dtype::DType;
use crate::graph::{CustomKernel, Op, Source, Tensor};

/// A node to which a rule is applied.
pub(super) struct Site<'a> {
    /// Operands of the forward operation.
    pub inputs: &'a [Tensor],
    /// Results of the forward operation.
    pub outputs: &'a [Tensor],
    /// Gradients of the results; `None` if the loss does not depend on a result.
    pub dys: &'a [Option<Tensor>],
    /// Which operands need a gradient.
    pub wants: &'a [bool],
    /// For a batch norm: whether its statistics were computed from its input.
    pub training: bool,
    /// For an operation that [adds onto](adds_onto) it: the gradient already accumulated for that operand.
    pub earlier: Option<Tensor>,
}

/// Returns the operand for which the operation's rule adds to the accumulated gradient in place.
pub(super) fn adds_onto(op: &Op) -> Option<usize> {
    matches!(op, Op::Embedding).then_some(0)
}

impl Site<'_> {
    /// Returns the gradient of the first result. Few rules need gradients of other results.
    fn dy(&self) -> &Tensor {
        self.dys[0].as_ref().expect("differentiate skips nodes without a gradient")
    }

    /// Computes the gradient of operand `i` if it is needed.
    fn want(&self, i: usize, dx: impl FnOnce() -> Tensor) -> Option<Tensor> {
        self.wants[i].then(dx)
    }
}

/// Reports that a kernel without a gradient needs one.
fn no_gradient(own: &CustomKernel, operand: &Tensor) -> Tensor {
    let message = format!(
        "kernel `{}` has no gradient, and what it reads needs one: give it one by `with_gradient`, or `detach` the result",
        own.name
    );
    operand.mistake(message, operand.shape())
}

/// Returns the gradients of the operands; `None` if there is none or it is not needed.
pub(super) fn vjp(op: &Op, site: &Site) -> Vec<Option<Tensor>> {
    match op {
        Op::MatMul { ta, tb, then: None } => linear::matmul(site, *ta, *tb),
        Op::Unary(f) => vec![site.want(0, || elementwise::unary(site, *f))],
        Op::Binary(f) => elementwise::binary(site, *f),
        Op::Reduce { kind, axes } => vec![site.want(0, || reduce::reduce(site, *kind, *axes))],
        Op::Softmax { log } => vec![site.want(0, || loss::softmax(site, *log))],
        Op::CrossEntropy => vec![site.want(0, || loss::cross_entropy(site)), None],
        Op::Reshape(_) | Op::Copy => vec![site.want(0, || site.dy().reshape(site.inputs[0].shape()))],
        Op::SumRanks { of_gradient: false } => vec![site.want(0, || site.dy().clone())],
        Op::SumRanks { of_gradient: true } => vec![site.want(0, || site.dy().sum_ranks())],
        Op::Permute(perm) => vec![site.want(0, || movement::permute(site, perm))],
        Op::Expand(_) => vec![site.want(0, || site.dy().sum_to(site.inputs[0].shape()))],
        Op::Slice { axis, start, len } => vec![site.want(0, || movement::slice(site, *axis, *start, *len))],
        Op::Stride { axis, start, step, .. } => {
            vec![site.want(0, || movement::stride(site, *axis, *start, *step))]
        }
        Op::Place { axis, start, step, .. } => {
            vec![site.want(0, || movement::place(site, *axis, *start, *step))]
        }
        Op::Gather { axis } => vec![site.want(0, || movement::gather(site, *axis)), None],
        Op::ScatterAdd { axis, .. } => vec![None, site.want(1, || movement::scatter_add(site, *axis))],
        Op::Concat { axis } => movement::concat(site, *axis),
        Op::Dropout { .. } => vec![site.want(0, || elementwise::dropout(site, op)), None],
        Op::Attention(attend) => attention::attention(site, *attend),
        Op::Conv2d { window, groups, source: Source::Tensor, then: None } => {
            images::conv2d(site, *window, *groups)
        }
        Op::Conv2dInput { window, groups, then: None, .. } => images::conv2d_input(site, *window, *groups),
        Op::MaxPool2d(window) => vec![site.want(0, || images::max_pool2d(site, *window))],
        Op::AvgPool2d(over) => vec![site.want(0, || images::avg_pool2d(site, *over))],
        Op::Resample { mode, .. } => vec![site.want(0, || images::resample(site, *mode))],
        Op::BatchNorm(activation) => images::batch_norm(site, *activation, site.training),
        Op::BatchStats { .. } => vec![site.want(0, || images::batch_stats(site))],
        Op::Embedding => vec![site.want(0, || rows::embedding(site)), None],
        Op::RowNorm { kind, .. } => rows::norm(site, *kind),
        Op::Rotary { .. } => vec![site.want(0, || rows::rotary(site, op)), None],
        Op::Gates(gates) => recurrent::gates(site, *gates),
        Op::Custom(own) => {
            (0..site.inputs.len()).map(|i| site.want(i, || no_gradient(own, &site.inputs[i]))).collect()
        }
        // A cast between floats passes its gradient, which is f32 for every operand type.
        Op::Cast(to) => {
            let smooth = *to != DType::U32 && site.inputs[0].dtype() != DType::U32;
            vec![if smooth { site.want(0, || site.dy().clone()) } else { None }]
        }
        // Integers and constants have no derivative. The other operations occur only in the backward and
        // update phases, or are created by graph passes after differentiation.
        Op::LabelShare
        | Op::Fill { .. }
        | Op::Iota { .. }
        | Op::ArgSort { .. }
        | Op::Detach
        | Op::UnaryGrad(_)
        | Op::Mask(_)
        | Op::MaskGrad(_)
        | Op::Quantise { .. }
        | Op::SoftmaxGrad { .. }
        | Op::CrossEntropyGrad
        | Op::AttentionGrad(_)
        | Op::CachedAttention(_)
        | Op::Conv2d { .. }
        | Op::Conv2dInput { then: Some(_), .. }
        | Op::Conv2dWeight { .. }
        | Op::MaxPool2dGrad { .. }
        | Op::AvgPool2dGrad { .. }
        | Op::BatchNormGrad { .. }
        | Op::RunningStats(_)
        | Op::ResampleGrad { .. }
        | Op::EmbeddingGrad { .. }
        | Op::RowNormGrad { .. }
        | Op::GatesGrad(_)
        | Op::MovingAverage { .. }
        | Op::LossScaleSeed { .. }
        | Op::NotFinite
        | Op::ToHost { .. }
        | Op::FromHost { .. }
        | Op::Send { .. }
        | Op::Receive { .. }
        | Op::Replace { .. }
        | Op::SumParts { .. }
        | Op::LossScale { .. }
        | Op::Fused(_)
        | Op::MatMul { then: Some(_), .. }
        | Op::Update { .. } => vec![None; site.inputs.len()],
    }
}
