//! Rewrites of a graph that need fewer bytes: before differentiation `simplify` and `split`, after it `prune`, `rebuild` and
//! `half`. All but the last change no result.

mod accumulate;
mod again;
mod half;
mod offload;
mod rebuild;
mod simplify;
mod split;
mod unjoin;

pub(crate) use accumulate::accumulate;
pub(crate) use again::{Step, again, is_view};
pub(crate) use half::half;
pub(crate) use offload::offload;
pub(crate) use rebuild::rebuild;
pub(crate) use simplify::{prune, simplify};
pub(crate) use split::split;
pub(crate) use unjoin::unjoin;
