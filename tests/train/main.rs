//! Training: optimizers, precision, whole networks, reports about runs, and saved files.

mod chaos;
mod decoder;
mod finite;
mod gpt2;
mod groups;
mod llama;
mod lora;
mod loss_scale;
mod monitor;
mod numerics;
mod parallel;
mod precision;
mod progress;
mod pytorch_files;
mod quality;
mod resume;
mod trainer;
mod transformers;
mod web;
mod weight_files;
mod weights;

#[path = "../support/mod.rs"]
mod support;
