//! Rewrites of a graph that need fewer bytes: before differentiation `simplify` and `split`, after it `prune`, `rebuild` and
//! `half`. All but the last change no result.

mod half;
mod rebuild;
mod simplify;
mod split;

pub(crate) use half::half;
pub(crate) use rebuild::rebuild;
pub(crate) use simplify::{prune, simplify};
pub(crate) use split::split;
