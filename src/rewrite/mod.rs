//! Rewrites of a graph that change no result and need fewer bytes: before differentiation `simplify` and `split`, after it
//! `prune` and `rebuild`.

mod rebuild;
mod simplify;
mod split;

pub(crate) use rebuild::rebuild;
pub(crate) use simplify::{prune, simplify};
pub(crate) use split::split;
