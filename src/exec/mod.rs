//! Plan execution: the only module that uses both plans and devices.
//!
//! [`Session`] runs plans in memory that was laid out in advance. [`Eager`] runs the same dispatches one
//! operation at a time from a live memory pool. On the same adapter the two give bit-identical results.

mod arenas;
mod check;
mod clock;
mod commands;
mod compatible;
#[cfg(not(target_family = "wasm"))]
mod cooperative;
mod decoder;
#[cfg(not(target_family = "wasm"))]
mod eager;
mod feed;
mod ledger;
mod offload;
mod on_device;
mod pages;
mod parameters;
mod poison;
mod profile;
mod program;
mod ranks;
mod readback;
mod record;
mod refit;
mod repeat;
mod replan;
mod sampling;
mod session;
mod slices;
mod state;
mod state_layout;
mod statistics;
mod timers;
mod transfer;
#[cfg(not(target_family = "wasm"))]
mod trial;
#[cfg(not(target_family = "wasm"))]
mod tune;
#[cfg(feature = "safetensors")]
mod weights;

#[cfg(all(not(feature = "internals"), not(target_family = "wasm")))]
pub(crate) use cooperative::{Race, Races, race_cooperative, test_cooperative};
#[cfg(all(feature = "internals", not(target_family = "wasm")))]
pub use cooperative::{Race, Races, race_cooperative, test_cooperative};
pub use decoder::Decoder;
#[cfg(not(target_family = "wasm"))]
pub use eager::Eager;
pub use feed::Element;
pub use on_device::DeviceTensor;
pub use profile::{KernelSpan, KernelTotal, Profile};
#[cfg(feature = "mpi")]
pub use ranks::MpiTransport;
pub use ranks::Transport;
#[cfg(not(target_family = "wasm"))]
pub use ranks::{LocalTransport, local, mpi_processes, shares_by_memory};
pub use refit::{OnOom, Planner, Refit};
pub use sampling::Sampling;
pub use session::{Debug, ProgramId, Session};
pub use state::SessionState;
pub use statistics::RunStats;
#[cfg(not(target_family = "wasm"))]
pub use tune::{Tuning, tune};
#[cfg(feature = "safetensors")]
pub use weights::{
    Converted, Ignored, LoadOptions, LoadReport, Rename, SaveOptions, read_notes, read_notes_of,
};
#[cfg(feature = "safetensors")]
pub(crate) use weights::{Destination, Origin, notes_of};
