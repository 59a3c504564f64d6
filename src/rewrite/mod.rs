//! Rewrites of a graph that need fewer bytes: before differentiation `simplify` and `split`, after it `prune`, `unjoin`,
//! `through_norms`, `through_joins`, `add_to`, `rebuild`, `masks`, `half`, `weights`, `widenings`, `fuse`, `into_products` and
//! `offload`. In 32 bits none of them changes a result.

mod accumulate;
mod add_to;
mod again;
mod fuse;
mod half;
mod into_products;
mod masks;
mod offload;
mod rebuild;
mod simplify;
mod split;
mod through_joins;
mod through_norms;
mod unjoin;
mod uses;
mod weights;
mod widenings;

pub(crate) use accumulate::accumulate;
pub(crate) use add_to::add_to;
pub(crate) use again::{BACK, Step, again, is_view};
pub(crate) use fuse::fuse;
pub(crate) use half::half;
pub(crate) use into_products::into_products;
pub(crate) use masks::masks;
pub(crate) use offload::offload;
pub(crate) use rebuild::rebuild;
pub(crate) use simplify::{prune, simplify};
pub(crate) use split::split;
pub(crate) use through_joins::through_joins;
pub(crate) use through_norms::through_norms;
pub(crate) use unjoin::unjoin;
pub(crate) use weights::weights;
pub(crate) use widenings::widenings;
