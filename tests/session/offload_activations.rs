//! Activations that wait for the backward pass in the host's memory: the same bits, two lifetimes on the
//! device, and errors that name the known layers.

use crate::support::close::assert_same_bits;
use crate::support::{devices, noise, on_each, some_labels};
use wgrad::Bytes;
use wgrad::compile::{self, Activations, Offload, Plan, PlanOptions, Recompute, TrainStep};
use wgrad::device::Device;
use wgrad::dtype::Precision;
use wgrad::exec::{Debug, Eager, ProgramId, Session};
use wgrad::graph::{Op, Params, Tensor, Window};
use wgrad::limits::{Card, Limits};
use wgrad::memory::PoolOptions;
use wgrad::models::{Model, ModelOptions};
use wgrad::nn::{BatchNorm2d, Conv2d, Linear};
use wgrad::optim::Optimizer;
use wgrad::reference::Twin;

const BATCH: usize = 12;
const CLASSES: usize = 5;
const SIDE: usize = 17;

fn step(batch: usize) -> TrainStep {
    let params = Params::new(9);
    let conv = |i: usize| {
        let scope = params.scope(format!("block{i}"));
        let inputs = if i == 0 { 2 } else { 6 };
        let conv = Conv2d::new(&scope.scope("conv"), inputs, 6, Window::square(3).padding(1));
        (conv, BatchNorm2d::new(&scope.scope("norm"), 6))
    };
    let blocks: Vec<_> = (0..4).map(conv).collect();
    let fc = Linear::new(&params.scope("fc"), 6 * SIDE * SIDE, CLASSES);
    let net = |x: &Tensor| {
        let mut x = x.clone();
        for (i, (conv, norm)) in blocks.iter().enumerate() {
            let y = x.apply(conv).apply(norm);
            let y = if i % 2 == 0 { y.gelu().dropout(0.1) } else { y.tanh() };
            x = if i == 2 { y.add(&x) } else { y };
        }
        x.flatten(1).apply(&fc)
    };
    let step = TrainStep::trace(&params, |trace| {
        let x = trace.input("x", [batch, 2, SIDE, SIDE]);
        net(&x).cross_entropy(&trace.labels("y", [batch], CLASSES as u32))
    });
    step.expect("valid")
}

fn options(offload: Offload) -> PlanOptions {
    PlanOptions { optimizer: Optimizer::named("adamw").expect("known"), offload, ..PlanOptions::default() }
}

fn plan(device: &Device, options: &PlanOptions) -> Plan {
    step(BATCH / options.accumulate as usize).plan(options, device.limits()).expect("planned")
}

fn feed(i: u64) -> (Vec<f32>, Vec<u32>) {
    (noise(i, BATCH * 2 * SIDE * SIDE, -1.0, 1.0), some_labels(i, BATCH, CLASSES as u32))
}

/// Returns the losses and all persistent tensors.
fn run(device: &Device, plan: &Plan) -> Vec<(String, Vec<f32>)> {
    let mut session = Session::with_plans(device, &[plan], Debug { poison: true }).expect("it opens");
    assert_eq!(session.device_bytes(), plan.footprint().total());
    let mut losses = Vec::new();
    for i in 0..4 {
        let (x, y) = feed(i);
        session.feed("x", &x).expect("valid");
        session.feed("y", &y).expect("valid");
        session.step().expect("it runs");
        losses.push(session.loss().expect("finite"));
    }
    assert_eq!(session.device_bytes(), plan.footprint().total(), "nothing grows");
    let mut results = vec![("losses".to_owned(), losses)];
    let mut names: Vec<_> =
        plan.program.storages.iter().filter(|s| s.is_state()).map(|s| s.name.clone()).collect();
    names.sort();
    results.extend(names.into_iter().map(|name| (name.clone(), session.parameter(&name).expect("there"))));
    results
}

fn assert_same(what: &str, wanted: &[(String, Vec<f32>)], found: &[(String, Vec<f32>)]) {
    assert_eq!(wanted.len(), found.len(), "{what}");
    for ((a, wanted), (b, found)) in wanted.iter().zip(found) {
        assert_eq!(a, b);
        assert_same_bits(&format!("{what}: {a}"), wanted, found);
    }
}

/// Returns the names of the activations that are uploaded again.
fn offloaded_names(plan: &Plan) -> Vec<&str> {
    let up = plan.program.transfers.iter().filter(|t| t.up).map(|t| t.name.as_str());
    up.filter(|name| !plan.program.offloaded().any(|s| s.name == **name)).collect()
}

#[test]
fn activation_offload_is_bit_identical() {
    on_each(devices(), |device| {
        let away = |activations| Offload { activations, ..Offload::OFF };
        let layers: &'static [&'static str] = &["block1", "block2.conv"];
        let everything = Offload { optimizer: true, ..Offload::ACTIVATIONS };
        let bare = PlanOptions { rebuild: false, ..options(Offload::ACTIVATIONS) };
        let cases = [
            options(Offload::ACTIVATIONS),
            options(away(Activations::Most(Bytes(170_000)))),
            options(away(Activations::Layers(layers))),
            options(everything),
            bare,
            PlanOptions { reuse: false, ..bare },
            PlanOptions { recompute: Recompute::Policy, ..options(Offload::ACTIVATIONS) },
            PlanOptions { recompute: Recompute::Every(2), ..options(everything) },
            PlanOptions { accumulate: 2, ..options(Offload::ACTIVATIONS) },
            PlanOptions { precision: Precision::F16, ..options(Offload::ACTIVATIONS) },
            PlanOptions { precision: Precision::Int8, ..options(Offload::ACTIVATIONS) },
        ];
        for options in cases {
            let plan = plan(device, &options);
            let near = self::plan(device, &PlanOptions { offload: Offload::OFF, ..options });
            assert!(offloaded_names(&plan).len() > 1, "{:?}: {:?}", options.offload, offloaded_names(&plan));
            assert!(plan.work.moved > 0 && near.work.moved == 0);
            let wanted = run(device, &near);
            assert_same(&format!("{options:?}"), &wanted, &run(device, &plan));
            // Eager execution, which transfers one tensor at a time.
            let mut eager = Eager::new(device, &plan, PoolOptions::default()).expect("it opens");
            for i in 0..4 {
                let (x, y) = feed(i);
                eager.feed("x", &x).expect("valid");
                eager.feed("y", &y).expect("valid");
                eager.step().expect("it runs");
            }
            for (name, wanted) in &wanted[1..] {
                assert_same_bits(name, wanted, &eager.parameter(name).expect("there"));
            }
        }
    });
}

#[test]
fn offloaded_activations_have_two_lifetimes_and_are_counted() {
    let limits = Limits::named("nvidia").expect("known");
    let bare = PlanOptions { rebuild: false, ..options(Offload::OFF) };
    let near = step(BATCH).plan(&bare, &limits).expect("planned");
    let far =
        step(BATCH).plan(&PlanOptions { offload: Offload::ACTIVATIONS, ..bare }, &limits).expect("planned");
    assert!(far.layout.step.iter().sum::<u64>() < near.layout.step.iter().sum::<u64>());
    let sent = offloaded_names(&far);
    let tensors = wgrad::report::tensors(&far);
    for name in &sent {
        let find = |name: &str| tensors.iter().find(|t| t.name == name).expect("a tensor");
        let (there, back) = (find(name), find(&format!("{name}.back")));
        assert!(there.last < back.first, "{name}: {there:?} {back:?}");
        assert_eq!(there.bytes, back.bytes);
    }
    let host = far.footprint().host;
    assert_eq!(far.work.moved, 2 * host);
    assert_eq!(host, sent.iter().map(|name| far.program.host_bytes()[*name]).sum::<u64>());
    // In the twin's double precision, too, offloaded values are restored unchanged.
    let twin = |plan: &Plan| {
        let mut twin = Twin::new(plan.graph());
        let (x, y) = feed(3);
        twin.set_f32("x", &x).expect("an input");
        twin.set_u32("y", &y).expect("an input");
        twin.set_step(&plan.optimizer.expect("a training step").scalars(0, 1e-3, 9));
        twin.run().expect("it runs");
        twin.output("loss").expect("a loss")[0]
    };
    assert_eq!(twin(&near), twin(&far));
    let count = |is: fn(&Op) -> bool| far.graph().nodes.iter().filter(|node| is(&node.op)).count();
    assert_eq!(count(|op| matches!(op, Op::ToHost { .. })), sent.len());
    assert_eq!(count(|op| matches!(op, Op::FromHost { .. })), sent.len());
    // The activations that wait longest are offloaded first.
    let most = |bytes: u64| {
        let activations = Activations::Most(Bytes(bytes));
        let offload = Offload { activations, ..Offload::OFF };
        let plan = step(BATCH).plan(&PlanOptions { offload, ..bare }, &limits).expect("planned");
        (
            plan.footprint().host,
            self::offloaded_names(&plan).iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(),
        )
    };
    let (half, first) = most(host / 2);
    assert!(half <= host / 2 && half > 0 && first.iter().all(|name| sent.contains(&name.as_str())));
    assert_eq!(most(0).0, 0);
    assert_eq!(most(u64::MAX).0, host);
}

#[test]
fn unknown_layers_are_errors() {
    let limits = Limits::default();
    let activations = Activations::Layers(&["block1", "block7"]);
    let away = options(Offload { activations, ..Offload::OFF });
    let error = step(BATCH).plan(&away, &limits).expect_err("there is no block7").to_string();
    assert!(error.contains("`block7`") && error.contains("block0"), "{error}");
}

/// `Recompute::Auto` offloads what takes less time to copy than to recompute, or cannot be recomputed within the budget.
#[test]
fn recomputation_within_a_budget_offloads_as_well() {
    // A host that copies nearly as fast as the card, and one that no copy is worth.
    let cards = [1e12, 1e6].map(|host_bytes_per_s| Card { host_bytes_per_s, ..Card::default() });
    on_each(devices(), |device| {
        let [whole, away] =
            [Offload::OFF, Offload::ACTIVATIONS].map(|offload| plan(device, &options(offload)));
        let wanted = run(device, &whole);
        let moved = [(cards[0], &away), (cards[1], &whole)].map(|(card, fits)| {
            let budget = Some(Bytes(fits.footprint().total()));
            let offload = options(Offload::ACTIVATIONS);
            let plan = plan(device, &PlanOptions { recompute: Recompute::Auto, budget, card, ..offload });
            for ((name, wanted), (_, found)) in wanted.iter().zip(&run(device, &plan)) {
                assert_same_bits(name, wanted, found);
            }
            plan.work.moved
        });
        assert!(moved[0] > 0 && moved[1] == 0, "{moved:?}");
    });
}

#[test]
fn programs_of_a_session_with_activation_offload_are_bit_identical() {
    on_each(devices(), |device| {
        let run = |offload| {
            let plans = [BATCH, BATCH - 1]
                .map(|batch| step(batch).plan(&options(offload), device.limits()).expect("planned"));
            let mut session =
                Session::with_plans(device, &[&plans[0], &plans[1]], Debug::default()).expect("it opens");
            assert_eq!(session.device_bytes(), session.footprint().total());
            let mut losses = Vec::new();
            for i in 0..4usize {
                let (id, batch) = (ProgramId(i % 2), BATCH - i % 2);
                let (x, y) = feed(i as u64);
                session.feed_to(id, "x", &x[..batch * 2 * SIDE * SIDE]).expect("valid");
                session.feed_to(id, "y", &y[..batch]).expect("valid");
                session.run(id).expect("it runs");
                losses.push(session.loss().expect("finite"));
            }
            losses
        };
        assert_eq!(run(Offload::OFF), run(Offload { optimizer: true, ..Offload::ACTIVATIONS }));
    });
}

#[test]
fn activation_offload_is_listed_as_a_lever() {
    let limits = Limits::named("nvidia").expect("known");
    let model = Model::with_options(
        "resnet18",
        0,
        &ModelOptions { image: Some([64, 64]), ..ModelOptions::default() },
    );
    let model = model.expect("known");
    let trace = |batch: usize| model.train_step(batch);
    let options = options(Offload::OFF);
    let asked = trace(32).expect("valid").plan(&options, &limits).expect("planned");
    let budget = Bytes(asked.footprint().total() / 2);
    let levers = compile::levers(trace, 32, &options, budget, &limits).expect("planned");
    let find = |name: &str| levers.iter().find(|lever| lever.name == name).expect("listed");
    let (away, half) = (find("offload activations"), find("precision f16"));
    assert!(away.exact && away.saved_bytes > asked.footprint().step / 4, "{away:?}");
    assert!(!half.exact && half.saved_bytes > 0, "{half:?}");
}
