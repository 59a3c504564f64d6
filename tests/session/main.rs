//! Plans that run: sessions and the eager executor must agree bit for bit in every variant, create what was planned, and
//! survive whatever fails.

mod check;
mod equivalence;
mod errors;
mod fusion;
mod guards;
mod masks;
mod observe;
mod offload;
mod offload_activations;
mod out_of_memory;
mod pipelines;
mod recompute;
mod record;
mod refit;
mod rows;
mod segments;

#[path = "../support/mod.rs"]
mod support;
