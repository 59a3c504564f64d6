//! The offset planner: takes a [`Problem`] of sizes and lifetimes and returns a validated [`Packing`] with a
//! certificate.
//!
//! It is pure and deterministic: it uses no device, no clock unless a time limit is given, and only ordered
//! containers.
//!
//! ```
//! use wgrad::memory::planner::{Item, Options, Problem, solve};
//! let items = vec![Item::new("input", 0, 2, 400), Item::new("hidden", 1, 3, 300), Item::new("output", 2, 4, 400)];
//! let packing = solve(&Problem::new(items), &Options::default())?;
//! assert_eq!(packing.certificate.height, 700);
//! assert!(packing.certificate.optimal);
//! # Ok::<(), wgrad::memory::planner::PackError>(())
//! ```

mod bound;
mod budget;
mod check;
mod csv;
mod cut;
mod eject;
mod error;
mod exact;
mod floors;
mod greedy;
mod improve;
mod instance;
mod line;
mod occupancy;
mod order;
mod packing;
mod problem;
mod refine;
mod skyline;
mod solve;
mod split;
mod validate;

pub use bound::lower_bound;
pub use csv::{read_problem, write_problem, write_solution};
pub use error::PackError;
pub use greedy::Fit;
pub use order::Order;
pub use packing::{Certificate, Effort, Method, Options, Packing};
pub use problem::{Item, Placement, Problem, Solution};
pub use solve::solve;
pub use validate::{Violation, validate};
