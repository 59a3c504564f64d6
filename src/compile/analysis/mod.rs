//! What passes ask about a graph.

mod uses;

pub(crate) use uses::Uses;
