//! Options of a training plan.

use super::{Offload, Parallel, Recompute, Shard};
use crate::dtype::{Precision, WeightStorage};
use crate::error::{Error, Result};
use crate::graph::LossScale;
use crate::limits::Card;
use crate::optim::{Clip, Optimizer};
use crate::units::Bytes;

/// Options of a training plan: everything that determines it, apart from the model and the limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlanOptions {
    /// The optimizer that updates the parameters.
    pub optimizer: Optimizer,
    /// Gradient clipping, applied before the update.
    pub clip: Clip,
    /// Maximum bytes that the session may allocate on the device; `None` for no limit.
    pub budget: Option<Bytes>,
    /// Whether tensors with disjoint lifetimes share memory within the step. If off, every tensor can be read
    /// after the step, for debugging.
    pub reuse: bool,
    /// Leaves a gap after every step tensor; [`Session::check_guards`](crate::exec::Session::check_guards)
    /// checks that no kernel wrote to it. Implies `reuse: false`.
    pub guard: bool,
    /// Whether the backward pass recomputes results of norms, activation functions, dropout, sums, products,
    /// concatenations and embeddings where that saves memory. Each costs one pass over memory; results are
    /// bitwise identical.
    pub rebuild: bool,
    /// Whether operations are fused where that saves memory and memory traffic. Convolutions apply a batch
    /// norm, and concatenate two tensors, while they read their input. Chains of elementwise functions,
    /// including sums of gradients, run as one kernel or as the epilogue of a matrix product or convolution.
    /// The gradient of a mean cross-entropy starts as one scalar. Updates of norms and biases run as one
    /// dispatch if that costs at most 1/500 of the plan's bytes, or 4 KiB, and stays within the budget.
    /// Results are bitwise identical, except with 16-bit storage: a convolution then reads the rounded
    /// operand of a norm instead of its result.
    pub fuse: bool,
    /// Whether one bit per element is stored for the backward pass where it only needs to know where a ReLU,
    /// leaky ReLU or clamp passes gradients.
    pub bit_masks: bool,
    /// Storage precision of activations kept for the backward pass.
    pub precision: Precision,
    /// Storage type of large weights.
    pub weights: WeightStorage,
    /// Activation checkpointing: which results the backward pass recomputes instead of keeping them in
    /// memory.
    pub recompute: Recompute,
    /// Number of parts that a step's batch is split into. Each part runs forward and backward on its own, and
    /// the gradients are summed in order. A step traced for `b` samples then takes inputs of `accumulate · b`
    /// samples. The loss is the mean of the parts' losses; a mean over labels divides by the number of labels
    /// in all parts. Batch norm computes its statistics per part and updates its running statistics with each
    /// part, as in PyTorch's loop over micro-batches.
    pub accumulate: u32,
    /// The device's share of the parts, where several devices run a step together.
    pub parallel: Parallel,
    /// What is stored in host memory while the device does not need it.
    pub offload: Offload,
    /// The card that times are modelled on.
    pub card: Card,
    /// Scales the loss's gradient and skips steps that overflow. Gradients are `f32` whatever the precision,
    /// so few models need it. With it, all gradients are alive at once.
    pub loss_scale: Option<LossScale>,
}

impl Default for PlanOptions {
    /// AdamW with PyTorch's settings, no clipping, no budget, memory reuse on.
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
            parallel: Parallel::default(),
            offload: Offload::default(),
            card: Card::default(),
            loss_scale: None,
        }
    }
}

impl PlanOptions {
    /// Returns the options with as much sharded; `None` if it is, or if there is nothing to shard.
    pub(super) fn sharded(&self, shard: Shard) -> Option<Self> {
        let more = self.parallel.ranks > 1 && shard > self.parallel.shard;
        let sharded = Self { parallel: Parallel { shard, ..self.parallel }, ..*self };
        (more && sharded.check_ranks().is_ok()).then_some(sharded)
    }

    /// Checks that what each rank has a part of goes together, and with the optimizer.
    ///
    /// # Errors
    /// [`Error::Setting`].
    pub(super) fn check_ranks(&self) -> Result<()> {
        let Parallel { ranks, shard, tensor, .. } = self.parallel;
        self.parallel.check()?;
        if tensor > 1 {
            self.optimizer.check_tensor()?;
            if self.weights == WeightStorage::Bf24 {
                let message = "weights in bf24 have state of four elements to a word, which ranks that compute a layer together would \
                               cut; store them in bf16 with stochastic rounding, or in f32";
                return Err(Error::setting("parallel.tensor", message));
            }
        }
        if ranks > 1 && shard != Shard::None { self.optimizer.check_shards() } else { Ok(()) }
    }

    /// The scale must be a power of two: multiplying by it, and by its inverse, is exact.
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
