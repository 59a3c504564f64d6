//! Tests that need no device: graphs, plans, the planner, pools, reports, and rules for the source files.
//! They compile without the feature `gpu`.

mod certificates;
#[cfg(any(feature = "images", feature = "parquet"))]
mod data;
mod fit;
mod frozen;
mod fuzz;
mod model_errors;
mod models;
mod no_cliffs;
mod page;
mod parallel;
mod planner;
mod plans;
mod pools;
mod recompute_cheap;
mod reports;
mod source_rules;
mod tables;
#[cfg(all(feature = "onnx", feature = "safetensors"))]
mod web;

#[path = "../support/mod.rs"]
mod support;
