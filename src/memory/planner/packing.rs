//! The planner's options and results.

use std::fmt;
use std::time::Duration;

use super::greedy::Fit;
use super::order::Order;
use super::problem::Solution;
use super::validate::Violation;

/// How much work is spent. Budgets are counted in units of work, so a result depends on the effort alone, not
/// on the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    /// Greedy orders and a short search: milliseconds.
    Fast,
    /// A longer search: up to about a second for a hard problem. Without a capacity, this effort and
    /// [`Effort::Fast`] are content with less than the greatest common divisor of all alignments above the bound.
    #[default]
    Balanced,
    /// Search until the packing is proved optimal or the (large) budget is spent, on all cores. Without a
    /// capacity, by falling capacities; the result is the same for any number of cores.
    Exact,
}

impl Effort {
    /// The names of [`Effort::named`].
    pub const NAMES: [&'static str; 3] = ["fast", "balanced", "exact"];

    /// Returns the effort of this name.
    pub fn named(name: &str) -> Option<Self> {
        let efforts = Self::NAMES.into_iter().zip([Self::Fast, Self::Balanced, Self::Exact]);
        efforts.into_iter().find(|(known, _)| *known == name).map(|(_, effort)| effort)
    }
}

/// Options of [`solve`](super::solve).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// How much work is spent.
    pub effort: Effort,
    /// A total height in bytes that suffices: the search ends as soon as the sum of all arenas is at most
    /// this. Not reaching it is not an error: compare [`Certificate::height`].
    pub capacity: Option<u64>,
    /// Wall-clock time after which the best packing so far is returned. With a time limit, results may differ
    /// between runs.
    pub time_limit: Option<Duration>,
}

/// How the packing was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The problem has no items.
    Empty,
    /// Greedy packing in one order.
    Greedy(Order, Fit),
    /// Skyline packing, with ties broken by one order.
    Skyline(Order),
    /// Local search that started from one order.
    LocalSearch(Order),
    /// Local search that displaces items from a lower place.
    Ejection,
    /// Exact search.
    Exact,
    /// Items divided among buffers of limited size.
    Split,
}

impl Method {
    /// Returns the rank of the method by cost: costlier methods are tried when cheaper ones do not meet the
    /// bound.
    pub(super) fn cost(self) -> u8 {
        match self {
            Method::Empty => 0,
            Method::Greedy(..) => 1,
            Method::Skyline(_) => 2,
            Method::LocalSearch(_) => 3,
            Method::Ejection => 4,
            Method::Exact => 5,
            Method::Split => 6,
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Method::Empty => f.write_str("empty"),
            Method::Greedy(order, fit) => write!(f, "greedy by {order}, {fit}"),
            Method::Skyline(order) => write!(f, "skyline by {order}"),
            Method::LocalSearch(order) => write!(f, "local search from {order}"),
            Method::Ejection => f.write_str("ejection"),
            Method::Exact => f.write_str("exact search"),
            Method::Split => f.write_str("split over buffers"),
        }
    }
}

/// The quality of a packing and its proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Sum of the heights of all arenas in bytes.
    pub height: u64,
    /// Proved lower bound in bytes for every packing into the same number of separate arenas.
    pub lower_bound: u64,
    /// `height - lower_bound`, in bytes.
    pub gap: u64,
    /// Whether the packing is proved to be the lowest: `gap` is 0.
    pub optimal: bool,
    /// How the packing was found; for several arenas, the costliest method that was needed.
    pub method: Method,
}

impl Certificate {
    /// Creates the certificate of a packing of `height` bytes with the proved bound `lower_bound`. A height
    /// below the bound is a [`Violation`].
    pub(super) fn new(height: u64, lower_bound: u64, method: Method) -> Result<Self, Violation> {
        let Some(gap) = height.checked_sub(lower_bound) else {
            return Err(Violation::BelowBound { height, lower_bound });
        };
        Ok(Self { height, lower_bound, gap, optimal: gap == 0, method })
    }

    /// Returns the height divided by the lower bound; 1 if there is nothing to pack.
    pub fn ratio(&self) -> f64 {
        if self.lower_bound == 0 { 1.0 } else { self.height as f64 / self.lower_bound as f64 }
    }
}

/// A validated solution and its certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packing {
    /// A place for every item.
    pub solution: Solution,
    /// The quality of the solution.
    pub certificate: Certificate,
}
