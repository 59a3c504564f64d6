//! What needs no device: graphs, plans, the planner, pools, reports, and the rules of the source itself. Compiles without the
//! feature `gpu`.

mod certificates;
mod fit;
mod fuzz;
mod house;
mod mistakes;
mod models;
mod page;
mod planner;
mod plans;
mod pools;
mod rebuild;
mod reports;

#[path = "../support/mod.rs"]
mod support;
