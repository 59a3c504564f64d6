//! What decides a training plan beside the model.

use super::{Offload, Recompute};
use crate::dtype::{Precision, WeightStorage};
use crate::error::{Error, Result};
use crate::graph::{LossScale, Roofline};
use crate::optim::{Clip, Optimizer};
use crate::units::Bytes;

/// What decides a training plan, apart from the model and the limits.
#[derive(Clone, Copy, Debug)]
pub struct PlanOptions {
    /// How parameters are updated.
    pub optimizer: Optimizer,
    /// What happens to gradients before that.
    pub clip: Clip,
    /// The most bytes the session may create on the device; `None` for no limit.
    pub budget: Option<Bytes>,
    /// Whether memory is used again within the step. Off, every tensor can be read after the step: for debugging.
    pub reuse: bool,
    /// Leaves a gap behind every tensor that [`Session::check_guards`](crate::exec::Session::check_guards) watches.
    /// Implies `reuse: false`.
    pub guard: bool,
    /// Whether results of norms, activation functions, dropout, sums, products, joins and embeddings are computed again in
    /// the backward pass where that saves memory: one pass over memory each, and the same bits.
    pub rebuild: bool,
    /// Whether operations are merged where that saves memory and passes over it: convolutions apply a batch norm, and
    /// join two tensors, while they read; functions of single elements that follow each other run as one, in a matrix
    /// product or convolution if they follow one, sums of gradients among them; the gradient of a
    /// mean cross-entropy begins as one number. Updates of norms and biases run as one,
    /// if that costs at most one in 500 of the plan's bytes, or 4 KiB, and keeps to the budget. The bits are the same, but
    /// with 16-bit storage, where a convolution reads a norm's operand that was rounded instead of its result.
    pub fuse: bool,
    /// Whether a bit for each element waits for the backward pass where it only asks where a ReLU, leaky ReLU or clamp let
    /// gradients pass.
    pub bit_masks: bool,
    /// In how many bits activations wait for the backward pass.
    pub precision: Precision,
    /// In how many bits large weights live.
    pub weights: WeightStorage,
    /// What the backward pass computes again, so that it need not stay in memory: activation checkpointing.
    pub recompute: Recompute,
    /// Parts that a step's batch is cut into: each runs forward and backward on its own and their gradients are summed, in
    /// order. A step traced for `b` samples then takes inputs of `accumulate · b`. The loss is the mean of the parts'
    /// losses; a mean over labels divides by the labels of all parts. Batch norm takes its statistics from each part and moves
    /// its running ones with each, as in PyTorch's loop over micro-batches.
    pub accumulate: u32,
    /// What lies in the host's memory while the device does not need it.
    pub offload: Offload,
    /// The device on paper, by which modelled times go.
    pub roofline: Roofline,
    /// Scales the loss's gradient and skips steps that overflow. Gradients are `f32` whatever the precision, so that few
    /// models need it; with it all gradients are alive at once.
    pub loss_scale: Option<LossScale>,
}

impl Default for PlanOptions {
    /// AdamW with PyTorch's settings, no clipping, no budget, memory used again.
    fn default() -> Self {
        Self {
            optimizer: Optimizer::default(),
            clip: Clip::Off,
            budget: None,
            reuse: true,
            guard: false,
            rebuild: true,
            fuse: true,
            bit_masks: false,
            precision: Precision::F32,
            weights: WeightStorage::F32,
            recompute: Recompute::Off,
            accumulate: 1,
            offload: Offload::default(),
            roofline: Roofline::default(),
            loss_scale: None,
        }
    }
}

impl PlanOptions {
    /// Powers of two change no digit, and have an inverse.
    pub(super) fn check_scale(&self) -> Result<()> {
        match self.loss_scale {
            Some(LossScale { start, interval }) => {
                let power = start.to_bits() & 0x7f_ffff == 0 && (1e-17..1e17).contains(&start);
                if power && (1..1 << 24).contains(&interval) {
                    return Ok(());
                }
                Err(Error::setting(
                    "loss_scale",
                    format!(
                        "loss scale {start}, doubled after {interval} steps: the scale must be a power of two from 2^-56 to 2^56, \
                     the interval from 1 to 2^24 - 1"
                    ),
                ))
            }
            None => Ok(()),
        }
    }
}
