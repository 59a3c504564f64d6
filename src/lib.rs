//! Trains neural networks on any GPU that [wgpu](https://wgpu.rs) supports, in memory that is planned to the byte
//! before the run.
//!
//! A model is a function from symbolic tensors to a loss. Tracing it needs no GPU; planning it lays out every tensor
//! of a training step; a session creates what its plan says and runs it:
//!
//! ```
//! # #[cfg(all(feature = "gpu", feature = "safetensors"))]
//! # fn main() -> wgrad::Result<()> {
//! use wgrad::prelude::*;
//!
//! let params = Params::new(42);
//! let line = Linear::new(&params.scope("line"), 1, 1);
//! let step = TrainStep::trace(&params, |trace| {
//!     let x = trace.input("x", [4, 1]);
//!     line.forward(&x).mse(&trace.input("y", [4, 1]))
//! })?;
//! let options = PlanOptions { optimizer: Sgd { lr: 0.1, ..Sgd::default() }.into(), ..PlanOptions::default() };
//! let plan = step.plan(&options, &Limits::default())?;
//! print!("{}", Estimate::of(&plan)); // every byte, by class and by tensor
//!
//! let device = Device::new()?;
//! let mut session = Session::new(&device, &step.plan(&options, device.limits())?)?;
//! for _ in 0..100 {
//!     session.feed("x", &[-1.0f32, 0.0, 1.0, 2.0])?;
//!     session.feed("y", &[-1.0f32, 1.0, 3.0, 5.0])?;
//!     session.step()?;
//! }
//! assert!(session.loss()? < 0.01);
//! # Ok(())
//! # }
//! # #[cfg(not(all(feature = "gpu", feature = "safetensors")))]
//! # fn main() {}
//! ```
//!
//! # Where to look
//!
//! | to | see |
//! |---|---|
//! | define a model | [`nn`] (layers), [`graph::Tensor`] (operations), [`models`] (known networks) |
//! | know its memory | [`compile::TrainStep::plan`], [`report::Estimate`], [`compile::fit`] (within a budget) |
//! | train it | [`train::Trainer`] (data, epochs, callbacks, checkpoints), [`exec::Session`] (step by step) |
//! | use it in an app | [`device::Device::from_wgpu`], [`exec::DeviceTensor`] |
//! | save and load | [`exec::Session::save_with`], [`exec::Session::load_with`] |
//! | pack other buffers | [`memory::planner`] (known lifetimes), [`memory::Pool`] (unknown ones) |
//!
//! README.md of the package shows what wgrad saves, and its folder `docs` has a page for each of these tasks.
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
//! | `gpu` | yes | [`device`], [`exec`], `check`, [`train`]: everything that needs wgpu; in browsers, functions that wait are `async` |
//! | `safetensors` | yes | `Session::save` and `load`, of PyTorch's `.pt` files, too; `train::Checkpoint` |
//! | `onnx` | no | `onnx`: networks from ONNX files, and as ONNX files |
//! | `images` | no | `data::ImageFolder`: PNG and JPEG files |
//! | `csv` | no | `data::Table::read_csv` |
//! | `parquet` | no | `data::Table::read_parquet`: uncompressed or Snappy |
//! | `cli` | no | the `wgrad` program |
//! | `internals` | no | graphs, kernels, layouts and methods that only this crate's tests and program use: no promise of stability |
//!
//! Features do not change numerical results.

#![warn(missing_docs, unreachable_pub)]
// Without `internals` some modules are private, and what only tests use in them is dead; so is in browsers what needs threads.
#![cfg_attr(
    any(not(feature = "internals"), target_family = "wasm"),
    allow(dead_code, unreachable_pub, unused_imports)
)]

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
#[cfg(feature = "onnx")]
pub mod onnx;
pub mod optim;
mod parallel;
mod pickle;
pub mod progress;
#[cfg(not(feature = "internals"))]
mod pt;
#[cfg(feature = "internals")]
pub mod pt;
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
mod time;
#[cfg(feature = "gpu")]
pub mod train;
pub mod units;

pub use error::{Error, Result};
pub use units::Bytes;
/// The version of wgpu whose devices, queues and buffers this crate takes and returns.
#[cfg(feature = "gpu")]
pub use wgpu;

/// What waits for the device is written as `async` once. In browsers, where nothing may block, it stays so; elsewhere this
/// attribute takes `async` and `.await` away and the function blocks.
#[cfg(all(feature = "gpu", target_family = "wasm"))]
use maybe_async::must_be_async as maybe_async;
#[cfg(all(feature = "gpu", not(target_family = "wasm")))]
use maybe_async::must_be_sync as maybe_async;

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
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/training.md")]
    struct Training;
    #[cfg(all(feature = "images", feature = "csv", feature = "parquet"))]
    #[doc = include_str!("../docs/data.md")]
    struct Data;
    #[doc = include_str!("../docs/own-kernels.md")]
    struct OwnKernels;
    #[doc = include_str!("../docs/reliability.md")]
    struct Reliability;
}
