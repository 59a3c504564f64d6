//! Rewrites of a graph that change no result and need fewer bytes: before differentiation `simplify` and `split`, after it
//! `prune` and `rebuild`.

mod accumulate;
mod again;
mod rebuild;
mod simplify;
mod split;
mod unjoin;

pub(crate) use accumulate::accumulate;
pub(crate) use again::{Step, again, is_view};
pub(crate) use rebuild::rebuild;
pub(crate) use simplify::{prune, simplify};
pub(crate) use split::split;
pub(crate) use unjoin::unjoin;
