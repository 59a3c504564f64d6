//! Compiles a traced model into a plan: runs graph passes, schedules operations, selects the activations to
//! keep, assigns a storage to every value, lowers operations to dispatches and packs storages into arenas. No
//! adapter is opened.

pub(crate) mod analysis;
mod auto;
mod dump;
mod fit;
mod launches;
mod names;
mod options;
mod parallel;
mod pass_effect;
pub(crate) mod passes;
mod peak;
mod plan;
mod recompute;
mod schedule;
mod shares;
mod step;
mod storage;

#[cfg(not(feature = "internals"))]
pub(crate) use analysis::Views;
#[cfg(feature = "internals")]
pub use analysis::Views;
pub use fit::{Fitted, Lever, Planned, fit, levers, max_batch, max_seq};
pub(crate) use fit::{find_fit, max_batches};
pub use launches::PlannedLaunch;
pub use options::PlanOptions;
pub use parallel::{Parallel, Shard, WireTimes};
#[cfg(not(feature = "internals"))]
pub(crate) use pass_effect::PassEffect;
#[cfg(feature = "internals")]
pub use pass_effect::PassEffect;
pub use peak::Peak;
pub use plan::Plan;
use plan::Settings;
pub use recompute::{Recompute, Work};
pub use shares::Shares;
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
