//! Graph passes. Each takes a graph and returns one that computes the same outputs; exact passes keep results
//! bitwise identical. The tables define when and in which order they run.

mod accumulate;
mod buckets;
mod dealias_operands;
mod eliminate_dead_code;
mod exchange;
mod fold_scalar_grads;
mod fold_upcasts;
mod fuse_concat_into_conv;
mod fuse_elementwise;
mod fuse_epilogues;
mod fuse_norm_into_conv;
mod fuse_running_stats;
mod fuse_updates;
mod gather_parameters;
mod join_slice_grads;
mod lookup_grads;
mod offload_optimizer_state;
mod recompute_cheap;
mod rematerialize;
mod remove_detached;
mod share_updates;
mod simplify;
mod split_concat_grad;
mod split_large_parameters;
mod split_large_tensors;
mod split_layers;
mod store_activations;
mod store_masks;
mod store_weights_half;
mod sum_ranks;

use crate::dtype::{Precision, WeightStorage};
use crate::graph::Graph;
use crate::limits::Limits;

pub(crate) use accumulate::{Accumulated, Parts, accumulate};
pub(crate) use buckets::SharedBucket;
pub(crate) use dealias_operands::dealias_operands;
use eliminate_dead_code::eliminate_dead_code;
pub(crate) use exchange::order_exchanges;
use fold_scalar_grads::fold_scalar_grads;
use fold_upcasts::fold_upcasts;
use fuse_concat_into_conv::fuse_concat_into_conv;
use fuse_elementwise::fuse_elementwise;
use fuse_epilogues::fuse_epilogues;
pub(crate) use fuse_epilogues::pairs;
use fuse_norm_into_conv::fuse_norm_into_conv;
use fuse_running_stats::fuse_running_stats;
pub(crate) use fuse_updates::{fuse_updates, is_small, is_small_vector, small_states};
pub(crate) use gather_parameters::{Gathers, WHOLE};
use join_slice_grads::join_slice_grads;
use offload_optimizer_state::offload_optimizer_state;
pub(crate) use offload_optimizer_state::parameters_away;
use recompute_cheap::recompute_cheap;
pub(crate) use rematerialize::{BACK, ScheduleEntry, rematerialize};
use remove_detached::remove_detached;
pub(crate) use share_updates::share_updates;
use simplify::simplify;
use split_concat_grad::split_concat_grad;
pub(super) use split_large_parameters::elements_of_piece;
use split_large_parameters::split_large_parameters;
use split_large_tensors::split_large_tensors;
pub(crate) use split_layers::split_layers;
use store_activations::store_activations;
use store_masks::store_masks;
use store_weights_half::store_weights_half;
pub(crate) use sum_ranks::sum_ranks;

/// Settings that decide which passes run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choices<'a> {
    /// The adapter's limits.
    pub limits: &'a Limits,
    /// Whether the graph has a backward pass and updates.
    pub training: bool,
    /// Operations are fused.
    pub fuse: bool,
    /// Cheap results are recomputed in the backward pass.
    pub rebuild: bool,
    /// Bit masks are stored where the backward pass needs nothing else.
    pub bit_masks: bool,
    /// Storage of activations kept for the backward pass.
    pub precision: Precision,
    /// The share of the activations that may be in 8 or 4 bits, in bytes, that is stored so; others are in 16 bits.
    pub coded: f64,
    /// Whether gradients that wait for a check of all gradients are stored in its 16 bits as well.
    pub half_gradients: bool,
    /// Storage type of large weights.
    pub weights: WeightStorage,
    /// Parameters may be updated in pieces.
    pub pieces: bool,
    /// Whether a parameter is stored in 16 bits, trained or not.
    pub half_weights: bool,
    /// The share of the trained parameters, in elements, whose optimizer state is in host memory between its updates.
    pub away: f64,
}

impl Choices<'_> {
    /// Whether some activations are in 8 or 4 bits.
    fn has_codes(&self) -> bool {
        self.precision.codes().is_some() && self.coded > 0.0
    }
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
    NarrowActivations,
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
            // An element that codes round to 0 passes gradients with a mask.
            Self::BitMasks => choices.bit_masks || choices.has_codes(),
            Self::NarrowActivations => choices.precision != Precision::F32,
            Self::HalfWeights => choices.half_weights,
            Self::OffloadOptimizer => choices.away > 0.0,
        }
    }

    /// The options that enable it, as a user writes them.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Training => "training",
            Self::Fuse => "fuse",
            Self::FuseTraining => "training with fuse",
            Self::Rebuild => "rebuild",
            Self::BitMasks => "bit_masks",
            Self::NarrowActivations => "precision below 32 bits",
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
    /// Whether results stay bitwise identical.
    pub exact: bool,
    run: fn(Graph, &Choices<'_>) -> Graph,
}

const fn pass(name: &'static str, when: When, exact: bool, run: fn(Graph, &Choices<'_>) -> Graph) -> Pass {
    Pass { name, when, exact, run }
}

/// Passes over the traced graph, before it is differentiated.
const BEFORE: [Pass; 3] = [
    pass("simplify", When::Always, true, |graph, _| simplify(graph)),
    pass("split_large_tensors", When::Always, false, |graph, choices| {
        let max = choices.limits.max_binding;
        // Planning refuses an input larger than a binding. Parts of the other tensors would only delay that.
        let held = graph.inputs().all(|(_, value)| value.bytes() <= max);
        if held { split_large_tensors(graph, max) } else { graph }
    }),
    pass("split_large_parameters", When::Always, false, |graph, choices| {
        split_large_parameters(graph, choices)
    }),
];

/// Passes over the whole graph; for a training step, that includes its backward pass and updates.
const AFTER: [Pass; 17] = [
    pass("remove_detached", When::Always, true, |graph, _| remove_detached(graph)),
    pass("fold_scalar_grads", When::FuseTraining, true, |graph, _| fold_scalar_grads(graph)),
    pass("join_slice_grads", When::Training, true, |graph, _| join_slice_grads(graph)),
    pass("eliminate_dead_code", When::Always, true, |graph, _| eliminate_dead_code(graph)),
    pass("split_concat_grad", When::Training, true, |graph, _| split_concat_grad(graph)),
    // Includes the forward pass where one more pass over memory costs more than normalizing each element once
    // per tap.
    pass("fuse_norm_into_conv", When::Fuse, true, |graph, choices| {
        fuse_norm_into_conv(graph, !choices.limits.class.is_cpu())
    }),
    pass("fuse_concat_into_conv", When::Fuse, true, |graph, _| fuse_concat_into_conv(graph)),
    pass("recompute_cheap", When::Rebuild, true, |graph, choices| {
        recompute_cheap(graph, choices.has_codes())
    }),
    pass("store_masks", When::BitMasks, true, |graph, choices| store_masks(graph, choices.has_codes())),
    pass("store_activations", When::NarrowActivations, false, |graph, choices| {
        store_activations(graph, choices.precision, choices.coded, choices.half_gradients)
    }),
    pass("store_weights_half", When::HalfWeights, false, |graph, choices| {
        store_weights_half(graph, choices.weights)
    }),
    // Convolutions read each element many times: on CPU adapters, repeated widening costs more than the copy.
    pass("fold_upcasts", When::Fuse, true, |graph, choices| {
        fold_upcasts(graph, !choices.limits.class.is_cpu())
    }),
    pass("fuse_elementwise", When::Fuse, true, |graph, choices| {
        fuse_elementwise(graph, choices.limits.max_storage_buffers as usize)
    }),
    pass("fuse_epilogues", When::Fuse, true, |graph, choices| {
        fuse_epilogues(graph, choices.limits.max_storage_buffers as usize)
    }),
    pass("fuse_running_stats", When::FuseTraining, true, |graph, _| fuse_running_stats(graph)),
    pass("offload_optimizer_state", When::OffloadOptimizer, true, |graph, choices| {
        offload_optimizer_state(graph, choices.away)
    }),
    pass("dealias_operands", When::Always, true, |graph, _| dealias_operands(graph, false)),
];

/// Number of passes.
pub(crate) const COUNT: usize = BEFORE.len() + AFTER.len();

/// The first `count` passes: those over the traced graph, and those over the whole graph.
pub(crate) fn first(count: usize) -> [&'static [Pass]; 2] {
    let before = count.min(BEFORE.len());
    [&BEFORE[..before], &AFTER[..count - before]]
}

/// Runs the passes of a table that `choices` enable, in order.
pub(crate) fn run(passes: &[Pass], graph: Graph, choices: &Choices<'_>) -> Graph {
    passes
        .iter()
        .filter(|pass| pass.when.holds(choices))
        .fold(graph, |graph, pass| (pass.run)(graph, choices))
}

#[cfg(test)]
pub(super) mod tests {
    use crate::autodiff::differentiate;
    use crate::graph::Graph;

    /// A graph with its backward pass. The gradients are graph outputs.
    pub(in crate::compile) fn differentiated(graph: Graph) -> Graph {
        let loss = graph.outputs[0].1;
        let (trace, gradients) = differentiate(graph, loss).expect("a scalar");
        let ids: Vec<_> = gradients.pairs.iter().filter_map(|(_, gradient)| gradient.id()).collect();
        let mut graph = trace.finish().expect("valid");
        graph.outputs.extend(ids.into_iter().enumerate().map(|(i, id)| (format!("gradient {i}"), id)));
        graph
    }
}
