//! Every test that needs an adapter, in one program that can be carried to a machine without cargo
//! (`scripts/gpu_day.sh`): `kernels::…`, `session::…` and `train::…`.

// Each program has `support`, and so has this one, to which their `crate::support` refers here.
#![allow(clippy::duplicate_mod)]

#[path = "../kernels/main.rs"]
mod kernels;
#[path = "../session/main.rs"]
mod session;
#[path = "../support/mod.rs"]
mod support;
#[path = "../train/main.rs"]
mod train;
