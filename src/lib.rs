#![doc = include_str!("../README.md")]
//!
//! # Data flow
//!
//! ```text
//! model code ──trace──▶ graph ──differentiate──▶ training graph (forward, backward, updates)
//!                                                     │
//!                            schedule ─▶ storages ─▶ lower ─▶ pack ─▶ validate    = Plan
//!                                                                        ├─▶ report
//! device ──────────────────────────────────────────────▶ exec::Session: step() × N
//!                                                    └──▶ exec::Eager: the same, from a pool
//! ```
//!
//! Everything before `device` is pure: it uses no GPU, and with `default-features = false` wgpu is not
//! compiled.
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `gpu` | yes | [`device`], [`exec`], `check`, [`train`]: everything that needs wgpu |
//! | `safetensors` | yes | `Session::save` and `load`, `train::Checkpoint` |
//! | `cli` | no | the `wgrad` program |
//! | `internals` | no | graphs, kernels and layouts as this crate's tests see them: no promise of stability |
//!
//! Features do not change numerical results.

#![warn(missing_docs, unreachable_pub)]
// Without `internals` some modules are private, and what only tests use in them is dead.
#![cfg_attr(not(feature = "internals"), allow(dead_code, unreachable_pub, unused_imports))]

#[cfg(not(feature = "internals"))]
mod autodiff;
#[cfg(feature = "internals")]
pub mod autodiff;
#[cfg(all(any(feature = "gpu", test), not(feature = "internals")))]
mod check;
#[cfg(all(any(feature = "gpu", test), feature = "internals"))]
pub mod check;
pub mod compile;
pub mod data;
#[cfg(feature = "gpu")]
pub mod device;
pub mod dtype;
pub mod error;
#[cfg(feature = "gpu")]
pub mod exec;
#[cfg(not(feature = "internals"))]
mod files;
#[cfg(feature = "internals")]
pub mod files;
pub mod graph;
#[cfg(not(feature = "internals"))]
mod json;
#[cfg(feature = "internals")]
pub mod json;
#[cfg(not(feature = "internals"))]
mod kernels;
#[cfg(feature = "internals")]
pub mod kernels;
pub mod limits;
pub mod memory;
pub mod models;
pub mod nn;
pub mod optim;

pub mod progress;
#[cfg(not(feature = "internals"))]
mod random;
#[cfg(feature = "internals")]
pub mod random;
#[cfg(not(feature = "internals"))]
mod reference;
#[cfg(feature = "internals")]
pub mod reference;
pub mod report;
pub mod shape;
#[cfg(feature = "gpu")]
pub mod train;
pub mod units;

pub use error::{Error, Result};
pub use units::Bytes;
/// The version of wgpu whose devices, queues and buffers this crate takes and returns.
#[cfg(feature = "gpu")]
pub use wgpu;

/// Common imports: `use wgrad::prelude::*`.
pub mod prelude {
    pub use crate::compile::{Forward, Plan, PlanOptions, TrainStep};
    pub use crate::data::{Batch, Dataset, Loader, Table};
    #[cfg(feature = "gpu")]
    pub use crate::device::{Device, DeviceOptions, Select};
    pub use crate::dtype::{DType, Precision};
    #[cfg(all(feature = "gpu", feature = "safetensors"))]
    pub use crate::exec::{LoadOptions, Rename, SaveOptions};
    #[cfg(feature = "gpu")]
    pub use crate::exec::{ProgramId, Session};
    pub use crate::graph::{IGNORE, Init, Param, ParamGroup, Params, Tensor, Trace};
    pub use crate::limits::Limits;
    pub use crate::nn::{
        BatchNorm2d, Conv2d, Dropout, Embedding, LayerNorm, Linear, Module, RmsNorm, Sequential,
    };
    pub use crate::optim::{Adam, AdamW, Clip, Optimizer, Schedule, Sgd};
    pub use crate::report::Estimate;
    #[cfg(feature = "gpu")]
    pub use crate::train::{Task, TrainOptions, Trainer};
    pub use crate::{Bytes, Error, Result};
}

/// The code of the documents compiles.
#[cfg(all(doctest, feature = "gpu", feature = "safetensors"))]
mod pages {
    #[doc = include_str!("../docs/training.md")]
    struct Training;
}
