//! Plans as plain values, without a device: how much memory they need, how close that is to the bound, and
//! that every byte a kernel reads still holds the value it should.

use std::collections::BTreeSet;

use crate::support::cases;
use crate::support::random_graph::random_step;
use wgrad::Error;
use wgrad::compile::{Arena, Forward, Offload, Plan, PlanOptions, Span, StorageId, TrainStep};
use wgrad::dtype::{Precision, Rounding, WeightStorage};
use wgrad::graph::{Class, Init, Node, Op, Params, ValueId};
use wgrad::limits::{ALIGNMENT, Limits};
use wgrad::memory::planner::{Item, Placement, Problem, Solution, validate};
use wgrad::memory::snapshot::Snapshot;
use wgrad::models::{Model, ModelOptions};
use wgrad::optim::{Clip, Optimizer, Sgd};

fn named(name: &str) -> Limits {
    Limits::named(name).expect("a preset")
}

fn options(optimizer: &str, clip: Clip) -> PlanOptions {
    PlanOptions { optimizer: Optimizer::named(optimizer).expect("known"), clip, ..PlanOptions::default() }
}

/// Returns plans of the networks that users name, of every operation, and of random graphs.
fn plans() -> Vec<(String, Plan)> {
    let mut list = Vec::new();
    let mut add = |name: String, step: &TrainStep, options: &PlanOptions, limits: &str| {
        let plan = step.plan(options, &named(limits)).unwrap_or_else(|e| panic!("{name}: {e}"));
        list.push((format!("{name} for {limits}"), plan));
    };
    for model in ["mlp", "digits", "cnn", "lenet"] {
        for batch in [1, 3, 32, 128] {
            let step = Model::named(model, 1).expect("known").train_step(batch).expect("valid");
            for optimizer in Optimizer::NAMES {
                for limits in ["discrete", "lavapipe", "swiftshader"] {
                    add(
                        format!("{model} {batch} {optimizer}"),
                        &step,
                        &options(optimizer, Clip::Off),
                        limits,
                    );
                }
            }
            add(format!("{model} {batch} clipped"), &step, &options("adamw", Clip::Norm(1.0)), "lavapipe");
        }
    }
    for (model, seq) in [("gpt-nano", 70), ("llama-tiny", 33)] {
        let sized = ModelOptions { seq: Some(seq), ..ModelOptions::default() };
        for batch in [1, 3] {
            let step =
                Model::with_options(model, 1, &sized).expect("known").train_step(batch).expect("valid");
            for limits in ["discrete", "lavapipe", "swiftshader"] {
                add(format!("{model} {batch}"), &step, &options("adamw", Clip::Norm(1.0)), limits);
            }
        }
    }
    for case in cases::all() {
        for limits in ["discrete", "lavapipe"] {
            add(case.name.clone(), &case.step, &options("adam", Clip::Norm(1.0)), limits);
        }
    }
    for seed in 0..150 {
        let step = random_step(seed, 4 + seed as usize % 40);
        let clip = [Clip::Off, Clip::Value(1.0), Clip::Norm(1.0)][seed as usize % 3];
        let optimizer = Optimizer::NAMES[seed as usize % 4];
        add(
            format!("random {seed}"),
            &step,
            &options(optimizer, clip),
            ["discrete", "lavapipe"][seed as usize % 2],
        );
    }
    list
}

#[test]
fn naive_peak_and_bound_are_ordered_and_the_packing_meets_its_bound() {
    for (name, plan) in plans() {
        let (naive, peak, bound) = (plan.naive_bytes(), plan.peak_bytes(), plan.lower_bound_bytes());
        assert!(naive >= peak && peak >= bound, "{name}: naive {naive}, planned {peak}, bound {bound}");
        // Plans of small graphs with convolutions may exceed the bound by one unit of alignment.
        let left = if name.contains("conv") { ALIGNMENT } else { 0 };
        assert!(peak <= bound + left, "{name}: height {peak} is not the lower bound {bound}");
        let classes: u64 = plan.class_bytes().iter().map(|(_, bytes)| bytes).sum();
        assert_eq!(classes, bound, "{name}: classes at the peak do not add up");
        let footprint = plan.footprint();
        assert_eq!(footprint.persistent + footprint.step, peak, "{name}: arenas");
    }
}

/// Live bytes are counted here from the graph's order and the storages alone, so the bound is checked
/// independently.
#[test]
fn bound_is_the_maximum_of_live_bytes() {
    for (name, plan) in plans() {
        let storages = plan.program.storages.iter().filter(|s| !s.persistent);
        let alive = |at: usize| {
            storages.clone().filter(|s| s.first <= at && at <= s.last).map(|s| s.bytes).sum::<u64>()
        };
        let most = (0..=plan.program.order.len()).map(alive).max().unwrap_or(0);
        assert_eq!(most + plan.layout.persistent_bytes(), plan.lower_bound_bytes(), "{name}");
        assert_eq!(most, alive(plan.peak.position), "{name}: the peak is elsewhere");
    }
}

#[test]
fn the_planners_validator_accepts_every_layout() {
    for (name, plan) in plans() {
        let transient: Vec<_> =
            plan.program.storages.iter().zip(&plan.layout.regions).filter(|(s, _)| !s.persistent).collect();
        let item = |s: &wgrad::compile::Storage| {
            Item::new(s.name.clone(), s.first as u64, s.last as u64 + 1, s.bytes).aligned(ALIGNMENT)
        };
        let problem = Problem::new(transient.iter().map(|(s, _)| item(s)).collect());
        let place =
            |region: &wgrad::compile::Region| Placement { arena: region.arena.index, offset: region.offset };
        let placements = transient.iter().map(|(_, region)| place(region)).collect();
        let solution = Solution { placements, arenas: plan.layout.step.clone() };
        assert_eq!(validate(&problem, &solution), Ok(()), "{name}");
    }
}

#[test]
fn hashes_are_deterministic_and_differ_between_plans() {
    let mut seen = BTreeSet::new();
    let (first, second) = (plans(), plans());
    for ((name, a), (_, b)) in first.iter().zip(&second) {
        assert_eq!(a.hash(), b.hash(), "{name}: planned twice");
        seen.insert(a.hash());
    }
    let step = |f: fn(&wgrad::graph::Tensor) -> wgrad::graph::Tensor| {
        let params = wgrad::graph::Params::new(1);
        let w = params.add("w", [4, 4], wgrad::graph::Init::Constant(0.5));
        let step = TrainStep::trace(&params, |trace| f(&trace.param(&w).scale(2.0)).sum(&[]));
        step.expect("valid").plan(&PlanOptions::default(), &named("discrete")).expect("planned").hash()
    };
    // Kernels that differ only in a constant.
    assert_ne!(step(|x| x.tanh()), step(|x| x.sigmoid()), "tanh and sigmoid");
    assert_ne!(step(|x| x.relu()), step(|x| x.leaky_relu(0.1)), "two slopes");
    assert!(seen.len() > first.len() / 2, "{} hashes for {} plans", seen.len(), first.len());
}

/// Returns the peak and the total bytes of parameter gradients, except those that wait for a fused update.
fn gradients_alive(plan: &Plan) -> (u64, u64) {
    let graph = plan.graph();
    let mut gradients = BTreeSet::new();
    let waits = |n: &usize| plan.graph().fused_updates.iter().any(|fused| fused.updates.contains(n));
    for (n, node) in graph.nodes.iter().enumerate() {
        if matches!(node.op, Op::Update { .. }) && !waits(&n) {
            gradients.insert(node.inputs[1]);
        }
    }
    let storages: BTreeSet<_> =
        gradients.iter().filter_map(|id| plan.program.storage_of[id.index()]).collect();
    let bytes = |at: Option<usize>| {
        let alive = |id: &&wgrad::compile::StorageId| {
            let storage = &plan.program.storages[id.0 as usize];
            // Memory that held another value before counts only while it holds the gradient.
            at.is_none_or(|at| storage.alive_at(at) && storage.class_at(at) == Class::Gradient)
        };
        storages.iter().filter(alive).map(|id| plan.program.storages[id.0 as usize].bytes).sum::<u64>()
    };
    let most = (0..plan.program.order.len()).map(|at| bytes(Some(at))).max().unwrap_or(0);
    (most, bytes(None))
}

#[test]
fn gradients_are_consumed_one_by_one() {
    for model in ["mlp", "digits"] {
        let step = Model::named(model, 1).expect("known").train_step(32).expect("valid");
        // What Muon's updates read shares its memory already: it is computed from one gradient after the other.
        for optimizer in Optimizer::NAMES.into_iter().filter(|name| *name != "muon") {
            let plan = |clip| step.plan(&options(optimizer, clip), &named("discrete")).expect("planned");
            for clip in [Clip::Off, Clip::Value(1.0)] {
                let (most, all) = gradients_alive(&plan(clip));
                assert!(
                    4 * most <= 3 * all,
                    "{model} {optimizer} {clip:?}: {most} of {all} bytes alive together"
                );
            }
            // Adafactor's last step does not read the gradient, but a value computed from it.
            if optimizer == "adafactor" {
                continue;
            }
            let (most, all) = gradients_alive(&plan(Clip::Norm(1.0)));
            assert_eq!(most, all, "{model} {optimizer}: a global norm needs all of them");
        }
    }
}

#[test]
fn mlp_of_the_benchmark_stays_within_its_documented_bytes() {
    let step = Model::named("mlp", 1).expect("known").train_step(128).expect("valid");
    let plan = step.plan(&options("adam", Clip::Off), &named("lavapipe")).expect("planned");
    assert!(plan.footprint().total() <= 11_500_000, "{} bytes", plan.footprint().total());
    assert!(plan.naive_bytes() > plan.peak_bytes() * 8 / 7);
}

/// A plan larger than one buffer continues in the next.
#[test]
fn arenas_are_split_at_the_largest_buffer() {
    let step = Model::named("mlp", 1).expect("known").train_step(128).expect("valid");
    let limits = Limits { max_buffer: 2 << 20, ..named("lavapipe") };
    let plan = step.plan(&options("adam", Clip::Off), &limits).expect("planned");
    assert!(plan.layout.persistent.len() > 1);
    for (arena, bytes) in plan.layout.arenas() {
        assert!(bytes <= limits.max_buffer, "{arena} has {bytes} bytes");
    }
    replay("cut", &plan);
}

/// Parameters and their state that are larger than a buffer continue in the next, cut between the rows that operations read.
#[test]
fn parameters_larger_than_a_buffer_continue_in_the_next() {
    let params = Params::new(0);
    let table = params.add("table", [4000, 24], Init::Uniform(0.5));
    let step = TrainStep::trace(&params, |trace| {
        let table = trace.param(&table);
        let x = table.embedding(&trace.ids("ids", [40], 4000)).gelu();
        x.matmul_transposed(&table, false, true).square().mean(&[])
    });
    let step = step.expect("valid");
    let limits = Limits { max_buffer: 249_856, max_binding: 100_352, ..named("webgpu") };
    for optimizer in ["adam", "adam8bit", "momentum"] {
        let plan = step.plan(&options(optimizer, Clip::Off), &limits).expect("planned");
        let parts_of = |i: usize| plan.layout.parts(&plan.program, StorageId(i as u32)).collect::<Vec<_>>();
        assert_eq!(parts_of(0).len(), 2, "the table");
        let cut = plan.program.storages[0].in_buffer;
        assert_eq!(cut % (1024 * 24 * 4), 0, "cut within the rows that one operation reads: {cut} bytes");
        for (launch, _) in &plan.program.launches {
            for span in &launch.memory {
                let [first, last] = [span.offset, span.offset + span.bytes - 1]
                    .map(|at| plan.layout.locate(&plan.program, span.storage, at));
                assert_eq!(first.arena, last.arena, "{optimizer}: {} binds two buffers", launch.kernel.name);
            }
        }
        // Parts lie one after the other, and fill the buffers.
        let mut ends = vec![0; plan.layout.persistent.len()];
        for (i, _) in plan.program.storages.iter().enumerate().filter(|(_, storage)| storage.persistent) {
            for (region, bytes, _) in parts_of(i) {
                assert_eq!(region.offset, ends[region.arena.index as usize], "{optimizer}");
                ends[region.arena.index as usize] += bytes;
            }
            let end = plan.layout.locate(&plan.program, StorageId(i as u32), plan.program.storages[i].bytes);
            assert_eq!(end.offset, ends[end.arena.index as usize], "the end is that of the last part");
        }
        assert_eq!(ends, plan.layout.persistent, "{optimizer}");
        assert!(ends.iter().all(|bytes| *bytes <= limits.max_buffer), "{optimizer}: {ends:?}");
        let snapshot = Snapshot::read(&plan.dump().pickle()).expect("well formed");
        let live = snapshot.segments.iter().map(|segment| segment.blocks.len()).sum::<usize>();
        assert!(live > plan.program.storages.iter().filter(|storage| storage.persistent).count());
    }
    // One that nothing reads lies as where it is read, if it can.
    let unread = |params: &Params| {
        let forward = Forward::trace(params, "y", |trace| trace.input("x", [4]).sum(&[]));
        forward.expect("valid").plan(&limits)
    };
    assert_eq!(unread(&params).expect("planned").layout.persistent, [196_608, 187_392]);
    let others = Params::new(0);
    others.add("cube", [100, 100, 100], Init::Constant(0.0));
    let refused = unread(&others).expect_err("4,000,000 bytes");
    assert!(matches!(refused, Error::TensorTooLarge { bytes: 4_000_000, max: 249_856, .. }), "{refused}");
    // A model's own slices may end elsewhere.
    let own = Forward::trace(&params, "y", |trace| {
        let [low, high] = [0..2000, 2000..4000].map(|rows| trace.param(&table).slice(0, rows).sum(&[]));
        low.mul(&high)
    });
    let limits = Limits { max_binding: 200_704, ..limits };
    let refused = own.expect("valid").plan(&limits).expect_err("384,000 bytes");
    assert!(matches!(refused, Error::TensorTooLarge { bytes: 384_000, max: 200_704, .. }), "{refused}");
}

/// Plans a chain on slices of the rows that are concatenated; rows of 64 columns start at binding alignment.
fn in_parts(rows: usize) -> Plan {
    let params = Params::new(0);
    let w = params.add("w", [64, 64], Init::fan_in(64));
    let forward = Forward::trace(&params, "y", |trace| {
        let x = trace.input("x", [4 * rows, 64]).tanh();
        let part = |i: usize| x.slice(0, i * rows..(i + 1) * rows).matmul(&trace.param(&w));
        part(0).concat(&[&part(1), &part(2), &part(3)], 0).exp()
    });
    forward.expect("valid").plan(&Limits::default()).expect("it fits")
}

#[test]
fn slices_and_concats_share_the_memory_of_the_whole() {
    let plan = in_parts(8);
    replay("in parts", &plan);
    let free = |name: &str| {
        let nodes = plan.graph().nodes.iter().filter(|node| node.op.name() == name);
        nodes.filter(|node| plan.program.views.is_free(node)).count()
    };
    assert_eq!(["slice", "concat"].map(free), [4, 1]);
    // One buffer for the input, over which its function is written, and one for the concatenation.
    let whole = 4 * 8 * 64 * 4;
    assert_eq!(plan.peak_bytes() - plan.layout.persistent_bytes(), 2 * whole);
}

// ---- the simulation: which value owns which bytes ---------------------------------------------------------

/// What bytes hold: a value of the graph with the number of in-place changes, or workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Value(ValueId, u32),
    Scratch,
}

/// Owned ranges of one arena.
#[derive(Default)]
struct Bytes(Vec<(u64, u64, Owner)>);

impl Bytes {
    fn write(&mut self, from: u64, to: u64, owner: Owner) {
        let mut kept = Vec::new();
        for &(a, b, other) in &self.0 {
            if a < from {
                kept.push((a, b.min(from), other));
            }
            if b > to {
                kept.push((a.max(to), b, other));
            }
        }
        kept.retain(|(a, b, _)| a < b);
        kept.push((from, to, owner));
        self.0 = kept;
    }

    fn owned_by(&self, from: u64, to: u64, owner: Owner) -> bool {
        let own = self.0.iter().filter(|(_, _, other)| *other == owner);
        own.map(|(a, b, _)| (*b).min(to).saturating_sub((*a).max(from))).sum::<u64>() == to - from
    }
}

struct Replay<'a> {
    plan: &'a Plan,
    bytes: std::collections::BTreeMap<Arena, Bytes>,
    /// The value whose memory each value is a view of.
    root: Vec<ValueId>,
    version: Vec<u32>,
}

impl Replay<'_> {
    /// Returns the arena, first byte and end of a value.
    fn range(&self, id: ValueId) -> Option<(Arena, u64, u64)> {
        let storage = self.plan.program.storage_of[id.index()]?;
        let region = self.plan.layout.regions[storage.0 as usize];
        let from = region.offset + self.plan.program.offset_of[id.index()];
        Some((region.arena, from, from + self.plan.graph().value(id).bytes()))
    }

    fn owner(&self, id: ValueId) -> Owner {
        let root = self.root[id.index()];
        Owner::Value(root, self.version[root.index()])
    }

    fn holds(&self, id: ValueId) -> bool {
        let Some((arena, from, to)) = self.range(id) else { return false };
        self.bytes.get(&arena).is_some_and(|bytes| bytes.owned_by(from, to, self.owner(id)))
    }

    /// Whether every owned range in these bytes belongs to one of these values.
    fn only(&self, arena: Arena, from: u64, to: u64, ids: &[ValueId]) -> bool {
        let of: Vec<Owner> = ids.iter().map(|id| self.owner(*id)).collect();
        let ranges = self.bytes.get(&arena).into_iter().flat_map(|bytes| &bytes.0);
        ranges.filter(|(a, b, _)| *a < to && from < *b).all(|(_, _, owner)| of.contains(owner))
    }

    fn write(&mut self, id: ValueId) {
        let (arena, from, to) = self.range(id).expect("what is written has memory");
        let owner = self.owner(id);
        self.bytes.entry(arena).or_default().write(from, to, owner);
    }
}

/// Returns the bytes from the start of a binding's storage to the end of the contiguous row of storages that
/// it belongs to.
fn row_bytes(plan: &Plan, span: &Span) -> u64 {
    let of = |storage: StorageId| &plan.program.storages[storage.0 as usize];
    let (first, start) = of(span.storage).after.unwrap_or((span.storage, 0));
    let end = |i: usize| {
        let storage = &plan.program.storages[i];
        storage.after.map_or(0, |(_, start)| start) + storage.bytes
    };
    plan.program.row(first).map(end).max().unwrap_or(0) - start
}

/// Simulates a plan. Every operand must still be in its bytes when it is read, every result must be written,
/// nothing else may be touched, and at the end the outputs must be intact. Every binding must lie within its
/// tensor, so no kernel reads past the end of a tensor even with run-time checks off.
fn replay(name: &str, plan: &Plan) {
    let graph = plan.graph();
    let root = plan.program.views.roots();
    let mut all: Vec<usize> = plan.program.order.clone();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..graph.nodes.len()), "{name}: the order is not every node once");
    let version = vec![0; graph.values.len()];
    let mut state = Replay { plan, bytes: std::collections::BTreeMap::new(), root, version };
    for (id, value) in graph.ids() {
        if value.class == Class::Input || value.class.is_persistent() {
            state.write(id);
        }
    }
    for (position, &n) in plan.program.order.iter().enumerate() {
        let mut fused = graph.fused_updates.iter().zip(&plan.program.fused_at);
        if fused.any(|(fused, at)| fused.updates.contains(&n) && *at != position) {
            continue;
        }
        let nodes: Vec<&Node> = plan.program.nodes_at(position).collect();
        let inputs: Vec<ValueId> = nodes.iter().flat_map(|node| node.inputs.clone()).collect();
        let node = &graph.nodes[n];
        let what = format!("{name}: {} at {position}", node.op.name());
        for id in &inputs {
            assert!(
                state.holds(*id),
                "{what} reads `{}`, which was overwritten or not written yet",
                graph.value(*id).name
            );
        }
        let launches: Vec<_> = plan.program.launches.iter().filter(|(_, at)| *at == position).collect();
        let storage = |id: &ValueId| plan.program.storage_of[id.index()].expect("operands have memory");
        let reads: BTreeSet<_> = inputs.iter().map(storage).collect();
        let writes: BTreeSet<_> = node.outputs.iter().map(storage).collect();
        let mut written = BTreeSet::new();
        for (launch, _) in &launches {
            assert_eq!(launch.memory.len(), launch.kernel.slots.len(), "{what}: slots");
            let mut bound: Vec<(Arena, u64, u64)> = Vec::new();
            for span in &launch.memory {
                let memory = &plan.program.storages[span.storage.0 as usize];
                let region = plan.layout.regions[span.storage.0 as usize];
                let from = region.offset + span.offset;
                let to = from + span.bytes;
                assert!(
                    span.offset + span.bytes <= row_bytes(plan, span) && from.is_multiple_of(ALIGNMENT),
                    "{what}: a binding beyond its tensor"
                );
                assert!(
                    !region.arena.persistent || state.only(region.arena, from, to, &inputs),
                    "{what} updates what is not its own"
                );
                let arenas =
                    if region.arena.persistent { &plan.layout.persistent } else { &plan.layout.step };
                assert!(to <= arenas[region.arena.index as usize], "{what}: a binding beyond its arena");
                let apart =
                    |(arena, a, b): &(Arena, u64, u64)| *arena != region.arena || *b <= from || to <= *a;
                assert!(bound.iter().all(apart), "{what}: two bindings of one dispatch overlap");
                bound.push((region.arena, from, to));
                if !reads.contains(&span.storage) && !writes.contains(&span.storage) {
                    assert_eq!(
                        memory.class_at(position),
                        Class::Workspace,
                        "{what} touches `{}`",
                        memory.name
                    );
                    state.bytes.entry(region.arena).or_default().write(from, to, Owner::Scratch);
                }
                written.insert(span.storage);
            }
        }
        // Workspace may not overlap the operands.
        for id in &inputs {
            assert!(state.holds(*id), "{what}: its scratch lies on its operand `{}`", graph.value(*id).name);
        }
        if plan.program.views.is_free(node) {
            assert!(launches.is_empty() && state.holds(node.outputs[0]), "{what} needs no dispatch");
            continue;
        }
        for id in &node.outputs {
            if graph.value(*id).bytes() > 0 {
                assert!(written.contains(&storage(id)), "{what} never writes `{}`", graph.value(*id).name);
            }
            state.write(*id);
        }
        let back = node.op.epilogue().is_some_and(|chain| chain.name().ends_with("_grad"));
        let in_place = launches.iter().any(|(launch, _)| {
            let name = &launch.kernel.name;
            name.ends_with("_in_place") || (back && name.ends_with("_both_ways"))
        });
        if !in_place {
            for id in &inputs {
                assert!(state.holds(*id), "{what} writes over `{}` while it reads it", graph.value(*id).name);
            }
        }
        let mutated = |node: &Node| node.op.mutates().iter().map(|&i| node.inputs[i]).collect::<Vec<_>>();
        for id in nodes.iter().flat_map(|node| mutated(node)) {
            let root = state.root[id.index()];
            state.version[root.index()] += 1;
            assert_eq!(state.version[root.index()], 1, "{what} changes `{}` again", graph.value(root).name);
            state.write(id);
        }
        // A view written above belongs to its root.
        for id in &node.outputs {
            assert!(state.holds(*id) || graph.value(*id).bytes() == 0, "{what}: results overlap");
        }
    }
    for (output, id) in &graph.outputs {
        assert!(state.holds(*id), "{name}: the output `{output}` was overwritten");
    }
}

#[test]
fn every_kernel_reads_valid_operands() {
    for (name, plan) in plans() {
        replay(&name, &plan);
    }
}

/// Checks the simulation itself: it must detect a region moved onto another, and a wrong order.
#[test]
fn simulation_detects_broken_plans() {
    let step = Model::named("digits", 1).expect("known").train_step(8).expect("valid");
    let plan = step.plan(&options("adam", Clip::Off), &named("lavapipe")).expect("planned");
    let fails = |broken: &Plan| std::panic::catch_unwind(|| replay("broken", broken)).is_err();
    let transient: Vec<usize> =
        (0..plan.program.storages.len()).filter(|&i| !plan.program.storages[i].persistent).collect();
    let mut seen = 0;
    for pair in transient.windows(2) {
        let mut broken = plan.clone();
        broken.layout.regions[pair[0]] = broken.layout.regions[pair[1]];
        let [a, b] = [pair[0], pair[1]].map(|i| &plan.program.storages[i]);
        let together = a.first <= b.last && b.first <= a.last;
        if together && plan.layout.regions[pair[0]] != plan.layout.regions[pair[1]] {
            assert!(fails(&broken), "`{}` was moved onto `{}` unseen", a.name, b.name);
            seen += 1;
        }
    }
    assert!(seen > 3, "only {seen} ways to break the plan were tried");
    let mut swapped = plan.clone();
    swapped.program.order.swap(0, 1);
    assert!(fails(&swapped) || plan.program.order.len() < 2);
}

/// The table of passes matches the files of `src/compile/passes`, and the step after the last pass is the
/// planned step.
#[test]
fn passes_have_files_and_the_last_one_gives_the_plan() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/compile/passes");
    let files: BTreeSet<String> = std::fs::read_dir(folder)
        .expect("the folder is there")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8").replace(".rs", ""))
        // These passes take more than a graph.
        .filter(|name| {
            let others = "mod accumulate buckets exchange gather_parameters lookup_grads rematerialize share_updates split_layers sum_ranks";
            !others.split(' ').any(|other| other == name)
        })
        .collect();
    let limits = named("nvidia");
    let step = Model::named("cnn", 0).and_then(|model| model.train_step(16)).expect("valid");
    let on = PlanOptions { precision: Precision::Bf16, bit_masks: true, ..options("adam", Clip::Off) };
    let on =
        PlanOptions { offload: Offload::OPTIMIZER, weights: WeightStorage::Bf16(Rounding::Nearest), ..on };
    let off = PlanOptions { fuse: false, rebuild: false, ..options("adam", Clip::Off) };
    for (options, all) in [(on, true), (PlanOptions { fuse: false, ..on }, false), (off, false)] {
        let effects = step.passes(&options, &limits).expect("planned");
        let names: BTreeSet<String> = effects[1..].iter().map(|pass| pass.name.to_owned()).collect();
        assert_eq!(names, files);
        assert_eq!(effects.iter().all(|pass| pass.ran), all, "{effects:?}");
        for pass in &effects {
            // Sums over parts round differently, where anything is split.
            let rounds = pass.when.ends_with(" bits") || pass.name.starts_with("split_large");
            assert_eq!(pass.exact, !rounds, "{pass:?}");
        }
        let last = effects.last().expect("some");
        let plan = step.plan(&options, &limits).expect("planned");
        assert_eq!(last.bytes, Some(plan.lower_bound_bytes()));
        assert_eq!(last.dispatches, Some(plan.program.launches.len() as u64));
        if all {
            assert!(last.bytes < effects[0].bytes, "{effects:?}");
        }
    }
}

#[test]
fn grids_stay_within_the_limit() {
    for (name, plan) in plans() {
        for (launch, _) in &plan.program.launches {
            let most = plan.limits.max_workgroups;
            assert!(
                launch.grid.iter().all(|&n| n >= 1 && n <= most),
                "{name}: {} {:?}",
                launch.kernel.name,
                launch.grid
            );
        }
    }
}

/// An optimizer's settings do not change the planned memory; its state does.
#[test]
fn optimizer_state_is_a_multiple_of_the_weights() {
    let step = Model::named("digits", 1).expect("known").train_step(8).expect("valid");
    let persistent = |optimizer: Optimizer| {
        let options = PlanOptions { optimizer, ..PlanOptions::default() };
        step.plan(&options, &named("discrete")).expect("planned").layout.persistent_bytes()
    };
    let weights = persistent(Sgd::default().into());
    assert_eq!(persistent(Sgd { momentum: 0.9, ..Sgd::default() }.into()), 2 * weights);
    assert_eq!(persistent(Optimizer::named("adam").expect("known")), 3 * weights);
}
