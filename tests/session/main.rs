//! Plans that run: sessions and the eager executor must agree bit for bit in every variant, create the
//! planned bytes, and survive failures.

mod attention;
mod check;
mod custom_kernels;
mod equivalence;
mod errors;
mod full_size;
mod fused_updates;
mod fusion;
mod gradient_outputs;
mod guards;
mod inputs;
mod lost;
mod masks;
mod observe;
mod offload;
mod offload_activations;
#[cfg(feature = "onnx")]
mod onnx;
#[cfg(feature = "onnx")]
mod onnx_export;
mod out_of_memory;
mod own_gradients;
mod parallel;
mod pieces;
mod pipelines;
mod recompute;
mod record;
mod refit;
mod row_ops;
mod sharing;
mod submits;
mod tensor;

#[path = "../support/mod.rs"]
mod support;
