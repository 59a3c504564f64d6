//! Running plans: the only place where plans and devices meet.
//!
//! [`Session`] runs plans from memory laid out in advance; [`Eager`] runs the same dispatches one operation at a time
//! from a live pool. On one adapter both give the same bits.

mod arenas;
mod check;
mod clock;
mod commands;
mod compatible;
mod cooperative;
mod eager;
mod feed;
mod held;
mod ledger;
mod offload;
mod parameters;
mod poison;
mod profile;
mod program;
mod readback;
mod record;
mod refit;
mod replan;
mod session;
mod statistics;
mod timers;
mod transfer;
mod trial;
mod tune;
#[cfg(feature = "safetensors")]
mod weights;

pub use cooperative::{Race, Races, limits_for, race_cooperative, test_cooperative};
pub use eager::Eager;
pub use feed::Element;
pub use profile::{KernelSpan, KernelTotal, Profile};
pub use refit::{OnOom, Planner, Refit};
pub use session::{Debug, ProgramId, Session};
pub use statistics::RunStats;
pub use tune::{Tuning, tune};
#[cfg(feature = "safetensors")]
pub use weights::{Converted, Ignored, LoadOptions, LoadReport, Rename, read_notes};
