//! Storages for values, the dispatches on them, their layout in arenas, and the buffers that a session
//! creates.

mod footprint;
mod layout;
mod lowerings;
mod offload;
mod persistent;
mod program;
mod transfers;

pub(super) use footprint::offload_buffers;
pub use footprint::{Footprint, LOSS_RING, OFFLOAD_SLOTS, PARAMS_SLOT, STAGING_SLOTS, TRANSFER_BYTES};
#[cfg(feature = "gpu")]
pub(crate) use footprint::{host_bytes, offload_piece, readback_slots, transfer_bytes};
pub(super) use layout::step_problem;
pub use layout::{Arena, Layout, Region};
pub use offload::{Activations, Offload};
pub use program::{Program, Span, Storage, StorageId};
pub use transfers::Transfer;
