//! Fused updates: the updates of small parameters in one dispatch. They give the same bits as separate
//! updates, change no neighbouring tensor, and need little extra memory.

use std::collections::BTreeMap;

use crate::support::close::{Near, assert_close, assert_same_bits};
use crate::support::networks::{BATCH, network, run};
use crate::support::{devices, each_case, noise, on_each};
use wgrad::autodiff::Gradients;
use wgrad::compile::{Forward, Offload, Plan, PlanOptions, TrainStep};
use wgrad::device::Device;
use wgrad::error::Error;
use wgrad::exec::{Debug, Eager, ProgramId, Session};
use wgrad::graph::{Class, Init, LossScale, Mode, Op, Param, Params, Tensor, Trace, ValueId};
use wgrad::limits::Limits;
use wgrad::memory::PoolOptions;
use wgrad::models::{Model, ModelOptions};
use wgrad::optim::{AdamW, Clip, Optimizer, Sgd};
use wgrad::reference::Twin;
use wgrad::units::Bytes;

fn named(optimizer: &str) -> PlanOptions {
    PlanOptions { optimizer: Optimizer::named(optimizer).expect("known"), ..PlanOptions::default() }
}

/// Returns the number of dispatches that update parameters.
fn updates(plan: &Plan) -> usize {
    let program = &plan.program;
    let of = |position: usize| &program.graph.nodes[program.order[position]].op;
    program.launches.iter().filter(|(_, position)| matches!(of(*position), Op::Update { .. })).count()
}

fn fused_counts(plan: &Plan) -> Vec<usize> {
    plan.graph().fused_updates.iter().map(|fused| fused.updates.len()).collect()
}

/// Adds `count` vectors of `n` elements.
fn vectors(params: &Params, count: u64, n: usize) -> Vec<Param> {
    let one = |i| params.add(&format!("v{i}"), [n], Init::Data(noise(i, n, -1.0, 1.0).into()));
    (0..count).map(one).collect()
}

fn squares(trace: &Trace, vectors: &[Param]) -> Tensor {
    let squares = vectors.iter().map(|v| trace.param(v).square().sum(&[]));
    squares.reduce(|sum, one| sum.add(&one)).expect("some")
}

/// Vectors of odd lengths, among them some that are never updated, share a gradient, or are too long.
struct Vectors {
    params: Params,
}

const READ: [(&str, usize); 9] = [
    ("one", 1),
    ("odd", 63),
    ("whole", 64),
    ("more", 65),
    // `frozen` lies here.
    ("after", 300),
    ("again", 7),
    ("long", 4096),
    ("twin", 50),
    ("last", 50),
];

impl Vectors {
    fn new() -> Self {
        let params = Params::new(5);
        for (i, (name, n)) in READ.iter().enumerate() {
            if *name == "after" {
                params.add("frozen", [10], Init::Data(noise(99, 10, -1.0, 1.0).into()));
            }
            params.add(name, [*n], Init::Data(noise(i as u64, *n, -1.0, 1.0).into()));
        }
        params.add_buffer("statistics", [20], Init::Constant(3.0));
        params.add("scalar", [], Init::Constant(0.5));
        params.add("matrix", [300, 500], Init::Normal(0.1));
        Self { params }
    }

    fn sum(&self, trace: &Trace) -> Tensor {
        let list = self.params.list();
        let of = |name: &str| trace.param(list.iter().find(|p| p.name() == name).expect("there"));
        let squares = |w: Tensor| w.square().scale(0.25).add(&w.scale(1.25)).sum(&[]);
        let alone = READ.iter().filter(|(name, _)| !matches!(*name, "twin" | "last"));
        let sum = alone.map(|(name, _)| squares(of(name))).reduce(|sum, one| sum.add(&one)).expect("some");
        // Two vectors that share one gradient.
        let both = squares(of("twin").add(&of("last")));
        let x = trace.input("x", [2, 300]);
        let product = x.mul(&of("after")).matmul(&of("matrix")).square().mean(&[]);
        sum.add(&both).add(&squares(of("scalar"))).add(&product)
    }

    fn step(&self) -> TrainStep {
        TrainStep::trace(&self.params, |trace| self.sum(trace)).expect("valid")
    }
}

fn variants() -> Vec<(String, PlanOptions)> {
    let mut list: Vec<_> = Optimizer::NAMES.iter().map(|name| ((*name).to_owned(), named(name))).collect();
    let adamw: Optimizer = AdamW { lr: 0.01, ..AdamW::default() }.into();
    let adamw = PlanOptions { optimizer: adamw, ..PlanOptions::default() };
    list.push(("clipped by norm".to_owned(), PlanOptions { clip: Clip::Norm(0.5), ..adamw }));
    list.push(("clipped by value".to_owned(), PlanOptions { clip: Clip::Value(0.3), ..adamw }));
    list.push(("scaled".to_owned(), PlanOptions { loss_scale: Some(LossScale::default()), ..adamw }));
    list.push(("in parts".to_owned(), PlanOptions { accumulate: 2, ..adamw }));
    list.push(("state away".to_owned(), PlanOptions { offload: Offload::OPTIMIZER, ..adamw }));
    list
}

fn trained(device: &Device, plan: &Plan) -> BTreeMap<String, Vec<f32>> {
    let mut session = Session::with_plans(device, &[plan], Debug { poison: true }).expect("it opens");
    for step in 0..3 {
        let input = plan.graph().inputs().find(|(_, value)| value.name == "x").expect("there").1;
        session.feed("x", &noise(step, input.shape.numel() as usize, -1.0, 1.0)).expect("valid");
        session.step().expect("it runs");
        session.loss().expect("a finite loss");
    }
    let lasting = plan.program.storages.iter().filter(|s| s.is_state());
    lasting.map(|s| (s.name.clone(), session.parameter(&s.name).expect("there"))).collect()
}

#[test]
fn fused_updates_match_separate_updates_bit_for_bit() {
    let vectors = Vectors::new();
    let step = vectors.step();
    each_case(variants(), false, |device, limits, (what, options)| {
        let plan = |fuse| step.plan(&PlanOptions { fuse, ..*options }, limits).expect("planned");
        let (single, one) = (plan(false), plan(true));
        assert_eq!(fused_counts(&single), [0; 0]);
        // `frozen` interrupts the sequence. Of two vectors that share a gradient, one takes it, and
        // the other's cannot be in the same place. After clipping, each has its own gradient; so with
        // sums of accumulated parts.
        let runs: &[usize] = match what.as_str() {
            "adafactor" | "adam-mini" => &[],
            "clipped by norm" | "clipped by value" | "in parts" => &[4, 5],
            _ => &[4, 3],
        };
        assert_eq!(fused_counts(&one), runs, "{what} for {}", limits.name);
        let fewer: usize = runs.iter().map(|n| n - 1).sum();
        assert_eq!(updates(&single) - updates(&one), fewer, "{what} for {}", limits.name);
        let (wanted, found) = (trained(device, &single), trained(device, &one));
        assert_eq!(wanted.len(), found.len());
        for (name, wanted) in &wanted {
            assert_same_bits(&format!("{what} for {}: {name}", limits.name), wanted, &found[name]);
        }
        let start = |name: &str| {
            let list = vectors.params.list();
            let param = list.iter().find(|p| p.name() == name).expect("there").clone();
            param.initial(0..param.shape().numel())
        };
        for name in ["frozen", "statistics"] {
            assert_same_bits(name, &found[name], &start(name));
        }
    });
}

/// Networks with norms and biases.
#[test]
fn networks_train_bit_identically_with_fused_updates() {
    on_each(devices(), |device| {
        let limits = device.limits();
        for name in ["mlp", "cnn", "resnet", "gpt"] {
            let step = network(name, BATCH);
            for optimizer in ["momentum", "adamw"] {
                let plan =
                    |fuse| step.plan(&PlanOptions { fuse, ..named(optimizer) }, limits).expect("planned");
                let (single, one) = (plan(false), plan(true));
                assert!(!fused_counts(&one).is_empty(), "{name}: nothing was joined");
                let (wanted, found) = (run(device, &single), run(device, &one));
                let found: BTreeMap<_, _> = found.into_iter().collect();
                for (tensor, wanted) in &wanted {
                    assert_same_bits(&format!("{name} {optimizer}: {tensor}"), wanted, &found[tensor]);
                }
            }
        }
    });
}

#[test]
fn twin_and_eager_runs_agree_with_fused_updates() {
    let step = Vectors::new().step();
    // Adam would amplify the rounding errors of gradients near 0.
    let optimizer: Optimizer = Sgd { lr: 0.05, momentum: 0.9, ..Sgd::default() }.into();
    let options = PlanOptions { optimizer, ..PlanOptions::default() };
    on_each(devices(), |device| {
        let plan = step.plan(&options, device.limits()).expect("planned");
        let mut session = Session::new(device, &plan).expect("it opens");
        let mut eager = Eager::new(device, &plan, PoolOptions::default()).expect("it opens");
        let mut twin = Twin::new(plan.graph());
        for step in 0..3 {
            let x = noise(step, 600, -1.0, 1.0);
            twin.set_step(&optimizer.scalars(step, optimizer.learning_rate(), plan.seed));
            twin.set_f32("x", &x).expect("valid");
            twin.run().expect("the twin runs");
            session.feed("x", &x).expect("valid");
            session.step().expect("it runs");
            eager.feed("x", &x).expect("valid");
            eager.step().expect("it runs");
            eager.compact(u64::MAX).expect("it moves");
        }
        for storage in plan.program.storages.iter().filter(|s| s.persistent) {
            let found = session.parameter(&storage.name).expect("there");
            assert_same_bits(&storage.name, &found, &eager.parameter(&storage.name).expect("there"));
            // The twin does not know tensors that the step does not read.
            if let Ok(wanted) = twin.parameter(&storage.name) {
                assert_close(&storage.name, &found, wanted, Near { rel: 1e-5, abs: 1e-7 });
            }
        }
    });
}

/// Plans with and without fused updates have the same layout of persistent storages: one session has both,
/// replans from one to the other, and evaluates.
#[test]
fn one_session_has_plans_with_and_without_fused_updates() {
    let vectors = Vectors::new();
    let forward = Forward::trace(&vectors.params, "y", |trace| vectors.sum(trace)).expect("valid");
    let optimizer = Sgd { lr: 0.05, momentum: 0.9, ..Sgd::default() }.into();
    let options = PlanOptions { optimizer, ..PlanOptions::default() };
    on_each(devices(), |device| {
        let limits = device.limits();
        let plan = |fuse| vectors.step().plan(&PlanOptions { fuse, ..options }, limits).expect("planned");
        let (single, one) = (plan(false), plan(true));
        let evaluation = forward.plan(limits).expect("planned");
        let x = noise(1, 600, -1.0, 1.0);
        let mut losses = Vec::new();
        for plans in [[&single, &evaluation, &one], [&one, &evaluation, &single]] {
            let mut session = Session::with_plans(device, &plans, Debug::default()).expect("it opens");
            for id in [0, 2, 0].map(ProgramId) {
                session.feed_to(id, "x", &x).expect("valid");
                session.run(id).expect("it runs");
            }
            session.feed_to(ProgramId(1), "x", &x).expect("valid");
            session.run(ProgramId(1)).expect("it runs");
            let y: Vec<f32> = session.output(ProgramId(1), "y").expect("an output");
            session.replan(&[plans[2]]).expect("it goes on");
            session.feed("x", &x).expect("valid");
            session.step().expect("it runs");
            losses.push([y[0], session.loss().expect("finite")]);
        }
        assert_same_bits("either way", &losses[0], &losses[1]);
    });
}

/// A row of small parameters ends at the size limit of a binding; the next row starts another fused update.
#[test]
fn fused_updates_are_no_longer_than_a_binding() {
    let params = Params::new(3);
    let vectors = vectors(&params, 12, 60);
    let step =
        TrainStep::trace(&params, |trace| squares(trace, &vectors).add(&trace.input("x", [1]).sum(&[])));
    let step = step.expect("valid");
    on_each(devices(), |device| {
        let limits = Limits { max_binding: 1024, ..device.limits().clone() };
        let plan = |fuse| step.plan(&PlanOptions { fuse, ..named("adamw") }, &limits).expect("planned");
        let (single, one) = (plan(false), plan(true));
        assert_eq!(fused_counts(&one), [4, 4, 4]);
        let bound = one.program.launches.iter().flat_map(|(launch, _)| &launch.memory).map(|span| span.bytes);
        assert!(bound.max().expect("some") <= limits.max_binding);
        let (wanted, found) = (trained(device, &single), trained(device, &one));
        for (name, wanted) in &wanted {
            assert_same_bits(name, wanted, &found[name]);
        }
    });
}

/// All norms and biases of well-known networks are updated in one dispatch, for at most 1/500 of the plan's
/// bytes.
#[test]
fn one_dispatch_updates_all_norms_and_biases() {
    let limits = Limits::named("nvidia").expect("a preset");
    let sized = |image| ModelOptions { image, ..ModelOptions::default() };
    for (name, image, batch) in
        [("resnet50", None, 16), ("resnet18", Some([64, 64]), 8), ("gpt-nano", None, 8), ("gpt2", None, 1)]
    {
        let model = Model::with_options(name, 0, &sized(image)).expect("known");
        let step = model.train_step(batch).expect("valid");
        for optimizer in ["momentum", "adamw"] {
            let one = step.plan(&named(optimizer), &limits).expect("planned");
            let updated = one.graph().nodes.iter().filter(|node| matches!(node.op, Op::Update { .. }));
            let values: Vec<_> = updated.map(|node| one.graph().value(node.inputs[0])).collect();
            let vectors =
                values.iter().filter(|v| v.class == Class::Parameter && v.shape.rank() == 1).count();
            assert_eq!(fused_counts(&one), [vectors], "{name} {optimizer}");
            assert_eq!(updates(&one), values.len() - vectors + 1, "{name} {optimizer}");
            let waits = one.graph().value(one.graph().fused_updates[0].gradients).bytes();
            assert!(500 * waits <= one.footprint().total(), "{name}: {waits} bytes of gradients wait");
        }
    }
}

/// A budget that a plan without fused updates fits is met without them.
#[test]
fn budget_takes_priority_over_fused_updates() {
    let limits = Limits::named("discrete").expect("a preset");
    let sized = ModelOptions { image: Some([64, 64]), ..ModelOptions::default() };
    let step = Model::with_options("resnet18", 0, &sized).expect("known").train_step(8).expect("valid");
    let plan = |budget| step.plan(&PlanOptions { budget, ..named("momentum") }, &limits);
    let total = |plan: &Plan| plan.footprint().total();
    let one = plan(None).expect("planned");
    assert!(!fused_counts(&one).is_empty());
    assert_eq!(plan(Some(Bytes(total(&one)))).expect("it fits").hash(), one.hash());
    let apart = plan(Some(Bytes(total(&one) - 1))).expect("it fits without segments");
    assert_eq!(fused_counts(&apart), [0; 0]);
    assert!(total(&apart) < total(&one));
    let error = plan(Some(Bytes(total(&apart) - 1))).expect_err("nothing is smaller");
    let Error::OverBudget { needed, .. } = error else { panic!("{error:?}") };
    assert_eq!(needed, total(&apart));
    // Nothing else is changed to make room for fused updates.
    let fitted = step.fit(&named("momentum"), Bytes(total(&one) - 1), &limits).expect("it fits");
    assert_eq!((fitted.changes.len(), fitted.plan.hash()), (0, apart.hash()));
}

/// Vectors that would double the memory of a step if their gradients waited for each other.
#[test]
fn large_gradients_are_not_fused() {
    let params = Params::new(0);
    let vectors = vectors(&params, 40, 4000);
    let step = TrainStep::trace(&params, |trace| squares(trace, &vectors));
    let plan = step.expect("valid").plan(&named("sgd"), &Limits::default()).expect("planned");
    assert_eq!((fused_counts(&plan), updates(&plan)), (vec![], 40));
}

/// Gradients that are concatenations, slices of other tensors, read by the host, or not computed by an
/// operation.
#[test]
fn only_gradients_with_memory_of_their_own_are_fused() {
    let params = Params::new(1);
    let weights = vectors(&params, 8, 64);
    let mut ids = Vec::new();
    let graph = Trace::record(&params, Mode::Train, "loss", |trace| {
        let (x, y) = (trace.input("x", [64]), trace.input("y", [32]));
        let joined = y.exp().concat(&[&y.scale(3.0)], 0);
        let whole = x.concat(&[&x.tanh()], 0).scale(0.5);
        let [low, high] = [0..64, 64..128].map(|part| whole.slice(0, part));
        let seen = x.tanh();
        trace.output("seen", &seen);
        let gradients = [x.scale(2.0), joined, high, seen, x.reshape([64]), x.square(), x.sigmoid(), low];
        ids = weights.iter().zip(gradients).map(|(w, g)| (trace.param(w).id(), g.id())).collect();
        x.sum(&[])
    });
    let trace = Trace::over(graph.expect("valid"), Mode::Train);
    let id = |id: Option<ValueId>| id.expect("no mistakes");
    let pairs = ids.iter().map(|(w, g)| (id(*w), trace.tensor(id(*g)))).collect();
    let optimizer: Optimizer = Sgd { lr: 0.5, momentum: 0.9, ..Sgd::default() }.into();
    optimizer.append(&trace, Gradients { pairs, ..Gradients::default() }, Clip::Off).expect("valid");
    let graph = trace.finish().expect("valid");
    on_each(devices(), |device| {
        let plan = Plan::of_graph(graph.clone(), Some(optimizer), device.limits()).expect("planned");
        // Left out are the gradients of v2 and v7, slices of a longer tensor, of v3, which the host reads,
        // and of v4, an input.
        assert_eq!(fused_counts(&plan), [2, 2]);
        let mut session = Session::with_plans(device, &[&plan], Debug { poison: true }).expect("it opens");
        let mut twin = Twin::new(plan.graph());
        for step in 0..3 {
            twin.set_step(&optimizer.scalars(step, optimizer.learning_rate(), plan.seed));
            for (name, n) in [("x", 64), ("y", 32)] {
                let data = noise(step, n, -1.0, 1.0);
                twin.set_f32(name, &data).expect("valid");
                session.feed(name, &data).expect("valid");
            }
            twin.run().expect("the twin runs");
            session.step().expect("it runs");
            let near = Near { rel: 1e-5, abs: 1e-6 };
            let seen: Vec<f32> = session.output(ProgramId(0), "seen").expect("an output");
            assert_close("seen", &seen, twin.output("seen").expect("an output"), near);
            for param in &weights {
                let found = session.parameter(param.name()).expect("there");
                assert_close(param.name(), &found, twin.parameter(param.name()).expect("there"), near);
            }
        }
    });
}
