//! Cooperative matrices, where an adapter has them: on their own, in the training step of a network, and not where nobody
//! asked for them.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use support::close::{assert_same_bits, assert_within};
use support::compare::kernels;
use support::digits::digits;
use support::networks::network;
use support::{cooperative, devices, noise, on_each, some_labels};
use wgrad::Error;
use wgrad::data::{LastBatch, Loader};
use wgrad::device::{Device, DeviceOptions, Select};
use wgrad::dtype::Precision;
use wgrad::exec::{Eager, Session, limits_for, race_cooperative, test_cooperative};
use wgrad::graph::{Class, LossScale};
use wgrad::limits::{Cooperative, Limits};
use wgrad::memory::PoolOptions;
use wgrad::models::Model;
use wgrad::optim::{AdamW, Sgd};
use wgrad::plan::{Plan, PlanOptions, Recompute, TrainStep};
use wgrad::reference::Twin;

fn cooperates(plan: &Plan) -> bool {
    kernels(plan).iter().any(|name| name.starts_with("matmul_cooperative"))
}

/// With a loss scale, so that gradients are products of cooperative matrices, too.
fn options(precision: Precision) -> PlanOptions {
    let optimizer = Sgd { lr: 0.01, momentum: 0.5, ..Sgd::default() }.into();
    let loss_scale = Some(LossScale { start: 1024.0, ..LossScale::default() });
    PlanOptions { optimizer, precision, loss_scale, ..PlanOptions::default() }
}

fn plan(step: &TrainStep, precision: Precision, limits: &Limits) -> Plan {
    step.plan(&options(precision), limits).expect("it can be planned")
}

#[test]
fn the_self_test_passes_and_the_race_is_run() {
    for (device, limits) in cooperative() {
        assert_eq!(test_cooperative(device).expect("it is right"), limits);
        println!("{}: {}", limits.name, race_cooperative(device).expect("it runs"));
    }
    let without = devices().iter().filter(|device| device.adapter().cooperative.is_none());
    for device in without {
        let error = test_cooperative(device).expect_err("there is nothing to test").to_string();
        assert!(
            error.contains(&device.adapter().name) && error.contains("no cooperative matrices"),
            "{error}"
        );
    }
}

const BATCH: usize = 21;

/// Momentum buffers after so many steps: after one they are the gradients.
fn run(device: &Device, plan: &Plan, steps: u64) -> BTreeMap<String, Vec<f32>> {
    let mut session = Session::new(device, plan).expect("it opens");
    for at in 0..steps {
        session.feed("x", &noise(at, BATCH * 24, -1.0, 1.0)).expect("valid");
        session.feed("y", &some_labels(at, BATCH, 5)).expect("valid");
        session.step().expect("it runs");
    }
    session.loss().expect("a finite loss");
    let states = plan.program.storages.iter().filter(|s| s.name.ends_with(".momentum_buffer"));
    states.map(|s| (s.name.clone(), session.parameter(&s.name).expect("there"))).collect()
}

fn twin(plan: &Plan) -> BTreeMap<String, Vec<f64>> {
    let mut twin = Twin::new(plan.graph());
    twin.set_f32("x", &noise(0, BATCH * 24, -1.0, 1.0)).expect("valid");
    twin.set_u32("y", &some_labels(0, BATCH, 5)).expect("valid");
    twin.set_step(&plan.optimizer.expect("it trains").scalars(0, 0.01, plan.seed));
    twin.run().expect("it runs");
    let states = plan.graph().values.iter().filter(|v| v.name.ends_with(".momentum_buffer"));
    states.map(|v| (v.name.clone(), twin.parameter(&v.name).expect("there").to_vec())).collect()
}

/// Biases, functions and residuals are computed behind the products, widths are odd. Each gradient is made of a handful of
/// roundings to `f16`: the bound is 40 of the largest of its tensor, as in `tests/precision.rs`.
#[test]
fn gradients_of_a_network_differ_by_roundings_of_factors() {
    let step = network("mlp", BATCH);
    let exact = twin(&plan(&step, Precision::F32, &Limits::default()));
    for (device, limits) in cooperative() {
        let plan = plan(&step, Precision::F16, &limits);
        let names = kernels(&plan);
        let fused = names.iter().filter(|name| name.starts_with("matmul_cooperative") && name.contains('+'));
        assert!(fused.count() >= 4, "{names:?}");
        let found = run(device, &plan, 1);
        let mut moved = 0.0f64;
        for (name, exact) in &exact {
            let largest = exact.iter().fold(0.0f64, |most, g| most.max(g.abs()));
            assert_within(name, &found[name], exact, |_| 40.0 / 2048.0 * largest + 1e-6);
            let error = |(a, b): (&f32, &f64)| (f64::from(*a) - b).abs() / largest.max(1e-30);
            moved = found[name].iter().zip(exact).map(error).fold(moved, f64::max);
        }
        assert!(moved > 0.02 / 2048.0, "no factor was rounded");
    }
}

#[test]
fn the_same_bits_every_time_planned_and_eager() {
    let step = network("mlp", BATCH);
    // Without cooperative matrices, too.
    let without = devices().iter().map(|device| (device, device.limits().clone()));
    for (device, limits) in cooperative().into_iter().chain(without) {
        let plan = plan(&step, Precision::F16, &limits);
        let (once, again) = (run(device, &plan, 3), run(device, &plan, 3));
        let mut eager = Eager::new(device, &plan, PoolOptions::default()).expect("it opens");
        for at in 0..3 {
            eager.feed("x", &noise(at, BATCH * 24, -1.0, 1.0)).expect("valid");
            eager.feed("y", &some_labels(at, BATCH, 5)).expect("valid");
            eager.step().expect("it runs");
        }
        for (name, once) in &once {
            assert_same_bits(name, once, &again[name]);
            assert_same_bits(&format!("{name}, eager"), once, &eager.parameter(name).expect("there"));
        }
    }
}

/// A pass over the digits in batches of 64, and the mean loss of its last five steps.
fn learn(device: &Device, limits: &Limits, precision: Precision) -> f32 {
    let model = Model::named("digits", 0).expect("a model");
    let optimizer = AdamW { lr: 4e-3, ..AdamW::default() }.into();
    let options = PlanOptions { optimizer, ..options(precision) };
    let plan = model.train_step(64).expect("valid").plan(&options, limits).expect("it can be planned");
    assert_eq!(cooperates(&plan), precision == Precision::F16);
    let mut session = Session::new(device, &plan).expect("it opens");
    let loader = Loader::new(Arc::new(digits()), 64).expect("a batch").last_batch(LastBatch::Drop);
    for batch in loader.epoch(0) {
        session.feed("x", &batch.x).expect("valid");
        session.feed("y", &batch.y).expect("valid");
        session.step().expect("it runs");
    }
    session.loss().expect("a finite loss");
    let losses = session.losses().expect("finite losses");
    losses.iter().rev().take(5).map(|(_, loss)| loss).sum::<f32>() / 5.0
}

#[test]
fn the_digits_are_learnt_as_well() {
    for (device, limits) in cooperative() {
        let [wide, cooperative] =
            [Precision::F32, Precision::F16].map(|precision| learn(device, &limits, precision));
        println!("{}: a loss of {wide} in f32, of {cooperative} with cooperative matrices", limits.name);
        assert!(wide < 1.0 && (cooperative - wide).abs() < 0.02, "{wide} and {cooperative}");
    }
}

/// No adapter is needed for a plan.
#[test]
fn plans_use_them_in_f16_precision_alone() {
    let step = network("mlp", BATCH);
    let with = |side, lanes| Limits { cooperative: Some(Cooperative { side, lanes }), ..Limits::default() };
    for (side, lanes) in [(8, 8), (8, 32), (16, 16), (16, 32), (16, 64)] {
        let (with, without) = (with(side, lanes), Limits::default());
        for precision in Precision::ALL {
            let cooperative = plan(&step, precision, &with);
            assert_eq!(cooperates(&cooperative), precision == Precision::F16, "{}", precision.name());
            assert!(!cooperates(&plan(&step, precision, &without)));
            let same = cooperative.hash() == plan(&step, precision, &without).hash();
            assert_eq!(same, precision != Precision::F16);
        }
        for (launch, _) in &plan(&step, Precision::F16, &with).program.launches {
            let constant =
                |name| launch.constants.iter().find(|(other, _)| *other == name).map(|(_, x)| *x as u32);
            if let (Some(lanes), Some(groups), Some(rows)) =
                (constant("LANES"), constant("GROUPS_N"), constant("ROWS"))
            {
                let threads = 2 * groups * lanes;
                assert!(threads <= launch.kernel.workgroup, "{threads}");
                // What a thread brings of A and of B in one go.
                let fours = [2 * rows * side, groups * 2 * side].map(|lines| lines * 8 / threads);
                assert!(fours.iter().all(|count| [1, 2, 4, 8].contains(count)), "{fours:?}");
            }
        }
    }
    for name in Limits::NAMES {
        assert_eq!(Limits::named(name).expect("a preset").cooperative, None);
    }
}

/// Small gradients would vanish in `f16`; what is computed again for them would not.
#[test]
fn gradients_are_products_of_them_with_a_loss_scale_alone() {
    let step = network("mlp", BATCH);
    let limits = Limits { cooperative: Some(Cooperative { side: 16, lanes: 32 }), ..Limits::default() };
    let of = |loss_scale, recompute| {
        let options = PlanOptions { loss_scale, recompute, ..options(Precision::F16) };
        let plan = step.plan(&options, &limits).expect("it can be planned");
        let of_class = |class: Class| {
            let launches = plan.program.launches.iter().filter(|(launch, position)| {
                let node = &plan.graph().nodes[plan.program.order[*position]];
                launch.kernel.name.starts_with("matmul_cooperative")
                    && node.outputs.first().is_some_and(|id| plan.graph().value(*id).class == class)
            });
            launches.count()
        };
        [Class::Activation, Class::Gradient].map(of_class)
    };
    let [activations, gradients] = of(Some(LossScale::default()), Recompute::Off);
    assert!(activations == 4 && gradients >= 7, "{activations} and {gradients}");
    assert_eq!(of(None, Recompute::Off), [activations, 0]);
    let [again, none] = of(None, Recompute::Every(2));
    assert!(again > activations && none == 0, "{again} and {none}");
}

#[test]
fn a_plan_with_matrices_that_the_device_has_not_is_refused() {
    let step = network("mlp", BATCH);
    on_each(devices(), |device| {
        let other = Cooperative { side: 16, lanes: 48 };
        let limits = Limits { cooperative: Some(other), ..device.limits().clone() };
        let plan = plan(&step, Precision::F16, &limits);
        let Err(Error::Option(message)) = Session::new(device, &plan).map(drop) else {
            panic!("it was taken")
        };
        assert!(message.contains("16 × 16") && message.contains("exec::limits_for"), "{message}");
    });
}

/// On software adapters nobody waits for a trial that cannot be won, and what was switched off is off.
#[test]
fn nothing_is_tried_where_it_is_not_wanted() {
    on_each(devices(), |device| {
        let limits = device.limits();
        assert_eq!(limits.cooperative, None);
        assert_eq!(limits_for(device, Precision::F32), *limits);
        if limits.class.is_cpu() {
            assert_eq!(limits_for(device, Precision::F16), *limits);
        }
        let select = Select::Named(device.adapter().name.clone());
        let off = DeviceOptions { select, cooperative: false, ..DeviceOptions::default() };
        let off = Device::open(&off).expect("it opens");
        assert_eq!(off.adapter().cooperative, None);
        assert_eq!(limits_for(&off, Precision::F16), *off.limits());
    });
}
