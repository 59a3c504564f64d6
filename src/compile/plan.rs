//! The plan: the operations of a step in execution order, and the memory of every tensor. Planning opens no
//! adapter.

use super::analysis::Views;
use super::{
    Footprint, Layout, PARAMS_SLOT, Parallel, Peak, Program, Storage, Work, passes, schedule, storage,
};
use crate::error::{Error, Result};
use crate::graph::{Class, Graph, Node, Op};
use crate::limits::Limits;
use crate::memory::planner::{Certificate, Effort, Problem};
use crate::optim::Optimizer;
use crate::units::Bytes;
use crate::{parallel, random};

/// A step with a memory location for every tensor.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The operations in execution order, and their storages.
    pub program: Program,
    /// The arena and offset of each storage.
    pub layout: Layout,
    /// The limits it was compiled for.
    pub limits: Limits,
    /// The optimizer of a training step; `None` for a forward pass.
    pub optimizer: Option<Optimizer>,
    /// Seed for dropout.
    pub seed: u64,
    /// The device's share of the parts of a step.
    pub parallel: Parallel,
    /// How close the packing of the step's arena is to its lower bound.
    pub certificate: Certificate,
    /// The peak memory of the step.
    pub peak: Peak,
    /// Modelled cost of the step and of its recomputation.
    pub work: Work,
    /// The share of the activations that may be stored in 8 or 4 bits, in bytes, that is: all, unless
    /// [`Recompute::Auto`](super::Recompute::Auto) chose fewer. `None` in other precisions.
    pub coded: Option<f64>,
    /// The share of the trained parameters, in elements, whose optimizer state is in host memory between its updates: all, unless
    /// [`Recompute::Auto`](super::Recompute::Auto) chose fewer. `None` if state is not offloaded.
    pub state_away: Option<f64>,
}

/// Settings that determine a plan, apart from the graph.
#[derive(Clone, Debug, Default)]
pub(super) struct Settings {
    pub optimizer: Option<Optimizer>,
    pub seed: u64,
    pub parallel: Parallel,
    pub reorder: bool,
    pub in_place: bool,
    /// Slices and concatenations are views, where that needs hardly more memory.
    pub parts: bool,
    pub reuse: bool,
    /// Updates of small parameters are fused, if the budget allows it.
    pub fuse_updates: bool,
    pub budget: Option<u64>,
    pub guard_bytes: u64,
    pub packing: Effort,
}

/// # Errors
/// [`Error::Unsupported`] for limits too small for any plan.
pub(super) fn check_limits(limits: &Limits) -> Result<()> {
    match limits.lack() {
        Some(lack) => Err(Error::unsupported(&limits.name, format!("`{}` {lack}", limits.name))),
        None => Ok(()),
    }
}

/// Views instead of copies may cost one of this many bytes: a copy is a dispatch, and moves its bytes twice.
const MANY: u64 = 1000;

impl Plan {
    /// Plans a hand-built graph as it is: nothing is differentiated and no update is added. With an
    /// `optimizer`, a run counts as a training step, and the first output is its scalar loss. With
    /// `limits.kernels.cooperative`, matrix products and convolutions round their factors to `f16`.
    ///
    /// # Errors
    /// A tensor larger than a binding.
    #[cfg_attr(not(feature = "internals"), doc(hidden))]
    pub fn of_graph(graph: Graph, optimizer: Option<Optimizer>, limits: &Limits) -> Result<Self> {
        let settings = Settings {
            optimizer,
            reorder: true,
            in_place: true,
            parts: true,
            reuse: true,
            fuse_updates: true,
            ..Settings::default()
        };
        Self::compile(graph, limits, &settings)
    }

    /// The pipeline: de-alias, schedule, assign storages, fuse updates, pack, lower.
    pub(super) fn compile(graph: Graph, limits: &Limits, settings: &Settings) -> Result<Self> {
        Self::lay_out(Self::assign(&graph, limits, settings)?, limits, settings)?.lower()
    }

    /// The pipeline up to storages. Slices and concatenations are views unless that needs more bytes than
    /// their dispatches and copies are worth.
    pub(super) fn assign(graph: &Graph, limits: &Limits, settings: &Settings) -> Result<Program> {
        check_limits(limits)?;
        let with = |parts: bool| {
            let graph = passes::dealias_operands(graph.clone(), parts);
            let views = Views::of(&graph, parts);
            let order = match settings.reorder {
                true => schedule::schedule(&graph, &views, false),
                false => (0..graph.nodes.len()).collect(),
            };
            Program::assign(graph, views, order, limits, settings.in_place)
        };
        let candidate = Views::of(graph, settings.parts);
        let moves = |node: &&Node| matches!(node.op, Op::Slice { .. } | Op::Concat { .. });
        if !graph.nodes.iter().filter(moves).any(|node| candidate.is_free(node)) {
            return with(false);
        }
        let bounded = |parts: bool| -> Result<(Program, u64)> {
            let program = with(parts)?;
            let bound = program.lower_bound(limits)?;
            Ok((program, bound))
        };
        let (apart, inside) = parallel::both(|| bounded(false), || bounded(true));
        let ((apart, without), (inside, with_views)) = (apart?, inside?);
        let fewer = with_views <= without + without / MANY;
        Ok(if fewer { inside } else { apart })
    }

    /// The pipeline from fused updates on. Fused updates may cost memory, but must not exceed the budget.
    pub(super) fn lay_out(program: Program, limits: &Limits, settings: &Settings) -> Result<Packed> {
        let fused =
            if settings.fuse_updates { with_fused_updates(&program, limits, settings)? } else { None };
        let within = |bytes: u64| settings.budget.is_none_or(|budget| bytes <= budget);
        if let Some(Fused { program, needs, more }) = fused
            && (!more || within(needs))
        {
            let plan = Self::pack(program, limits, settings)?;
            if !more || within(plan.total()) {
                return Ok(plan);
            }
        }
        Self::pack(program, limits, settings)
    }

    fn pack(program: Program, limits: &Limits, settings: &Settings) -> Result<Packed> {
        let (layout, certificate) = Layout::pack(&program, limits, settings)?;
        let peak = Peak::of(&program);
        let Settings { optimizer, seed, parallel, .. } = *settings;
        let (limits, work) = (limits.clone(), Work::default());
        Ok(Packed(Self {
            program,
            layout,
            limits,
            optimizer,
            seed,
            parallel,
            certificate,
            peak,
            work,
            coded: None,
            state_away: None,
        }))
    }

    /// The graph that runs: the traced graph with its backward pass and updates.
    pub fn graph(&self) -> &Graph {
        &self.program.graph
    }

    /// Bytes if every tensor had its own memory for the whole step.
    pub fn naive_bytes(&self) -> u64 {
        self.layout.persistent_bytes() + self.program.naive_bytes
    }

    /// Lower bound on the bytes of any plan for this order of operations: the persistent bytes, plus the
    /// maximum number of other bytes alive at once.
    pub fn lower_bound_bytes(&self) -> u64 {
        self.layout.persistent_bytes() + self.certificate.lower_bound
    }

    /// Bytes of all arenas together.
    pub fn peak_bytes(&self) -> u64 {
        self.layout.arenas().map(|(_, bytes)| bytes).sum()
    }

    /// Bytes of every buffer that a session with only this plan creates.
    pub fn footprint(&self) -> Footprint {
        Footprint::of(&[self])
    }

    /// The packing problem of the step's arena: the lifetime in operations and the bytes of every tensor.
    pub fn problem(&self) -> Problem {
        storage::step_problem(&self.program, &self.limits, true, 0)
    }

    /// A hash of the kernels, their order and their memory locations. It is the same in every process.
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

    /// The error for a plan that exceeds its budget; `help` says what would fit.
    pub(super) fn over_budget(&self, Bytes(budget): Bytes, what: &str, help: String) -> Error {
        Error::OverBudget {
            what: what.to_owned(),
            needed: self.footprint().total(),
            budget,
            peak_at: self.peak.at.clone(),
            largest: self.largest_at_peak(3),
            help,
        }
    }

    /// The largest storages alive at the peak, formatted for messages.
    pub(crate) fn largest_at_peak(&self, count: usize) -> String {
        let mut alive: Vec<&Storage> =
            self.program.storages.iter().filter(|s| s.alive_at(self.peak.position)).collect();
        alive.sort_by_key(|s| std::cmp::Reverse(s.bytes));
        let text = |s: &&Storage| format!("`{}` {}", s.name, Bytes(s.bytes));
        alive.iter().take(count).map(text).collect::<Vec<_>>().join(", ")
    }

    /// Bytes of each class alive at the peak, in the order of `Class::ALL`.
    #[cfg_attr(not(feature = "internals"), doc(hidden))]
    pub fn class_bytes(&self) -> [(Class, u64); 6] {
        Class::ALL.map(|class| (class, self.peak.classes.get(&class).copied().unwrap_or(0)))
    }
}

/// A plan without its dispatches. Variants are compared in this form, and only the chosen one is lowered.
#[derive(Clone, Debug)]
pub(super) struct Packed(Plan);

impl Packed {
    /// Bytes of all buffers that a session creates for it.
    pub(super) fn total(&self) -> u64 {
        self.0.footprint().total()
    }

    /// A lower bound on that for every packing of the same program.
    pub(super) fn least(&self) -> u64 {
        self.total() - self.0.certificate.gap
    }

    /// Whether the packing is so near its bound that more work gains little.
    pub(super) fn is_near_bound(&self) -> bool {
        let Certificate { gap, lower_bound, .. } = self.0.certificate;
        gap <= lower_bound / NEAR_BOUND
    }

    /// The last stage of the pipeline: creates the dispatches.
    pub(super) fn lower(self) -> Result<Plan> {
        let Self(mut plan) = self;
        plan.program.lower(&plan.limits)?;
        Ok(plan)
    }
}

/// A packing that is one part in this many above its bound is near it.
const NEAR_BOUND: u64 = 128;

/// Maximum extra memory for fused updates: 1/500 of the plan, or 4 KiB.
const MOST_FOR_FUSED_UPDATES: (u64, u64) = (500, 4 << 10);

/// A program with fused updates, compared with the program without them.
struct Fused {
    program: Program,
    /// Lower bound on the bytes of arenas and uniforms.
    needs: u64,
    /// Whether that exceeds the bound without fused updates.
    more: bool,
}

/// `None` if no updates can be fused, or if keeping their gradients alive until the fused update costs more
/// than [`MOST_FOR_FUSED_UPDATES`].
fn with_fused_updates(program: &Program, limits: &Limits, settings: &Settings) -> Result<Option<Fused>> {
    let Some(graph) = passes::fuse_updates(&program.graph, &program.views, limits)? else { return Ok(None) };
    let views = Views::of(&graph, program.views.has_parts());
    let fused = Program::assign(graph, views, program.order.clone(), limits, settings.in_place)?;
    let needs = |program: &Program| -> Result<u64> {
        Ok(program.lower_bound(limits)? + program.dispatches as u64 * PARAMS_SLOT)
    };
    let (before, after) = (needs(program)?, needs(&fused)?);
    let (share, least) = MOST_FOR_FUSED_UPDATES;
    let fused = Fused { program: fused, needs: after, more: after > before };
    Ok((after <= before + least.max(before / share)).then_some(fused))
}
