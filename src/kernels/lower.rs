//! Lowers an operation to the dispatches that compute it.

use super::elementwise::{self, fused, mask};
use super::embedding::{self, rotary};
use super::norm::{self, batch};
use super::optimizer::{self, loss_scale};
use super::softmax::{self, cross_entropy};
use super::{
    Kernel, Launch, attention, cached_attention, conv, custom, indices, matmul, movement, pool, recurrent,
    reduce,
};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{FusedElementwise, Op, Read, Source};
use crate::limits::Limits;
use crate::shape::Shape;

/// Memory of a launch, relative to its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// The node's input at this position.
    Input(usize),
    /// The node's output at this position.
    Output(usize),
    /// The scratch buffer at this position of [`Lowered::workspace`].
    Workspace(usize),
}

/// A node's operation with the types of its operands.
#[derive(Clone, Debug)]
pub struct Site<'a> {
    /// The operation.
    pub op: &'a Op,
    /// Shape and element type of each input.
    pub inputs: &'a [(Shape, DType)],
    /// Shape and element type of each output.
    pub outputs: &'a [(Shape, DType)],
    /// The input whose memory the first output reuses, one of [`in_place_inputs`].
    pub in_place: Option<usize>,
    /// Limits of the adapter.
    pub limits: &'a Limits,
}

/// Result of lowering a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lowered {
    /// Dispatches, in order.
    pub launches: Vec<Launch<Operand>>,
    /// Bytes of each scratch buffer; they are live while the node runs.
    pub workspace: Vec<u64>,
}

impl From<Launch<Operand>> for Lowered {
    fn from(launch: Launch<Operand>) -> Self {
        Self { launches: vec![launch], workspace: Vec::new() }
    }
}

/// Returns the value of an `override` constant for a condition.
pub(super) fn flag(on: bool) -> f64 {
    f64::from(u8::from(on))
}

/// Returns the inputs whose memory the first output may reuse, the preferred one first.
pub fn in_place_inputs(op: &Op, inputs: &[(Shape, DType)], output: Shape) -> Vec<usize> {
    match op {
        Op::Unary(_) | Op::Dropout { .. } | Op::CrossEntropyGrad | Op::NotFinite => vec![0],
        Op::UnaryGrad(_) | Op::MaskGrad(_) => vec![1],
        Op::Softmax { .. } => vec![0],
        Op::SoftmaxGrad { .. } => vec![1],
        Op::BatchNorm(_) => (inputs[0].1 == DType::F32).then_some(0).into_iter().collect(),
        Op::BatchNormGrad { .. } => vec![5],
        Op::EmbeddingGrad { .. } if inputs.len() > 2 => vec![2],
        Op::SumParts { .. } if inputs.len() > 1 => vec![1],
        Op::RowNormGrad { .. } => vec![3],
        Op::Rotary { .. } => vec![0],
        Op::Send { .. } | Op::Replace { .. } => (inputs.len() > 1).then_some(1).into_iter().collect(),
        Op::Binary(_) => (0..2).filter(|&i| inputs[i].0 == output).collect(),
        Op::Fused(chain) => whole_operands(chain, inputs),
        Op::MatMul { ta, .. } if !matmul::in_one_go(inputs[0].0, *ta) => Vec::new(),
        _ => op.epilogue().map_or_else(Vec::new, |chain| {
            let own = op.main_inputs(inputs.len());
            let others = whole_operands(chain, &[&[(output, DType::F32)], &inputs[own..]].concat());
            others.into_iter().filter(|&k| k > 0).map(|k| own + k - 1).collect()
        }),
    }
}

/// Returns the `f32` operands of a chain that are read element by element, without broadcasting.
fn whole_operands(chain: &FusedElementwise, operands: &[(Shape, DType)]) -> Vec<usize> {
    let shapes: Vec<Shape> = operands.iter().map(|(shape, _)| *shape).collect();
    let reads = chain.reads(&shapes).unwrap_or_default();
    let fits = |i: &usize| reads[*i] == Read::Whole && operands[*i].1 == DType::F32;
    (0..reads.len()).filter(fits).collect()
}

/// Returns the dispatches of one node. A view has none.
///
/// # Errors
/// [`Error::TooManyElements`] if a tensor has more elements than kernels can count (2³² − 1);
/// [`Error::Unsupported`] if a sum is too long for a software adapter.
pub fn lower(site: &Site) -> Result<Lowered> {
    for (shape, dtype) in site.inputs.iter().chain(site.outputs) {
        if shape.numel() > u64::from(u32::MAX) {
            let op = site.op.name();
            return Err(Error::TooManyElements(format!(
                "{op}: {dtype} {shape} has more than 2^32 - 1 elements"
            )));
        }
    }
    if site.outputs.iter().any(|(shape, _)| shape.numel() == 0) {
        return Ok(Lowered::default());
    }
    let mut lowered = by_op(site)?;
    if site.limits.kernels.long_words {
        for launch in &mut lowered.launches {
            launch.kernel = launch.kernel.in_long_words();
        }
    }
    Ok(lowered)
}

fn by_op(site: &Site) -> Result<Lowered> {
    Ok(match site.op {
        Op::MatMul { ta, tb, .. } => matmul::matmul(site, *ta, *tb)?,
        Op::Unary(f) => elementwise::unary(site, *f).into(),
        Op::UnaryGrad(f) => elementwise::unary_grad(site, *f).into(),
        Op::Mask(f) => mask::mask(site, *f).into(),
        Op::MaskGrad(f) => mask::grad(site, *f).into(),
        Op::Quantise { dtype, key } => elementwise::quantise(site, *dtype, *key).into(),
        Op::Binary(f) => elementwise::binary(site, *f).into(),
        Op::Dropout { p, key, every } => elementwise::dropout(site, *p, [*key, *every]).into(),
        Op::Cast(to) => elementwise::cast(site, *to).into(),
        Op::Reduce { kind, axes } => reduce::reduce(site, *kind, *axes),
        Op::Softmax { log } => softmax::softmax(site, *log)?.into(),
        Op::SoftmaxGrad { log } => softmax::softmax_grad(site, *log)?.into(),
        Op::CrossEntropy => softmax::cross_entropy(site)?.into(),
        Op::CrossEntropyGrad => cross_entropy::grad(site).into(),
        Op::LabelShare => cross_entropy::label_share(site),
        Op::Reshape(_)
        | Op::ToHost { .. }
        | Op::FromHost { .. }
        | Op::Send { .. }
        | Op::Receive { .. }
        | Op::Replace { .. } => Lowered::default(),
        Op::Permute(perm) => movement::permute(site, perm).into(),
        Op::Expand(_) => movement::expand(site).into(),
        Op::Slice { axis, start, .. } => movement::slice(site, *axis, *start).into(),
        Op::Stride { axis, start, step, .. } => movement::stride(site, *axis, *start, *step).into(),
        Op::Place { axis, start, step, .. } => movement::place(site, *axis, *start, *step),
        Op::Iota { axis, .. } => movement::iota(site, *axis).into(),
        Op::Gather { axis } => indices::gather(site, *axis).into(),
        Op::ScatterAdd { axis, .. } => indices::scatter_add(site, *axis),
        Op::ArgSort { descending } => indices::argsort(site, *descending)?.into(),
        Op::Concat { axis } => movement::concat(site, *axis),
        Op::SumParts { shape } => reduce::sum_parts(site, *shape).into(),
        Op::Copy | Op::Detach | Op::SumRanks { .. } => movement::copy(site, 0).into(),
        Op::Fill { value, .. } => movement::fill(site, *value).into(),
        Op::Update { rule, rate, stored, share } => {
            let first = share.map_or(0, |share| share.start);
            optimizer::update(site, rule, *rate, optimizer::Storing { stored: *stored, first }).into()
        }
        Op::Attention(attend) | Op::AttentionGrad(attend) => attention::attention(site, attend),
        Op::CachedAttention(attend) => cached_attention::cached_attention(site, attend),
        Op::LossScaleSeed { start } => loss_scale::seed(site, *start).into(),
        Op::NotFinite => loss_scale::not_finite(site),
        Op::LossScale { settings, counting, early } => loss_scale::judge(*settings, *counting, *early).into(),
        Op::MovingAverage { scale, share } => optimizer::moving_average(site, *scale, *share).into(),
        Op::Conv2d { window, groups, source, .. } => {
            conv::conv(site, *window, *groups, *source, conv::Direction::Forward)?
        }
        Op::Conv2dInput { window, groups, .. } => {
            conv::conv(site, *window, *groups, Source::Tensor, conv::Direction::Back)?
        }
        Op::Conv2dWeight { window, groups, normed } => conv::weight(site, *window, *groups, *normed),
        Op::MaxPool2d(window) => pool::max_pool(site, *window).into(),
        Op::MaxPool2dGrad { window, .. } => pool::max_pool_grad(site, *window).into(),
        Op::AvgPool2d(over) => pool::avg_pool(site, *over, false)?,
        Op::AvgPool2dGrad { over, .. } => pool::avg_pool(site, *over, true)?,
        Op::BatchStats { eps, running } => batch::stats(site, *eps, *running),
        Op::BatchNorm(activation) => batch::norm(site, *activation).into(),
        Op::BatchNormGrad { activation, training } => batch::grad(site, *activation, *training),
        Op::RunningStats(running) => batch::running_stats(site, *running).into(),
        Op::Resample { mode, .. } => pool::resample(site, *mode)?.into(),
        Op::ResampleGrad { mode, .. } => pool::resample_grad(site, *mode)?,
        Op::Embedding => embedding::embedding(site).into(),
        Op::EmbeddingGrad { rows, share } => embedding::grad(site, *rows, *share),
        Op::RowNorm { kind, eps } => norm::norm(site, *kind, *eps)?.into(),
        Op::RowNormGrad { kind } => norm::grad(site, *kind)?,
        Op::Rotary { heads, rope, back } => rotary::rotary(site, *heads, rope, *back),
        Op::Gates(gates) => recurrent::gates(site, *gates).into(),
        Op::GatesGrad(gates) => recurrent::gates_grad(site, *gates).into(),
        Op::Fused(chain) => fused::fused(site, chain).into(),
        Op::Custom(own) => custom::custom(site, own)?.into(),
    })
}

impl Site<'_> {
    pub(super) fn output(&self) -> Shape {
        self.outputs[0].0
    }

    /// Returns the memory of a kernel that may write its first result over `operand`, followed by `rest`. If
    /// the result has its own memory, the operand precedes it.
    pub(super) fn placed(&self, operand: usize, rest: &[Operand]) -> Vec<Operand> {
        let mut memory = match self.in_place {
            Some(_) => vec![Operand::Output(0)],
            None => vec![Operand::Input(operand), Operand::Output(0)],
        };
        memory.extend_from_slice(rest);
        memory
    }

    /// Returns the form of `kernel` for this node: in place or with a separate result.
    pub(super) fn variant(&self, kernel: &Kernel) -> Kernel {
        if self.in_place.is_some() { kernel.in_place() } else { kernel.clone() }
    }
}
