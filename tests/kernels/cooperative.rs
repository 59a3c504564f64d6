//! Cooperative matrices, where an adapter has them: alone, in the training step of a network, and unused
//! where they are not requested.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::close::{assert_same_bits, assert_within};
use crate::support::compare::kernels;
use crate::support::digits::digits;
use crate::support::networks::network;
use crate::support::{cooperative, devices, noise, on_each, some_labels};
use wgrad::Error;
use wgrad::compile::{Plan, PlanOptions, Recompute, TrainStep};
use wgrad::data::{LastBatch, Loader};
use wgrad::device::{Device, DeviceOptions, Select};
use wgrad::dtype::Precision;
use wgrad::exec::{Eager, ProgramId, Races, Session, race_cooperative, test_cooperative};
use wgrad::graph::{Class, LossScale, Params, Window};
use wgrad::limits::{AdapterClass, Cooperative, Limits, Products};
use wgrad::memory::PoolOptions;
use wgrad::models::Model;
use wgrad::nn::{BatchNorm2d, Conv2d, ConvTranspose2d, Linear};
use wgrad::optim::{AdamW, Sgd};
use wgrad::reference::Twin;

fn uses_cooperative_products(plan: &Plan) -> bool {
    kernels(plan).iter().any(|name| name.starts_with("matmul_cooperative"))
}

/// Convolutions of every form: with stride, grouped, transposed; of an image, of a batch norm, of a
/// concatenation; with a bias and with elementwise functions after them. The functions are smooth: a kink
/// would amplify rounding errors.
fn convolutional() -> TrainStep {
    let params = Params::new(3);
    let same = Window::square(3).padding(1);
    let scope = |name: &str| params.scope(name);
    let (first, down) =
        (Conv2d::new(&scope("first"), 3, 16, same), Conv2d::new(&scope("down"), 16, 24, same.stride(2)));
    let up = ConvTranspose2d::new(&scope("up"), 24, 16, same.stride(2));
    let joined = Conv2d::new(&scope("joined"), 32, 32, same);
    let apart = Conv2d::grouped(&scope("apart"), 32, 40, Window::square(2), 2);
    let (norm, fc) = (BatchNorm2d::new(&scope("norm"), 16), Linear::new(&scope("fc"), 40, 5));
    let step = TrainStep::trace(&params, |trace| {
        let x = trace.input("x", [BATCH, 3, 9, 11]).apply(&first).tanh();
        let up = x.apply(&norm).apply(&down).gelu().apply(&up).tanh();
        let y = x.concat(&[&up], 1).apply(&joined).tanh().apply(&apart).silu();
        y.mean(&[2, 3]).reshape([BATCH, 40]).apply(&fc).cross_entropy(&trace.labels("y", [BATCH], 5))
    });
    step.expect("valid")
}

fn convolutions(plan: &Plan) -> Vec<String> {
    kernels(plan).into_iter().filter(|name| name.starts_with("conv")).collect()
}

/// Returns the limits, and the same limits as a GPU, whose kernels read 16-bit images and norms that are
/// fused into convolutions.
fn also_as_a_gpu(limits: Limits) -> Vec<Limits> {
    let class = AdapterClass::Discrete;
    let gpu = Limits { name: format!("{} as a GPU", limits.name), class, ..limits.clone() };
    if limits.class == class { vec![limits] } else { vec![limits, gpu] }
}

/// Uses a loss scale, so that gradients, too, are products of cooperative matrices.
fn options(precision: Precision) -> PlanOptions {
    let optimizer = Sgd { lr: 0.01, momentum: 0.5, ..Sgd::default() }.into();
    let loss_scale = Some(LossScale { start: 1024.0, ..LossScale::default() });
    PlanOptions { optimizer, precision, loss_scale, ..PlanOptions::default() }
}

fn plan(step: &TrainStep, precision: Precision, limits: &Limits) -> Plan {
    step.plan(&options(precision), limits).expect("it can be planned")
}

#[test]
fn self_test_passes_and_race_runs() {
    for (device, limits) in cooperative() {
        assert_eq!(test_cooperative(device).expect("it is right"), limits);
        let Races { products, convolutions } = race_cooperative(device, &limits).expect("it runs");
        println!("{}: {products}; {convolutions}", limits.name);
    }
    let without = devices().iter().filter(|device| device.adapter().cooperative.is_empty());
    for device in without {
        let error = test_cooperative(device).expect_err("there is nothing to test").to_string();
        assert!(
            error.contains(&device.adapter().name) && error.contains("no cooperative matrices"),
            "{error}"
        );
    }
}

const BATCH: usize = 21;

fn images(plan: &Plan, at: u64) -> Vec<f32> {
    let (_, x) = plan.graph().inputs().find(|(_, value)| value.name == "x").expect("an input");
    noise(at, x.shape.numel() as usize, -1.0, 1.0)
}

/// Returns the momentum buffers after `steps` steps; after one step they are the gradients.
fn run(device: &Device, plan: &Plan, steps: u64) -> BTreeMap<String, Vec<f32>> {
    let mut session = Session::new(device, plan).expect("it opens");
    for at in 0..steps {
        session.feed("x", &images(plan, at)).expect("valid");
        session.feed("y", &some_labels(at, BATCH, 5)).expect("valid");
        session.step().expect("it runs");
    }
    session.loss().expect("a finite loss");
    let states = plan.program.storages.iter().filter(|s| s.name.ends_with(".momentum_buffer"));
    states.map(|s| (s.name.clone(), session.parameter(&s.name).expect("there"))).collect()
}

fn twin(plan: &Plan) -> BTreeMap<String, Vec<f64>> {
    let mut twin = Twin::new(plan.graph());
    twin.set_f32("x", &images(plan, 0)).expect("valid");
    twin.set_u32("y", &some_labels(0, BATCH, 5)).expect("valid");
    twin.set_step(&plan.optimizer.expect("it trains").scalars(0, 0.01, plan.seed));
    twin.run().expect("it runs");
    let states = plan.graph().values.iter().filter(|v| v.name.ends_with(".momentum_buffer"));
    states.map(|v| (v.name.clone(), twin.parameter(&v.name).expect("there").to_vec())).collect()
}

/// Checks that the gradients are near the twin's. Each gradient has a few roundings to `f16`: the bound is 40
/// roundings of the largest gradient of its tensor (compare `tests/train/precision.rs`).
fn near_the_twin(step: &TrainStep, device: &Device, limits: &Limits, exact: &BTreeMap<String, Vec<f64>>) {
    let found = run(device, &plan(step, Precision::F16, limits), 1);
    let mut moved = 0.0f64;
    for (name, exact) in exact {
        let largest = exact.iter().fold(0.0f64, |most, g| most.max(g.abs()));
        let what = format!("{name} on {}", limits.name);
        assert_within(&what, &found[name], exact, |_| 40.0 / 2048.0 * largest + 1e-6);
        let error = |(a, b): (&f32, &f64)| (f64::from(*a) - b).abs() / largest.max(1e-30);
        moved = found[name].iter().zip(exact).map(error).fold(moved, f64::max);
    }
    println!("{}: gradients are off by {:.2} roundings of the largest", limits.name, moved * 2048.0);
    assert!(moved > 0.02 / 2048.0, "no factor was rounded");
}

/// Biases, elementwise functions and residuals are epilogues of the products, and the widths are odd.
#[test]
fn mlp_gradients_differ_only_by_rounding_of_factors() {
    let step = network("mlp", BATCH);
    let exact = twin(&plan(&step, Precision::F32, &Limits::default()));
    for (device, limits) in cooperative() {
        let names = kernels(&plan(&step, Precision::F16, &limits));
        let fused = names.iter().filter(|name| name.starts_with("matmul_cooperative") && name.contains('+'));
        assert!(fused.count() >= 4, "{names:?}");
        near_the_twin(&step, device, &limits, &exact);
    }
}

/// Every convolution and every convolution gradient uses cooperative matrices.
#[test]
fn convolution_gradients_differ_only_by_rounding_of_factors() {
    let step = convolutional();
    let exact = twin(&plan(&step, Precision::F32, &Limits::default()));
    for (device, limits) in cooperative() {
        for limits in also_as_a_gpu(limits) {
            let names = convolutions(&plan(&step, Precision::F16, &limits));
            assert!(names.iter().all(|name| name.contains("cooperative")), "{names:?}");
            near_the_twin(&step, device, &limits, &exact);
        }
    }
}

#[test]
fn repeated_and_eager_runs_are_bit_identical() {
    let steps = [network("mlp", BATCH), convolutional()];
    // Without cooperative matrices, too.
    let without = devices().iter().map(|device| (device, device.limits().clone()));
    let all = cooperative().into_iter().chain(without);
    for ((device, limits), step) in all.flat_map(|all| steps.iter().map(move |step| (all.clone(), step))) {
        let plan = plan(step, Precision::F16, &limits);
        let (once, again) = (run(device, &plan, 3), run(device, &plan, 3));
        let mut eager = Eager::new(device, &plan, PoolOptions::default()).expect("it opens");
        for at in 0..3 {
            eager.feed("x", &images(&plan, at)).expect("valid");
            eager.feed("y", &some_labels(at, BATCH, 5)).expect("valid");
            eager.step().expect("it runs");
        }
        for (name, once) in &once {
            assert_same_bits(name, once, &again[name]);
            assert_same_bits(&format!("{name}, eager"), once, &eager.parameter(name).expect("there"));
        }
    }
}

/// Trains for one pass over the digits in batches of 64, and returns the mean loss of the last five steps.
fn learn(device: &Device, limits: &Limits, precision: Precision) -> f32 {
    let model = Model::named("digits", 0).expect("a model");
    let optimizer = AdamW { lr: 4e-3, ..AdamW::default() }.into();
    let options = PlanOptions { optimizer, ..options(precision) };
    let plan = model.train_step(64).expect("valid").plan(&options, limits).expect("it can be planned");
    assert_eq!(uses_cooperative_products(&plan), precision == Precision::F16);
    let mut session = Session::new(device, &plan).expect("it opens");
    let loader = Loader::new(Arc::new(digits()), 64).expect("a batch").last_batch(LastBatch::Drop);
    for batch in loader.epoch(0, 0) {
        session.feed_batch(ProgramId(0), &batch.expect("a batch")).expect("valid");
        session.step().expect("it runs");
    }
    session.loss().expect("a finite loss");
    let losses = session.losses().expect("finite losses");
    losses.iter().rev().take(5).map(|(_, loss)| loss).sum::<f32>() / 5.0
}

#[test]
fn digits_reach_the_loss_of_f32() {
    for (device, limits) in cooperative() {
        let [wide, cooperative] =
            [Precision::F32, Precision::F16].map(|precision| learn(device, &limits, precision));
        println!("{}: a loss of {wide} in f32, of {cooperative} with cooperative matrices", limits.name);
        assert!(wide < 1.0 && (cooperative - wide).abs() < 0.02, "{wide} and {cooperative}");
    }
}

/// A plan needs no adapter.
#[test]
fn products_use_cooperative_matrices_only_in_f16() {
    let step = network("mlp", BATCH);
    let with =
        |side, lanes| Limits::default().choosing(|k| k.cooperative = Some(Cooperative { side, lanes }));
    for (side, lanes) in [(8, 8), (8, 32), (16, 16), (16, 32), (16, 64)] {
        let (with, without) = (with(side, lanes), Limits::default());
        for precision in Precision::ALL {
            let cooperative = plan(&step, precision, &with);
            assert_eq!(
                uses_cooperative_products(&cooperative),
                precision == Precision::F16,
                "{}",
                precision.name()
            );
            assert!(!uses_cooperative_products(&plan(&step, precision, &without)));
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
                // The number of vec4 loads of A and of B that a thread makes at a time.
                let vec4s = [2 * rows * side, groups * 2 * side].map(|lines| lines * 8 / threads);
                assert!(vec4s.iter().all(|count| [1, 2, 4, 8].contains(count)), "{vec4s:?}");
            }
        }
    }
    for name in Limits::NAMES {
        assert_eq!(Limits::named(name).expect("a preset").kernels.cooperative, None);
    }
}

/// Forward, gradient of the image and gradient of the weight; of each source; saved in 32 bits and in 16.
#[test]
fn convolutions_use_cooperative_matrices_only_in_f16() {
    let step = convolutional();
    for side in [8, 16] {
        let limits = Limits::default().choosing(|k| k.cooperative = Some(Cooperative { side, lanes: 32 }));
        for precision in Precision::ALL {
            let names = convolutions(&plan(&step, precision, &limits));
            let by_matrices = names.iter().filter(|name| name.contains("cooperative")).count();
            let expected = if precision == Precision::F16 { names.len() } else { 0 };
            assert_eq!(by_matrices, expected, "{}: {names:?}", precision.name());
            let parts = ["_bias+tanh", "_bias_normed", "_bias_two_sources", "weight_", "_f16"];
            let all = parts.iter().all(|part| names.iter().any(|name| name.contains(part)));
            assert!(all || expected == 0, "{names:?}");
        }
        // Gradients without a loss scale are not rounded, and naming a row of the table of products turns
        // matrices off.
        let unscaled = PlanOptions { loss_scale: None, ..options(Precision::F16) };
        let names = convolutions(&step.plan(&unscaled, &limits).expect("it can be planned"));
        let count = |start: &str| names.iter().filter(|name| name.starts_with(start)).count();
        assert_eq!(count("conv_weight_cooperative"), 0, "{names:?}");
        // The transposed convolution has four phases.
        assert_eq!(count("conv_cooperative"), 4 + 4, "{names:?}");
        let limits = limits.choosing(|k| k.products = Products::all("tiled64"));
        let names = kernels(&plan(&step, Precision::F16, &limits));
        assert!(!names.iter().any(|name| name.contains("cooperative")), "{names:?}");
    }
}

/// Small gradients would become 0 in `f16`; the activations that are recomputed for them would not.
#[test]
fn gradients_use_cooperative_matrices_only_with_a_loss_scale() {
    let step = network("mlp", BATCH);
    let limits = Limits::default().choosing(|k| k.cooperative = Some(Cooperative { side: 16, lanes: 32 }));
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
fn plan_with_unsupported_cooperative_matrices_is_rejected() {
    let step = network("mlp", BATCH);
    on_each(devices(), |device| {
        let other = Cooperative { side: 16, lanes: 48 };
        let limits = device.limits().choosing(|k| k.cooperative = Some(other));
        let plan = plan(&step, Precision::F16, &limits);
        let Err(Error::PlanMismatch(message)) = Session::new(device, &plan).map(drop) else {
            panic!("it was taken")
        };
        assert!(message.contains("16 × 16") && message.contains("Device::target"), "{message}");
    });
}

/// On software adapters the trial is skipped because it cannot win, and matrices that are disabled stay off.
#[test]
fn no_trial_runs_on_software_adapters_or_when_disabled() {
    on_each(devices(), |device| {
        let limits = device.limits();
        assert_eq!(limits.kernels.cooperative, None);
        assert_eq!(device.target(Precision::F32), *limits);
        if limits.class.is_cpu() {
            assert_eq!(device.target(Precision::F16), *limits);
        }
        let select = Select::Named(device.adapter().selector());
        let off = DeviceOptions { select, cooperative: false, ..DeviceOptions::default() };
        let off = Device::open(&off).expect("it opens");
        assert_eq!(off.adapter().cooperative, []);
        assert_eq!(off.target(Precision::F16), *off.limits());
    });
}
