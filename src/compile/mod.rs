//! From a traced model to a plan: passes over the graph, an order, retention of activations, a storage for every value,
//! dispatches, and a place for every byte. No adapter is opened.

pub(crate) mod analysis;
mod dump;
mod fit;
mod options;
mod pass_effect;
pub(crate) mod passes;
mod peak;
mod plan;
mod recompute;
mod schedule;
mod step;
mod storage;

#[cfg(not(feature = "internals"))]
pub(crate) use analysis::Views;
#[cfg(feature = "internals")]
pub use analysis::Views;
pub use fit::{Fitted, Lever, Planned, fit, levers, max_batch};
pub use options::PlanOptions;
#[cfg(not(feature = "internals"))]
pub(crate) use pass_effect::PassEffect;
#[cfg(feature = "internals")]
pub use pass_effect::PassEffect;
pub use peak::Peak;
pub use plan::Plan;
use plan::Settings;
pub use recompute::{Recompute, Work};
pub use step::{Forward, Savings, TrainStep};
pub use storage::{Activations, Footprint, Offload};
#[cfg(not(feature = "internals"))]
pub(crate) use storage::{
    Arena, LOSS_RING, Layout, OFFLOAD_SLOTS, PARAMS_SLOT, Program, Region, STAGING_SLOTS, Span, Storage,
    StorageId, TRANSFER_BYTES, Transfer,
};
#[cfg(feature = "internals")]
pub use storage::{
    Arena, LOSS_RING, Layout, OFFLOAD_SLOTS, PARAMS_SLOT, Program, Region, STAGING_SLOTS, Span, Storage,
    StorageId, TRANSFER_BYTES, Transfer,
};
#[cfg(feature = "gpu")]
pub(crate) use storage::{host_bytes, offload_piece, readback_slots, transfer_bytes};
