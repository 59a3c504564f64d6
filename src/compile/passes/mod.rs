//! Passes: each takes a graph and returns one that computes the same outputs, of those that are exact with the same bits. The
//! tables say in which order they run, and when.

mod accumulate;
mod dealias_operands;
mod eliminate_dead_code;
mod fold_scalar_grads;
mod fold_upcasts;
mod fuse_concat_into_conv;
mod fuse_elementwise;
mod fuse_epilogues;
mod fuse_norm_into_conv;
mod fuse_updates;
mod offload_optimizer_state;
mod recompute_cheap;
mod rematerialize;
mod simplify;
mod split_concat_grad;
mod split_large_tensors;
mod store_activations_half;
mod store_masks;
mod store_weights_half;

use crate::dtype::{DType, WeightStorage};
use crate::graph::Graph;
use crate::limits::Limits;

pub(crate) use accumulate::accumulate;
pub(crate) use dealias_operands::dealias_operands;
use eliminate_dead_code::eliminate_dead_code;
use fold_scalar_grads::fold_scalar_grads;
use fold_upcasts::fold_upcasts;
use fuse_concat_into_conv::fuse_concat_into_conv;
use fuse_elementwise::fuse_elementwise;
use fuse_epilogues::fuse_epilogues;
pub(crate) use fuse_epilogues::pairs;
use fuse_norm_into_conv::fuse_norm_into_conv;
pub(crate) use fuse_updates::{fuse_updates, is_small, small_states};
use offload_optimizer_state::offload_optimizer_state;
use recompute_cheap::recompute_cheap;
pub(crate) use rematerialize::{BACK, ScheduleEntry, is_view, rematerialize};
use simplify::simplify;
use split_concat_grad::split_concat_grad;
use split_large_tensors::split_large_tensors;
use store_activations_half::store_activations_half;
use store_masks::store_masks;
use store_weights_half::store_weights_half;

/// What decides which passes run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choices<'a> {
    /// The adapter.
    pub limits: &'a Limits,
    /// Whether the graph has a backward pass and updates.
    pub training: bool,
    /// Operations are merged.
    pub fuse: bool,
    /// Cheap results are computed again in the backward pass.
    pub rebuild: bool,
    /// Bits are kept where the backward pass asks for no more.
    pub bit_masks: bool,
    /// The element type that activations are kept in for the backward pass, if not `f32`.
    pub storage: Option<DType>,
    /// Whether gradients that wait are stored in that type as well.
    pub half_gradients: bool,
    /// How large weights are held.
    pub weights: WeightStorage,
    /// Optimizer state of at least so many bytes lies in the host's memory between its updates.
    pub offload: Option<u64>,
}

/// When a pass runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    Always,
    Training,
    Fuse,
    FuseTraining,
    Rebuild,
    BitMasks,
    HalfActivations,
    HalfWeights,
    OffloadOptimizer,
}

impl When {
    pub(crate) fn holds(self, choices: &Choices<'_>) -> bool {
        match self {
            Self::Always => true,
            Self::Training => choices.training,
            Self::Fuse => choices.fuse,
            Self::FuseTraining => choices.fuse && choices.training,
            Self::Rebuild => choices.rebuild,
            Self::BitMasks => choices.bit_masks,
            Self::HalfActivations => choices.storage.is_some(),
            Self::HalfWeights => choices.weights.storage().is_some(),
            Self::OffloadOptimizer => choices.offload.is_some(),
        }
    }

    /// The options that ask for it, as a user writes them.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Training => "training",
            Self::Fuse => "fuse",
            Self::FuseTraining => "training with fuse",
            Self::Rebuild => "rebuild",
            Self::BitMasks => "bit_masks",
            Self::HalfActivations => "precision of 16 bits",
            Self::HalfWeights => "weights of 16 bits",
            Self::OffloadOptimizer => "offload optimizer",
        }
    }
}

/// A rewrite of a graph.
#[derive(Clone, Copy)]
pub(crate) struct Pass {
    pub name: &'static str,
    pub when: When,
    /// Whether no bit of any result changes.
    pub exact: bool,
    run: fn(Graph, &Choices<'_>) -> Graph,
}

const fn pass(name: &'static str, when: When, exact: bool, run: fn(Graph, &Choices<'_>) -> Graph) -> Pass {
    Pass { name, when, exact, run }
}

/// Passes over the traced graph, before it is differentiated.
const BEFORE: [Pass; 2] = [
    pass("simplify", When::Always, true, |graph, _| simplify(graph)),
    pass("split_large_tensors", When::Always, true, |graph, choices| {
        split_large_tensors(graph, choices.limits.max_binding)
    }),
];

/// Passes over the whole graph: of a training step with its backward pass and updates.
const AFTER: [Pass; 14] = [
    pass("fold_scalar_grads", When::FuseTraining, true, |graph, _| fold_scalar_grads(graph)),
    pass("eliminate_dead_code", When::Always, true, |graph, _| eliminate_dead_code(graph)),
    pass("split_concat_grad", When::Training, true, |graph, _| split_concat_grad(graph)),
    // With the forward pass where one more pass over memory costs more than normalising each element once for each tap.
    pass("fuse_norm_into_conv", When::Fuse, true, |graph, choices| {
        fuse_norm_into_conv(graph, !choices.limits.class.is_cpu())
    }),
    pass("fuse_concat_into_conv", When::Fuse, true, |graph, _| fuse_concat_into_conv(graph)),
    pass("recompute_cheap", When::Rebuild, true, |graph, _| recompute_cheap(graph)),
    pass("store_masks", When::BitMasks, true, |graph, _| store_masks(graph)),
    pass("store_activations_half", When::HalfActivations, false, |graph, choices| match choices.storage {
        Some(dtype) => store_activations_half(graph, dtype, choices.half_gradients),
        None => graph,
    }),
    pass("store_weights_half", When::HalfWeights, false, |graph, choices| {
        store_weights_half(graph, choices.weights)
    }),
    // Convolutions read each element many times: on CPU adapters that costs more than the copy.
    pass("fold_upcasts", When::Fuse, true, |graph, choices| {
        fold_upcasts(graph, !choices.limits.class.is_cpu())
    }),
    pass("fuse_elementwise", When::Fuse, true, |graph, choices| {
        fuse_elementwise(graph, choices.limits.max_storage_buffers as usize)
    }),
    pass("fuse_epilogues", When::Fuse, true, |graph, choices| {
        fuse_epilogues(graph, choices.limits.max_storage_buffers as usize)
    }),
    pass("offload_optimizer_state", When::OffloadOptimizer, true, |graph, choices| {
        offload_optimizer_state(graph, choices.offload.unwrap_or(u64::MAX))
    }),
    pass("dealias_operands", When::Always, true, |graph, _| dealias_operands(graph, false)),
];

/// How many passes there are.
pub(crate) const COUNT: usize = BEFORE.len() + AFTER.len();

/// The first `count` passes: those of the traced graph, and those of the whole one.
pub(crate) fn first(count: usize) -> [&'static [Pass]; 2] {
    let before = count.min(BEFORE.len());
    [&BEFORE[..before], &AFTER[..count - before]]
}

/// Runs the passes of a table that `choices` ask for, in their order.
pub(crate) fn run(passes: &[Pass], graph: Graph, choices: &Choices<'_>) -> Graph {
    passes
        .iter()
        .filter(|pass| pass.when.holds(choices))
        .fold(graph, |graph, pass| (pass.run)(graph, choices))
}

#[cfg(test)]
mod tests {
    use crate::autodiff::differentiate;
    use crate::graph::Graph;

    /// A graph with its backward pass, whose gradients stay.
    pub(super) fn differentiated(graph: Graph) -> Graph {
        let loss = graph.outputs[0].1;
        let (trace, gradients) = differentiate(graph, loss).expect("a scalar");
        let ids: Vec<_> = gradients.pairs.iter().filter_map(|(_, gradient)| gradient.id()).collect();
        let mut graph = trace.finish().expect("valid");
        graph.outputs.extend(ids.into_iter().enumerate().map(|(i, id)| (format!("gradient {i}"), id)));
        graph
    }
}
