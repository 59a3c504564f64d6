//! Rewrites of a graph that need fewer bytes: before differentiation `simplify` and `split`, after it `scalars`, `prune`, `unjoin`,
//! `through_norms`, `through_joins`, `rebuild`, `masks`, `half`, `weights`, `widenings`, `fuse`, `into_producers` and `offload`.
//! In 32 bits none of them changes a result.

mod accumulate;
mod again;
mod fuse;
mod half;
mod into_producers;
mod masks;
mod offload;
mod rebuild;
mod scalars;
mod simplify;
mod split;
mod through_joins;
mod through_norms;
mod unjoin;
mod uses;
mod weights;
mod widenings;

pub(crate) use accumulate::accumulate;
pub(crate) use again::{BACK, Step, again, is_view};
pub(crate) use fuse::fuse;
pub(crate) use half::half;
pub(crate) use into_producers::{into_producers, pairs};
pub(crate) use masks::masks;
pub(crate) use offload::offload;
pub(crate) use rebuild::rebuild;
pub(crate) use scalars::scalars;
pub(crate) use simplify::{prune, simplify};
pub(crate) use split::split;
pub(crate) use through_joins::through_joins;
pub(crate) use through_norms::through_norms;
pub(crate) use unjoin::unjoin;
pub(crate) use weights::weights;
pub(crate) use widenings::widenings;

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
