//! Runs that must give the same bits: planned and eager with any pool; repeated with one seed; with and
//! without memory reuse and poisoning; with the loss read often or seldom; with 32-bit and 64-bit words. Also
//! checks that every byte created was planned.

use crate::support::close::{Near, assert_close, assert_same_bits};
use crate::support::compare::kernels;
use crate::support::random_graph::random_step;
use crate::support::{both_classes, devices, networks, noise, on_each, some_labels};
use wgrad::compile::{Forward, Plan, PlanOptions, TrainStep};
use wgrad::device::Device;
use wgrad::exec::{Debug, Eager, ProgramId, Session};
use wgrad::graph::{Params, Tensor, Trace};
use wgrad::limits::Limits;
use wgrad::memory::{Growth, Kind, PoolOptions};
use wgrad::models::Mlp;
use wgrad::nn::Module;
use wgrad::optim::{Adam, AdamW, Clip, Optimizer, Sgd};
use wgrad::reference::Twin;

const BATCH: usize = 12;
const STEPS: usize = 10;

/// A network with dropout, a residual connection and a normalisation: it has views, broadcasts, and values
/// that are read late.
struct Network {
    params: Params,
    first: Mlp,
    second: Mlp,
}

impl Network {
    fn new() -> Self {
        let params = Params::new(11);
        let first = Mlp::new(&params.scope("first"), &[20, 33, 20]);
        let second = Mlp::new(&params.scope("second"), &[20, 16, 7]);
        Self { params, first, second }
    }

    fn logits(&self, x: &Tensor) -> Tensor {
        let hidden = self.first.forward(x).gelu().dropout(0.25).add(x);
        let centred = hidden.sub(&hidden.mean(&[1]).reshape([x.dim(0), 1]));
        self.second.forward(&centred.dropout(0.1).tanh())
    }

    fn loss(&self, trace: &Trace, batch: usize) -> Tensor {
        let x = trace.input("x", [batch, 20]);
        let logits = self.logits(&x);
        trace.output("logits", &logits);
        logits.cross_entropy(&trace.labels("y", [batch], 7))
    }

    fn step(&self, batch: usize) -> TrainStep {
        TrainStep::trace(&self.params, |trace| self.loss(trace, batch)).expect("valid")
    }

    fn forward(&self, batch: usize) -> Forward {
        let run = |trace: &Trace| self.logits(&trace.input("x", [batch, 20]));
        Forward::trace(&self.params, "logits", run).expect("valid")
    }
}

fn optimizers() -> Vec<PlanOptions> {
    let with = |optimizer: Optimizer, clip| PlanOptions { optimizer, clip, ..PlanOptions::default() };
    vec![
        with(Sgd { lr: 0.05, momentum: 0.9, ..Sgd::default() }.into(), Clip::Off),
        with(Adam { lr: 0.01, ..Adam::default() }.into(), Clip::Value(0.01)),
        with(AdamW { lr: 0.01, ..AdamW::default() }.into(), Clip::Norm(0.5)),
    ]
}

fn data(step: usize, batch: usize) -> (Vec<f32>, Vec<u32>) {
    (noise(step as u64, batch * 20, -1.0, 1.0), some_labels(step as u64, batch, 7))
}

/// Losses of ten steps and all persistent tensors.
type Run = Vec<(String, Vec<f32>)>;

fn names(plan: &Plan) -> Vec<String> {
    plan.program.storages.iter().filter(|s| s.persistent).map(|s| s.name.clone()).collect()
}

fn planned(device: &Device, plan: &Plan, debug: Debug) -> Run {
    let mut session = Session::with_plans(device, &[plan], debug).expect("it opens");
    let buffers = session.buffers();
    assert_eq!(session.device_bytes(), plan.footprint().total(), "bytes created and planned");
    let mut losses = Vec::new();
    for step in 0..STEPS {
        let (x, y) = data(step, BATCH);
        session.feed("x", &x).expect("valid");
        session.feed("y", &y).expect("valid");
        session.step().expect("it runs");
        losses.push(session.loss().expect("a finite loss"));
    }
    assert_eq!(session.buffers(), buffers, "buffers created after the session was open");
    assert_eq!(session.device_bytes(), plan.footprint().total());
    let mut run = vec![("losses".to_owned(), losses)];
    run.push(("logits".to_owned(), session.output(ProgramId(0), "logits").expect("an output")));
    run.extend(names(plan).into_iter().map(|name| {
        let data = session.parameter(&name).expect("there");
        (name, data)
    }));
    if plan.layout.guard_bytes > 0 {
        session.check_guards(ProgramId(0)).expect("nothing wrote between tensors");
    }
    run
}

fn eager(device: &Device, plan: &Plan, options: PoolOptions) -> Run {
    let mut eager = Eager::new(device, plan, options).expect("it opens");
    let mut losses = Vec::new();
    for step in 0..STEPS {
        let (x, y) = data(step, BATCH);
        eager.feed("x", &x).expect("valid");
        eager.feed("y", &y).expect("valid");
        eager.step().expect("it runs");
        losses.extend(eager.output::<f32>("loss").expect("an output"));
    }
    let mut run = vec![("losses".to_owned(), losses)];
    run.push(("logits".to_owned(), eager.output("logits").expect("an output")));
    run.extend(names(plan).into_iter().map(|name| {
        let data = eager.parameter(&name).expect("there");
        (name, data)
    }));
    run
}

#[track_caller]
fn assert_same(what: &str, a: &Run, b: &Run) {
    assert_eq!(a.len(), b.len(), "{what}: number of tensors");
    for ((name, a), (other, b)) in a.iter().zip(b) {
        assert_eq!(name, other, "{what}");
        assert_same_bits(&format!("{what}: {name}"), a, b);
    }
}

fn plan(step: &TrainStep, options: &PlanOptions, limits: &Limits) -> Plan {
    step.plan(options, limits).expect("it can be planned")
}

#[test]
fn planned_and_eager_give_the_same_bits() {
    let pools = [
        PoolOptions::default(),
        PoolOptions { strategy: Kind::FreeList(wgrad::memory::Fit::Best), ..PoolOptions::default() },
        PoolOptions {
            strategy: Kind::FreeList(wgrad::memory::Fit::First),
            growth: Growth::Exact,
            ..PoolOptions::default()
        },
        PoolOptions { growth: Growth::Fixed(1 << 14), release_idle: true, ..PoolOptions::default() },
        PoolOptions { strategy: Kind::Buddy, growth: Growth::Fixed(1 << 16), ..PoolOptions::default() },
        PoolOptions::one_buffer_per_tensor(),
    ];
    let step = Network::new().step(BATCH);
    on_each(devices(), |device| {
        for limits in both_classes(device) {
            for options in optimizers() {
                let plan = plan(&step, &options, &limits);
                let wanted = planned(device, &plan, Debug::default());
                let losses = &wanted[0].1;
                assert!(losses.iter().all(|loss| loss.is_finite()) && losses[0] != losses[9], "{losses:?}");
                for pool in pools {
                    let what = format!("{:?} with {pool:?} for {}", options.optimizer, limits.name);
                    assert_same(&what, &wanted, &eager(device, &plan, pool));
                }
            }
        }
    });
}

#[test]
fn debug_options_change_no_bit() {
    let step = Network::new().step(BATCH);
    on_each(devices(), |device| {
        for limits in both_classes(device) {
            for options in optimizers() {
                let plain = plan(&step, &options, &limits);
                let wanted = planned(device, &plain, Debug::default());
                let again = planned(device, &plan(&step, &options, &limits), Debug::default());
                assert_same("a second run", &wanted, &again);
                let poisoned = planned(device, &plain, Debug { poison: true });
                assert_same("poisoned", &wanted, &poisoned);
                let apart = plan(&step, &PlanOptions { reuse: false, ..options }, &limits);
                assert!(apart.peak_bytes() > plain.peak_bytes(), "without reuse a plan is larger");
                assert_same("without reuse", &wanted, &planned(device, &apart, Debug::default()));
                let guarded = plan(&step, &PlanOptions { guard: true, ..options }, &limits);
                assert_same("with guards", &wanted, &planned(device, &guarded, Debug { poison: true }));
            }
        }
    });
}

/// Runs with different seeds must differ, or the tests above would compare nothing.
#[test]
fn another_seed_gives_other_bits() {
    on_each(devices(), |device| {
        let losses = |seed: u64| {
            let params = Params::new(seed);
            let mlp = Mlp::new(&params, &[20, 8, 7]);
            let step = TrainStep::trace(&params, |trace| {
                let x = trace.input("x", [BATCH, 20]);
                let logits = mlp.forward(&x.dropout(0.5));
                trace.output("logits", &logits);
                logits.cross_entropy(&trace.labels("y", [BATCH], 7))
            });
            planned(device, &plan(&step.expect("valid"), &optimizers()[0], device.limits()), Debug::default())
        };
        assert_ne!(losses(1)[0].1, losses(2)[0].1);
    });
}

#[test]
fn reading_the_loss_seldom_changes_no_bit() {
    let step = Network::new().step(BATCH);
    on_each(devices(), |device| {
        let plan = plan(&step, &optimizers()[1], device.limits());
        let run = |interval: u64| {
            let mut session = Session::new(device, &plan).expect("it opens");
            session.set_loss_interval(interval);
            for step in 0..21 {
                let (x, y) = data(step, BATCH);
                session.feed("x", &x).expect("valid");
                session.feed("y", &y).expect("valid");
                session.step().expect("it runs");
            }
            session.wait().expect("it finishes");
            let last = session.loss().expect("a finite loss");
            let losses = session.losses().expect("finite losses");
            let weights = session.parameter("second.fc2.weight").expect("there");
            (losses, last, weights)
        };
        let (all, last, weights) = run(1);
        assert_eq!(all.iter().map(|(step, _)| *step).collect::<Vec<_>>(), (0..21).collect::<Vec<_>>());
        assert_eq!(all[20].1, last);
        let (some, _, same) = run(4);
        assert_same_bits("weights", &weights, &same);
        let expected: Vec<_> = all.iter().copied().filter(|(step, _)| step % 4 == 0).collect();
        assert_eq!(some, expected, "every fourth loss");
    });
}

/// Training, a smaller last batch and evaluation in one session share parameters and memory.
#[test]
fn plans_of_one_session_share_parameters() {
    on_each(devices(), |device| {
        let network = Network::new();
        let options = optimizers()[1];
        let limits = device.limits();
        let plans = [plan(&network.step(BATCH), &options, limits), plan(&network.step(5), &options, limits)];
        let forward = network.forward(3).plan(limits).expect("planned");
        let all = [&plans[0], &plans[1], &forward];
        let mut session = Session::with_plans(device, &all, Debug { poison: true }).expect("it opens");
        assert_eq!(session.device_bytes(), wgrad::compile::Footprint::of(&all).total());
        let buffers = session.buffers();
        // The same with separate sessions, copying parameters and state between them.
        let mut carried: Vec<Vec<f32>> = Vec::new();
        for (step, batch) in [(0, 0), (1, 1), (2, 0), (3, 1)] {
            let id = ProgramId(batch);
            let (x, y) = data(step, if batch == 0 { BATCH } else { 5 });
            session.feed_to(id, "x", &x).expect("valid");
            session.feed_to(id, "y", &y).expect("valid");
            session.run(id).expect("it runs");
            let mut alone = Session::new(device, &plans[batch]).expect("it opens");
            for (name, data) in names(&plans[batch]).iter().zip(&carried) {
                alone.set_parameter(name, data).expect("there");
            }
            alone.set_steps(step as u64);
            alone.feed("x", &x).expect("valid");
            alone.feed("y", &y).expect("valid");
            alone.step().expect("it runs");
            assert_eq!(alone.loss().expect("finite"), session.loss().expect("finite"), "step {step}");
            carried = names(&plans[batch]).iter().map(|name| alone.parameter(name).expect("there")).collect();
        }
        for (name, wanted) in names(&plans[0]).iter().zip(&carried) {
            assert_same_bits(name, wanted, &session.parameter(name).expect("there"));
        }
        let (x, _) = data(9, 3);
        session.feed_to(ProgramId(2), "x", &x).expect("valid");
        session.run(ProgramId(2)).expect("it runs");
        let logits: Vec<f32> = session.output(ProgramId(2), "logits").expect("an output");
        let mut alone = Session::new(device, &forward).expect("it opens");
        for (name, data) in names(&forward).iter().zip(&carried) {
            alone.set_parameter(name, data).expect("there");
        }
        alone.feed("x", &x).expect("valid");
        alone.step().expect("it runs");
        assert_same_bits("logits", &logits, &alone.output::<f32>(ProgramId(0), "logits").expect("an output"));
        assert_eq!((session.steps(), alone.steps()), (4, 0), "a forward pass is no step");
        assert_eq!(session.buffers(), buffers);
    });
}

/// A plan for another adapter's limits also runs here and gives close results.
#[test]
fn plans_for_preset_limits_run_and_give_close_results() {
    let step = Network::new().step(BATCH);
    on_each(devices(), |device| {
        let options = optimizers()[0];
        let own = planned(device, &plan(&step, &options, device.limits()), Debug::default());
        for name in ["webgpu", "discrete", "nvidia"] {
            let limits = Limits::named(name).expect("a preset");
            let other = planned(device, &plan(&step, &options, &limits), Debug::default());
            for ((what, a), (_, b)) in other.iter().zip(&own) {
                let wanted: Vec<f64> = b.iter().map(|&x| f64::from(x)).collect();
                assert_close(&format!("{name}: {what}"), a, &wanted, Near { rel: 1e-3, abs: 1e-4 });
            }
        }
    });
}

/// Random graphs: planned, eager, poisoned and unfused runs agree bit for bit, and all are close to the twin.
#[test]
fn random_graphs_agree_with_eager_runs_and_with_the_twin() {
    on_each(devices(), |device| {
        for limits in both_classes(device) {
            for seed in 0..4 {
                let step = random_step(seed, 12 + 3 * seed as usize);
                let options = &optimizers()[seed as usize % 3];
                let plan = plan(&step, options, &limits);
                let single = step.plan(&PlanOptions { fuse: false, ..*options }, &limits).expect("planned");
                let mut single = Session::new(device, &single).expect("it opens");
                let mut plain = Session::new(device, &plan).expect("it opens");
                let mut poisoned =
                    Session::with_plans(device, &[&plan], Debug { poison: true }).expect("it opens");
                let mut eager = Eager::new(device, &plan, PoolOptions::default()).expect("it opens");
                let mut twin = Twin::new(plan.graph());
                for step in 0..3 {
                    let what = format!("random graph {seed} at step {step} for {}", limits.name);
                    plain.step().expect("it runs");
                    single.step().expect("it runs");
                    poisoned.step().expect("it runs");
                    eager.step().expect("it runs");
                    twin.set_step(&options.optimizer.scalars(
                        step,
                        options.optimizer.learning_rate(),
                        plan.seed,
                    ));
                    twin.run().expect("it runs");
                    let loss = plain.loss().expect("finite");
                    assert_same_bits(&what, &[loss], &eager.output::<f32>("loss").expect("an output"));
                    assert_same_bits(&what, &[loss], &[poisoned.loss().expect("finite")]);
                    assert_same_bits(&what, &[loss], &[single.loss().expect("finite")]);
                    for name in names(&plan) {
                        let found = plain.parameter(&name).expect("there");
                        assert_same_bits(&name, &found, &eager.parameter(&name).expect("there"));
                        assert_same_bits(&name, &found, &poisoned.parameter(&name).expect("there"));
                        assert_same_bits(&name, &found, &single.parameter(&name).expect("there"));
                    }
                    // Adam makes large steps of small gradients, so rounding errors grow from step to step:
                    // only the first step is compared.
                    if step == 0 {
                        let near = Near { rel: 1e-4, abs: 1e-6 };
                        assert_close(&what, &[loss], twin.output("loss").expect("an output"), near);
                        for (output, _) in &plan.graph().outputs {
                            let found: Vec<f32> = plain.output(ProgramId(0), output).expect("an output");
                            let near = Near { rel: 1e-3, abs: 1e-4 };
                            assert_close(
                                &format!("{what}: {output}"),
                                &found,
                                twin.output(output).expect("it"),
                                near,
                            );
                        }
                    }
                }
            }
        }
    });
}

#[test]
fn u64_kernels_are_bit_identical_to_u32() {
    let whole = PlanOptions { optimizer: networks::optimizer(), ..PlanOptions::default() };
    // Unfused functions and bit masks.
    let single = PlanOptions { fuse: false, rebuild: false, bit_masks: true, ..whole };
    on_each(devices(), |device| {
        let own = device.limits();
        if !own.kernels.long_words {
            return;
        }
        let short = own.choosing(|kernels| kernels.long_words = false);
        for name in ["mlp", "cnn", "resnet", "gpt"] {
            for options in [whole, single] {
                let step = networks::network(name, networks::BATCH);
                let [found, wanted] = [own, &short].map(|limits| {
                    let plan = step.plan(&options, limits).expect("planned");
                    let long = kernels(&plan).iter().filter(|name| name.contains("_u64")).count();
                    assert_eq!(long > 3, limits.kernels.long_words, "{:?}", kernels(&plan));
                    networks::run(device, &plan)
                });
                assert_eq!(wanted.len(), found.len());
                for ((tensor, wanted), (_, found)) in wanted.iter().zip(&found) {
                    assert_same_bits(&format!("{name}: {tensor}"), wanted, found);
                }
            }
        }
    });
}
