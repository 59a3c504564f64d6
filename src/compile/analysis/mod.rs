//! Graph analyses shared by passes, scheduling, recomputation and storage: uses of values, views, and
//! liveness.

mod liveness;
mod uses;
mod views;

pub(super) use liveness::{Effects, Live, peak, profile};
pub(crate) use uses::Uses;
pub use views::Views;
