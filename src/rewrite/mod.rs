//! Rewrites of a graph that need fewer bytes: before differentiation `simplify` and `split`, after it `prune`, `rebuild`,
//! `half` and `fuse`. All but 16-bit storage change no result.

mod accumulate;
mod again;
mod fuse;
mod half;
mod rebuild;
mod simplify;
mod split;
mod unjoin;

pub(crate) use accumulate::accumulate;
pub(crate) use again::{Step, again, is_view};
pub(crate) use fuse::fuse;
pub(crate) use half::half;
pub(crate) use rebuild::rebuild;
pub(crate) use simplify::{prune, simplify};
pub(crate) use split::split;
pub(crate) use unjoin::unjoin;
