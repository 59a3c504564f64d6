//! Training: optimizers, precision, whole networks, and what a run tells and keeps.

mod answers;
mod files;
mod gpt2;
mod loss_scale;
mod mixed;
mod monitor;
mod precision;
mod progress;
mod trainer;
mod transformers;
mod weights;

#[path = "../support/mod.rs"]
mod support;
