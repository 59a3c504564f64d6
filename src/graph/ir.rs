//! Graphs: values, nodes, and what is known of them.

use std::fmt;
#[cfg(feature = "gpu")]
use std::ops::Range;
use std::panic::Location;
use std::sync::Arc;

use super::op::{Op, Share, Update};
use super::own_gradient::OwnGradient;
use super::params::Param;
use crate::dtype::DType;
#[cfg(feature = "gpu")]
use crate::error::{Error, Result};
use crate::shape::Shape;

/// Index of a value in [`Graph::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueId(pub(super) u32);

impl ValueId {
    /// Returns the position in [`Graph::values`].
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the ids of a graph with `count` values, in order.
    pub(crate) fn all(count: usize) -> impl Iterator<Item = Self> {
        (0..count as u32).map(Self)
    }
}

/// What a value's memory is for, in the categories of memory papers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Trained weights.
    Parameter,
    /// Derivatives, of weights and of activations.
    Gradient,
    /// Optimizer state such as momentum; lives as long as the weights.
    Optimizer,
    /// Results of the forward pass.
    Activation,
    /// Scratch of one operation.
    Workspace,
    /// Data that the host feeds.
    Input,
}

impl Class {
    /// Every class, in the order of reports.
    pub const ALL: [Self; 6] =
        [Self::Parameter, Self::Gradient, Self::Optimizer, Self::Activation, Self::Workspace, Self::Input];

    /// Returns the plural, lower-case name used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Parameter => "parameters",
            Self::Gradient => "gradients",
            Self::Optimizer => "optimizer",
            Self::Activation => "activations",
            Self::Workspace => "workspace",
            Self::Input => "inputs",
        }
    }

    /// Returns the layer of a value of this class that no operation computes: `fc1` for `fc1.weight` and for
    /// `fc1.weight.exp_avg`.
    pub fn owner(self, name: &str) -> &str {
        let path = match self {
            Self::Parameter => name.rsplit_once('.'),
            Self::Optimizer => name.rsplit_once('.').and_then(|(param, _)| param.rsplit_once('.')),
            _ => None,
        };
        path.map_or("", |(layer, _)| layer)
    }

    /// Whether values of this class persist across steps.
    pub const fn is_persistent(self) -> bool {
        matches!(self, Self::Parameter | Self::Optimizer)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Which part of the step a node belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// From inputs to loss.
    Forward,
    /// From loss to gradients.
    Backward,
    /// From gradients to parameters.
    Update,
}

impl Phase {
    /// Returns the lower-case name used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Update => "update",
        }
    }
}

/// A tensor of the graph.
#[derive(Clone, Debug)]
pub struct Value {
    /// Name, unique in the graph. For a parameter it is the safetensors key.
    pub name: String,
    /// Dimensions.
    pub shape: Shape,
    /// Element type.
    pub dtype: DType,
    /// What its memory is for.
    pub class: Class,
    /// For an input of indices: the allowed range.
    pub indices: Option<Indices>,
    /// Recomputed in the backward pass instead of being saved by the forward pass.
    pub again: bool,
    /// Offloaded optimizer state: in host memory between steps, on the device only during its update.
    pub offloaded: bool,
    /// The part of the batch whose forward and backward pass computes it, of those of all ranks; 0 otherwise.
    pub part: u32,
    /// For parameters, state and gradients of which this rank has a part: which.
    pub part_of: Option<PartOf>,
    /// Values with the same number, other than 0, are the rows of one tensor in parts: one layer passes all of them on to another.
    pub rows_of: u32,
}

/// The elements of a tensor that a rank has: of each `pitch` elements, row-major, `run` from `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartOf {
    /// The first element.
    pub first: u64,
    /// Consecutive elements.
    pub run: u64,
    /// Elements from the start of a run to the start of the next.
    pub pitch: u64,
    /// Shape of the whole tensor.
    pub whole: Shape,
}

impl PartOf {
    /// The elements of `share`.
    pub(crate) fn share(share: Share, whole: Shape) -> Self {
        Self { first: share.start, run: share.len, pitch: whole.numel(), whole }
    }

    /// Returns which elements of the whole a range of the part's own elements is, as runs in their order.
    #[cfg(feature = "gpu")]
    pub(crate) fn runs(self, own: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let mut at = own.start;
        std::iter::from_fn(move || {
            let left = own.end.checked_sub(at).filter(|left| *left > 0)?;
            let (run, within) = (at / self.run, at % self.run);
            let start = run * self.pitch + self.first + within;
            let len = (self.run - within).min(left);
            at += len;
            Some(start..start + len)
        })
    }
}

/// Range of indices that an input may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indices {
    /// Class indices below this, or [`IGNORE`](super::IGNORE).
    Labels(u32),
    /// Row numbers below this.
    Ids(u32),
}

impl Value {
    /// Returns the bytes of the elements, rounded up to whole 32-bit words, without further padding.
    pub fn bytes(&self) -> u64 {
        self.dtype.bytes(self.shape.numel())
    }

    /// What tells the tensor of which it has rows from others; `None` if it is a tensor of its own. Copies in fewer bits are another.
    pub(crate) fn tensor_in_parts(&self) -> Option<(u32, u32, DType)> {
        (self.rows_of > 0).then_some((self.part, self.rows_of, self.dtype))
    }

    /// Makes it this rank's share of it.
    pub(crate) fn keep_share(&mut self, share: Share) {
        self.part_of = Some(PartOf::share(share, self.shape));
        self.shape = Shape::from([share.len as usize]);
    }
}

/// One operation with its operands.
#[derive(Clone, Debug)]
pub struct Node {
    /// What is computed.
    pub op: Op,
    /// Operands, in the order [`Op`] lists them.
    pub inputs: Vec<ValueId>,
    /// Results, in the order [`Op`] lists them.
    pub outputs: Vec<ValueId>,
    /// Path of the layer; empty outside of all layers.
    pub layer: Arc<str>,
    /// Part of the step.
    pub phase: Phase,
    /// Source location in the model's code.
    pub at: &'static Location<'static>,
}

/// A step: values, and nodes in an order that respects their dependencies.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// All tensors.
    pub values: Vec<Value>,
    /// All operations, each after those it depends on.
    pub nodes: Vec<Node>,
    /// Values that the host may read after the step, with the names it reads them by.
    pub outputs: Vec<(String, ValueId)>,
    /// Gradients that the host may read after a training step. Differentiation makes outputs of them.
    pub gradient_outputs: Vec<(String, GradientOf)>,
    /// Backward passes that the model defines itself. Differentiation consumes them.
    pub(crate) own_gradients: Vec<OwnGradient>,
    /// Parameters in the order of their registration, used by this graph or not.
    pub parameters: Vec<Param>,
    /// Groups of updates, each run as one dispatch.
    pub fused_updates: Vec<FusedUpdate>,
    /// What the ranks of a run exchange within a step, in this order. Empty on one device.
    pub exchanges: Vec<Exchange>,
    /// Parameters of which each rank has a share.
    pub sharded: Vec<Sharded>,
    /// Rows of parameters larger than a binding.
    pub(crate) pieces: Vec<Piece>,
}

/// Rows of a parameter that no operation reads as a whole. They have a gradient and an update of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The parameter.
    pub of: ValueId,
    /// A view of its rows.
    pub rows: ValueId,
    /// Their elements.
    pub share: Share,
}

impl Piece {
    /// Pieces are a multiple of this many elements, so that bindings can start at each of them in all state: 256 bytes of it
    /// belong to as many elements in `Adam8bit`'s largest magnitudes.
    pub(crate) const ELEMENTS: usize = 8192;
}

/// Parameters of which each rank has a share, and which are gathered together. One after another, each from a multiple of
/// 256 elements on, they are cut into as many shares as there are ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sharded {
    /// Names, each with the number of elements before it.
    pub parameters: Vec<(String, u64)>,
    /// Elements of a share.
    pub share: u64,
    /// How they are stored.
    pub dtype: DType,
}

/// Words that the ranks of a run send each other within a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Who gets which words.
    pub kind: ExchangeKind,
    /// Number of ranks.
    pub ranks: u32,
    /// 32-bit words of one share.
    pub share: u64,
    /// Of the first 64 ranks, a bit for each that has nothing to send.
    pub silent: u64,
    /// Exchanges of the same kind and number use the same host memory, one after another.
    pub buffer: u32,
    /// Of the words of each rank, how many at the start are losses, of as many of its parts.
    pub losses: u32,
}

/// Who gets which words of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeKind {
    /// Each rank has a share for every rank. A rank receives its share of every rank, in the order of ranks.
    Scatter,
    /// Each rank has one share. A rank receives the shares of all ranks, in their order.
    Gather,
}

impl Exchange {
    /// Returns the names of the host memory that holds what is sent and what is received.
    pub(crate) fn names(&self) -> [String; 2] {
        let kind = match self.kind {
            ExchangeKind::Scatter => "scatter",
            ExchangeKind::Gather => "gather",
        };
        ["sent", "received"].map(|end| format!("{kind} {} {end}", self.buffer))
    }

    /// Returns the words that a rank has to send, those for itself included.
    pub fn sent(&self) -> u64 {
        match self.kind {
            ExchangeKind::Scatter => self.share * u64::from(self.ranks),
            ExchangeKind::Gather => self.share,
        }
    }

    /// Returns the words that a rank has in the end, its own included.
    pub fn received(&self) -> u64 {
        self.share * u64::from(self.ranks)
    }

    /// Whether a rank has something to send.
    pub fn sends(&self, rank: u32) -> bool {
        rank >= u64::BITS || self.silent >> rank & 1 == 0
    }

    /// Returns the words that leave a rank, and those that reach it.
    pub fn wired(&self, rank: u32) -> [u64; 2] {
        let others = u64::from(self.ranks - 1);
        let senders = u64::from(self.ranks - self.silent.count_ones()) - u64::from(self.sends(rank));
        [if self.sends(rank) { self.share * others } else { 0 }, self.share * senders]
    }
}

/// A gradient of the loss that the host may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GradientOf {
    /// With respect to a value, of its shape.
    Value(ValueId),
    /// The norm of the gradients of all trained parameters together, a scalar.
    Norm,
}

/// Updates of small parameters that run as one dispatch, once the gradient of the last one is computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FusedUpdate {
    /// Positions of the updates in [`Graph::nodes`], in the memory order of their parameters.
    pub updates: Vec<usize>,
    /// The value that holds the gradients of all these parameters.
    pub gradients: ValueId,
}

/// Name of the input with the scalars that change every step: see [`StepScalars`].
pub const STEP_SCALARS: &str = "step scalars";

/// Name of the state of dynamic loss scaling, four numbers: scale (0 before the first step), consecutive
/// steps without overflow, skipped steps, unused.
pub const LOSS_SCALE: &str = "loss_scale";

/// The input that the session itself feeds before each step, as [`StepScalars::WORDS`] `u32`.
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct StepScalars {
    /// η, the learning rate of this step.
    pub learning_rate: f32,
    /// Divides the step of [`Update::Adam`](super::Update::Adam), for Adam `1 - β₁ᵗ`, and of
    /// [`Update::RmsProp`](super::Update::RmsProp); Adafactor's share of the newest gradient in its averages.
    pub bias1: f32,
    /// Divides √v in [`Update::Adam`](super::Update::Adam), for Adam `√(1 - β₂ᵗ)`; with 0 the step is the
    /// first moment alone (RAdam's first steps). Adafactor's relative step size ρₜ.
    pub sqrt_bias2: f32,
    /// Steps made before this one.
    pub step: u32,
    /// The seed's low half.
    pub seed_low: u32,
    /// The seed's high half.
    pub seed_high: u32,
    /// Factor applied to gradients before they are used: 1, or the inverse of the loss scale.
    pub unscale: f32,
    /// Not 0 if the step overflowed; updates then change nothing.
    pub skip: u32,
    /// NAdam's share of the gradient in its step, in addition to the first moment; 0 for others.
    pub gradient_share: f32,
}

impl StepScalars {
    /// The number of words.
    pub const WORDS: usize = size_of::<Self>() / 4;
}

impl Graph {
    /// Returns the value with this id.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }

    /// Returns the values that the host feeds, in the order of declaration.
    pub fn inputs(&self) -> impl Iterator<Item = (ValueId, &Value)> {
        self.ids().filter(|(_, value)| value.class == Class::Input)
    }

    /// Returns the output with this name: its position in [`Graph::outputs`] and its value.
    #[cfg(feature = "gpu")]
    pub(crate) fn output(&self, name: &str) -> Result<(usize, ValueId)> {
        let found = self.outputs.iter().enumerate().find(|(_, (output, _))| output == name);
        found.map(|(position, (_, id))| (position, *id)).ok_or_else(|| Error::Unknown {
            kind: "output",
            name: name.to_owned(),
            known: self.outputs.iter().map(|(output, _)| output.clone()).collect(),
        })
    }

    /// Returns the values that are read beside the nodes: outputs, values whose gradient is one, and what
    /// [`OwnGradient`]s read.
    pub(crate) fn observed(&self) -> impl Iterator<Item = ValueId> {
        let outputs = self.outputs.iter().map(|(_, id)| *id);
        let own = self.own_gradients.iter().flat_map(OwnGradient::reads);
        outputs.chain(own).chain(self.gradient_outputs.iter().filter_map(|(_, of)| match of {
            GradientOf::Value(id) => Some(*id),
            GradientOf::Norm => None,
        }))
    }

    /// Returns the elements of operand `i` that the operation reads and changes, if these are not all.
    pub(crate) fn operand_share(&self, node: &Node, i: usize) -> Option<Share> {
        let [value, first] = [i, 0].map(|i| self.value(node.inputs[i]));
        let elements = value.shape.numel();
        let own = match node.op {
            Op::Update { share: Some(share), .. } if i <= Update::GRADIENT => Some(share),
            // Of a piece; a rank has state of its share alone.
            Op::Update { share: Some(share), .. } if i >= Update::STATE && value.part_of.is_none() => {
                Some(share.of_state(elements, first.shape.numel()))
            }
            Op::Send { share, .. } if i == 0 => share,
            _ => None,
        };
        own.filter(|share| share.len < elements)
    }

    /// Returns the bytes of operand `i` that the operation reads and changes.
    pub(crate) fn operand_bytes(&self, node: &Node, i: usize) -> u64 {
        let value = self.value(node.inputs[i]);
        self.operand_share(node, i).map_or(value.bytes(), |share| value.dtype.bytes(share.len))
    }

    /// Returns the positions of the operands that are in host memory before and after the operation.
    pub(crate) fn offloaded_operands(&self, node: &Node) -> impl Iterator<Item = usize> {
        (0..node.inputs.len()).filter(|&i| self.value(node.inputs[i]).offloaded)
    }

    /// Whether a node computes nothing, whatever else is a view: a reshape, or rows of a parameter that is in pieces.
    pub(crate) fn is_view(&self, node: &Node) -> bool {
        matches!(node.op, Op::Reshape(_)) || self.reads_piece(node)
    }

    /// Whether a node reads rows of a parameter that is in pieces. They have no memory of their own.
    pub(crate) fn reads_piece(&self, node: &Node) -> bool {
        let slice = matches!(node.op, Op::Slice { axis: 0, .. });
        slice && self.pieces.iter().any(|piece| piece.of == node.inputs[0])
    }

    /// Returns the largest key of a random draw; 0 if there is none.
    pub(crate) fn draw_keys(&self) -> u32 {
        self.nodes.iter().filter_map(|node| node.op.clone().draw_key().copied()).max().unwrap_or(0)
    }

    /// Returns every value with its id.
    #[cfg_attr(not(feature = "internals"), doc(hidden))]
    pub fn ids(&self) -> impl Iterator<Item = (ValueId, &Value)> {
        ValueId::all(self.values.len()).zip(&self.values)
    }
}
