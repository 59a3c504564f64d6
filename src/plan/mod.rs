//! From a traced model to a plan: a plain value that says, before any adapter is opened, what runs in which order on
//! which bytes.

mod accumulated;
mod dump;
mod fit;
mod footprint;
mod layout;
mod offload;
mod options;
mod pass_effect;
mod peak;
mod persistent;
mod program;
mod recompute;
mod schedule;
mod segments;
mod separate;
mod step;
mod views;
mod ways_out;

pub use fit::{Fitted, Lever, Planned, fit, levers, max_batch};
pub use footprint::{Footprint, LOSS_RING, OFFLOAD_SLOTS, PARAMS_SLOT, STAGING_SLOTS, TRANSFER_BYTES};
#[cfg(feature = "gpu")]
pub(crate) use footprint::{host_bytes, offload_piece, readback_slots, transfer_bytes};
pub use layout::{Arena, Layout, Region};
pub use offload::{Activations, Offload};
pub use options::PlanOptions;
pub use pass_effect::PassEffect;
pub use peak::Peak;
pub use program::{Program, Span, Storage, StorageId, Transfer};
pub use recompute::{Recompute, Work};
use segments::Joined;
pub use segments::Segment;
pub use step::{Forward, Savings, TrainStep};
pub use views::Views;

use crate::error::{Error, Result};
use crate::graph::{Class, Graph, Node, Op};
use crate::limits::Limits;
use crate::memory::planner::{Certificate, Problem};
use crate::optim::Optimizer;
use crate::random;
use crate::units::Bytes;

/// A step with every byte in its place.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What runs, in order, on which storages.
    pub program: Program,
    /// Where each storage lies.
    pub layout: Layout,
    /// The limits it was made for.
    pub limits: Limits,
    /// The optimizer whose updates are part of the step; `None` for a forward pass.
    pub optimizer: Option<Optimizer>,
    /// Seed for dropout.
    pub seed: u64,
    /// How good the packing of the step's arena is.
    pub certificate: Certificate,
    /// The fullest moment of the step.
    pub peak: Peak,
    /// What the step costs, and how much of it is computed again.
    pub work: Work,
}

/// What decides a plan, apart from the graph.
#[derive(Clone, Debug, Default)]
struct Settings {
    optimizer: Option<Optimizer>,
    seed: u64,
    reorder: bool,
    in_place: bool,
    /// Slices and joins are places in the memory of the whole, where that needs less.
    parts: bool,
    reuse: bool,
    /// Updates of small parameters run as one, while that keeps to the budget.
    segments: bool,
    budget: Option<u64>,
    guard_bytes: u64,
}

impl Plan {
    /// Plans a graph that was put together by hand, as it stands: nothing is differentiated and no update is added. With
    /// an `optimizer`, a run counts as a training step, and the first output is its loss, a scalar. With
    /// `limits.cooperative`, matrix products and convolutions round their factors to `f16`.
    ///
    /// # Errors
    /// A tensor that no binding covers.
    pub fn of_graph(graph: Graph, optimizer: Option<Optimizer>, limits: &Limits) -> Result<Self> {
        let settings = Settings {
            optimizer,
            reorder: true,
            in_place: true,
            parts: true,
            reuse: true,
            segments: true,
            ..Settings::default()
        };
        Self::compile(graph, limits, settings)
    }

    /// The pipeline: separate operands, schedule, assign storages and lower, join updates, pack, check.
    fn compile(graph: Graph, limits: &Limits, settings: Settings) -> Result<Self> {
        let program = Self::program(graph, limits, &settings)?;
        Self::lay_out(program, limits, settings)
    }

    /// The pipeline from segments on: where a budget does not hold both, it comes first.
    fn lay_out(program: Program, limits: &Limits, settings: Settings) -> Result<Self> {
        let joined =
            if settings.segments { segments::joined(&program, limits, settings.in_place)? } else { None };
        let within = |bytes: u64| settings.budget.is_none_or(|budget| bytes <= budget);
        if let Some(Joined { program, needs, more }) = joined
            && (!more || within(needs))
        {
            let plan = Self::pack(program, limits, &settings)?;
            if !more || within(plan.footprint().total()) {
                return Ok(plan);
            }
        }
        Self::pack(program, limits, &settings)
    }

    /// The pipeline from packing on.
    fn pack(program: Program, limits: &Limits, settings: &Settings) -> Result<Self> {
        let (layout, certificate) =
            layout::Layout::pack(&program, limits, settings.reuse, settings.guard_bytes)?;
        let peak = Peak::of(&program);
        let Settings { optimizer, seed, .. } = *settings;
        let work = Work::default();
        Ok(Self { program, layout, limits: limits.clone(), optimizer, seed, certificate, peak, work })
    }

    /// The pipeline up to segments.
    fn program(graph: Graph, limits: &Limits, settings: &Settings) -> Result<Program> {
        let with = |graph: Graph, parts: bool| {
            let graph = separate::separate(graph, parts)?;
            let views = Views::of(&graph, parts);
            let order = schedule::schedule(&graph, &views, settings.reorder);
            Program::build(graph, views, (order, Vec::new()), limits, settings.in_place)
        };
        let candidate = Views::of(&graph, settings.parts);
        let moves = |node: &&Node| matches!(node.op, Op::Slice { .. } | Op::Concat { .. });
        if !graph.nodes.iter().filter(moves).any(|node| candidate.is_free(node)) {
            return with(graph, false);
        }
        let (apart, inside) = (with(graph.clone(), false)?, with(graph, true)?);
        let fewer = inside.lower_bound(limits)? <= apart.lower_bound(limits)?;
        Ok(if fewer { inside } else { apart })
    }

    /// The graph that runs: the traced one with its backward pass and updates.
    pub fn graph(&self) -> &Graph {
        &self.program.graph
    }

    /// Bytes if every tensor had memory of its own for the whole step.
    pub fn naive_bytes(&self) -> u64 {
        self.layout.persistent_bytes() + self.program.naive_bytes
    }

    /// No plan for this order of operations can need less: what lives from step to step, and the most that is ever
    /// alive at once beside it.
    pub fn lower_bound_bytes(&self) -> u64 {
        self.layout.persistent_bytes() + self.certificate.lower_bound
    }

    /// All arenas together.
    pub fn peak_bytes(&self) -> u64 {
        self.layout.arenas().map(|(_, bytes)| bytes).sum()
    }

    /// Bytes of every buffer that a session for this plan alone creates.
    pub fn footprint(&self) -> Footprint {
        Footprint::of(&[self])
    }

    /// The packing of the step's arena as a problem of its own: every tensor's lifetime, in operations, and bytes.
    pub fn problem(&self) -> Problem {
        layout::step_problem(&self.program, &self.limits, true, 0)
    }

    /// A number that differs between plans that differ: order, kernels, places. It is the same in every process.
    pub fn hash(&self) -> u64 {
        let mut hash = 0u64;
        let mut add = |word: u64| hash = random::mix(hash ^ word).wrapping_add(word);
        for (launch, _) in &self.program.launches {
            add(launch.kernel.digest());
            for (name, value) in &launch.constants {
                name.bytes().for_each(|byte| add(u64::from(byte)));
                add(value.to_bits());
            }
            launch.grid.iter().chain(&launch.params).for_each(|&word| add(u64::from(word)));
            for span in &launch.memory {
                add(u64::from(span.storage.0));
                add(span.offset);
            }
        }
        for (arena, bytes) in self.layout.arenas() {
            add(u64::from(arena.index));
            add(u64::from(arena.persistent));
            add(bytes);
        }
        for region in &self.layout.regions {
            add(u64::from(region.arena.index));
            add(u64::from(region.arena.persistent));
            add(region.offset);
        }
        hash
    }

    /// The error for a plan that needs more than it may; `help` says what would fit.
    fn over_budget(&self, Bytes(budget): Bytes, what: &str, help: String) -> Error {
        Error::OverBudget {
            what: what.to_owned(),
            needed: self.footprint().total(),
            budget,
            peak_at: self.peak.at.clone(),
            largest: self.largest_at_peak(3),
            help,
        }
    }

    /// The largest storages alive at the peak, as text.
    pub(crate) fn largest_at_peak(&self, count: usize) -> String {
        let mut alive: Vec<&Storage> =
            self.program.storages.iter().filter(|s| s.alive_at(self.peak.position)).collect();
        alive.sort_by_key(|s| std::cmp::Reverse(s.bytes));
        let text = |s: &&Storage| format!("`{}` {}", s.name, Bytes(s.bytes));
        alive.iter().take(count).map(text).collect::<Vec<_>>().join(", ")
    }

    /// Bytes of each class alive at the peak, in the order of [`Class::ALL`].
    pub fn class_bytes(&self) -> [(Class, u64); 6] {
        Class::ALL.map(|class| (class, self.peak.classes.get(&class).copied().unwrap_or(0)))
    }
}
