//! From the graph of a training step to one that needs fewer bytes and dispatches: passes, in the order of one table, and the
//! models of a graph that they share.

pub(crate) mod analysis;
pub(crate) mod passes;
