//! The models of a graph that passes, schedule, recomputation and storage share: who reads what, which values lie inside of
//! others, and how many bytes are alive.

mod liveness;
mod uses;
mod views;

pub(super) use liveness::{Effects, Live, peak, profile};
pub(crate) use uses::Uses;
pub use views::Views;
