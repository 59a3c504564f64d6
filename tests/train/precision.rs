//! Training steps that save activations in 16, 8 and 4 bits: what they save, how far their gradients change, and that all
//! execution modes give the same bits.

use std::collections::BTreeMap;

use crate::support::close::{assert_same_bits, assert_within};
use crate::support::{both_classes, devices, noise, on_each, some_labels};
use wgrad::Bytes;
use wgrad::compile::{Plan, PlanOptions, Recompute, TrainStep};
use wgrad::device::Device;
use wgrad::dtype::Precision;
use wgrad::exec::{Debug, Eager, Session};
use wgrad::graph::{Params, Window};
use wgrad::limits::{Card, Limits};
use wgrad::memory::PoolOptions;
use wgrad::models::Model;
use wgrad::nn::{BatchNorm2d, Conv2d, Linear};
use wgrad::optim::{Clip, Sgd};
use wgrad::reference::Twin;
use wgrad::report::{Kept, kept, kept_bytes};

const HALVES: [Precision; 2] = [Precision::F16, Precision::Bf16];
const CODES: [Precision; 2] = [Precision::Int8, Precision::Int4];

/// Returns half the distance between neighbouring numbers, relative to the number; of codes the distance, relative to the range of
/// a group.
fn rounding(precision: Precision) -> f64 {
    match precision {
        Precision::F32 => 0.5f64.powi(24),
        Precision::F16 => 0.5f64.powi(11),
        Precision::Bf16 => 0.5f64.powi(8),
        Precision::Int8 => 1.0 / 255.0,
        Precision::Int4 => 1.0 / 15.0,
    }
}

const BATCH: usize = 9;
const SIDE: usize = 12;

/// Convolutions, norms, a residual connection, dropout, pools and products: each reads saved tensors, some of
/// them through views, and no tensor has a round size.
fn step() -> TrainStep {
    with_blocks(0)
}

/// The same network with more convolutions in the middle: activations that the backward pass reads decide its peak.
fn with_blocks(blocks: usize) -> TrainStep {
    let params = Params::new(21);
    let window = Window::square(3).padding(1);
    let conv = |name: &str, from: usize, to: usize| Conv2d::new(&params.scope(name), from, to, window);
    let (conv1, conv2, conv3) = (conv("conv1", 3, 6), conv("conv2", 6, 6), conv("conv3", 6, 5));
    let norm = |name: &str| BatchNorm2d::new(&params.scope(name), 6);
    let block = |i: usize| (conv(&format!("block{i}"), 6, 6), norm(&format!("block{i}.norm")));
    let blocks: Vec<_> = (0..blocks).map(block).collect();
    let (norm1, norm2) = (norm("norm1"), norm("norm2"));
    let pixels = 5 * (SIDE / 2) * (SIDE / 2);
    let (fc1, fc2) =
        (Linear::new(&params.scope("fc1"), pixels, 123), Linear::new(&params.scope("fc2"), 123, 7));
    let step = TrainStep::trace(&params, |trace| {
        let x = trace.input("x", [BATCH, 3, SIDE, SIDE]).apply(&conv1).apply(&norm1).relu();
        let x = blocks.iter().fold(x, |x, (conv, norm)| x.apply(conv).apply(norm).relu().add(&x));
        let y = x.apply(&conv2).apply(&norm2).relu().dropout(0.2).add(&x).tanh();
        let y = y.apply(&conv3).relu().max_pool2d(Window::square(2).stride(2)).gelu();
        let y = y.flatten(1).apply(&fc1).silu();
        let y = y.sub(&y.mean(&[1]).reshape([BATCH, 1])).apply(&fc2);
        y.cross_entropy(&trace.labels("y", [BATCH], 7))
    });
    step.expect("valid")
}

/// Without and with clipping by the norm of all gradients, for which gradients wait in 16 bits, too.
const CLIPS: [Clip; 2] = [Clip::Off, Clip::Norm(0.5)];

fn plan(step: &TrainStep, precision: Precision, clip: Clip, limits: &Limits) -> Plan {
    let optimizer = Sgd { lr: 0.01, momentum: 0.5, ..Sgd::default() }.into();
    let options = PlanOptions { optimizer, precision, clip, ..PlanOptions::default() };
    step.plan(&options, limits).expect("it can be planned")
}

/// A plan that stores some of the activations in codes that may be, and others in 16 bits: on CPUs none is faster than with all in
/// codes.
fn mixed(step: &TrainStep, precision: Precision, limits: &Limits) -> Plan {
    let optimizer = Sgd { lr: 0.01, momentum: 0.5, ..Sgd::default() }.into();
    let recompute = Recompute::Auto;
    // On a small card, the times of small tensors are those of their elements.
    let card = Card { units: 1, unit_threads: 64, launch_s: 0.0, ..Card::default() };
    let mut plans = (0..30).filter_map(|i| {
        let budget = Some(Bytes(900_000 - 8_000 * i));
        let options = PlanOptions { optimizer, precision, recompute, budget, card, ..PlanOptions::default() };
        step.plan(&options, limits).ok()
    });
    let some = |plan: &Plan| plan.coded.is_some_and(|coded| coded > 0.0 && coded < 1.0);
    plans.rfind(some).expect("a budget at which some are in codes")
}

fn x(at: u64) -> Vec<f32> {
    noise(at, BATCH * 3 * SIDE * SIDE, -1.0, 1.0)
}

fn y(at: u64) -> Vec<u32> {
    some_labels(at, BATCH, 7)
}

/// Returns the persistent tensors after `steps` steps.
fn run(device: &Device, plan: &Plan, steps: u64, debug: Debug) -> BTreeMap<String, Vec<f32>> {
    let mut session = Session::with_plans(device, &[plan], debug).expect("it opens");
    assert_eq!(session.device_bytes(), plan.footprint().total());
    for at in 0..steps {
        session.feed("x", &x(at)).expect("valid");
        session.feed("y", &y(at)).expect("valid");
        session.step().expect("it runs");
    }
    session.loss().expect("a finite loss");
    let names = plan.program.storages.iter().filter(|s| s.persistent).map(|s| s.name.clone());
    names.map(|name| (name.clone(), session.parameter(&name).expect("there"))).collect()
}

fn twin(plan: &Plan) -> BTreeMap<String, Vec<f64>> {
    let mut twin = Twin::new(plan.graph());
    twin.set_f32("x", &x(0)).expect("valid");
    twin.set_u32("y", &y(0)).expect("valid");
    twin.set_step(&plan.optimizer.expect("it trains").scalars(0, 0.01, plan.seed));
    twin.run().expect("it runs");
    let states = plan.graph().values.iter().filter(|v| v.name.ends_with(".momentum_buffer"));
    states.map(|v| (v.name.clone(), twin.parameter(&v.name).expect("there").to_vec())).collect()
}

/// A momentum buffer after one step is the gradient. Each element is a sum over products with numbers that
/// were rounded once or more on their way through a dozen layers (operands of norms in the forward pass as
/// well), and ReLUs near 0 may switch: the bound is 60 roundings of the largest gradient of its tensor.
/// Reading a wrong tensor would exceed it.
#[test]
fn gradients_differ_only_by_rounding_of_saved_tensors() {
    let step = step();
    on_each(devices(), |device| {
        for limits in both_classes(device) {
            let exact = CLIPS.map(|clip| twin(&plan(&step, Precision::F32, clip, &limits)));
            // With 4 bits the bound would be above the gradients themselves.
            let rounded = HALVES.into_iter().chain([Precision::Int8]);
            for (i, precision) in rounded.flat_map(|precision| [(0, precision), (1, precision)]) {
                check_gradients(
                    device,
                    &plan(&step, precision, CLIPS[i], &limits),
                    (precision, 60.0),
                    &exact[i],
                );
            }
            if limits.class.is_cpu() {
                continue;
            }
            let deep = with_blocks(6);
            let exact = twin(&plan(&deep, Precision::F32, Clip::Off, &limits));
            let mixed = mixed(&deep, Precision::Int8, &limits);
            // Twice as many layers.
            check_gradients(device, &mixed, (Precision::Int8, 120.0), &exact);
        }
    });
}

fn check_gradients(
    device: &Device,
    plan: &Plan,
    (precision, roundings): (Precision, f64),
    exact: &BTreeMap<String, Vec<f64>>,
) {
    let (found, rounded) = (run(device, plan, 1, Debug { poison: true }), twin(plan));
    let mut moved = 0.0f64;
    let all = exact.values().flatten().fold(0.0f64, |most, g| most.max(g.abs()));
    for (name, exact) in exact {
        let largest = exact.iter().fold(0.0f64, |most, g| most.max(g.abs()));
        // A norm that is not of the mean of its operand's codes leaves a gradient to the bias before it.
        let beside = if HALVES.contains(&precision) { 0.0 } else { 1e-2 * rounding(precision) * all };
        let allowed = roundings * rounding(precision) * largest + 1e-6 + beside;
        let what = format!("{}, {}: {name}", precision.name(), plan.limits.name);
        assert_within(&what, &found[name], exact, |_| allowed);
        // The twin rarely rounds the other way, where its sum differs slightly.
        assert_within(&format!("{what}, the twin's"), &found[name], &rounded[name], |_| allowed);
        let error = |(a, b): (&f32, &f64)| (f64::from(*a) - b).abs() / largest.max(1e-30);
        moved = found[name].iter().zip(exact).map(error).fold(moved, f64::max);
    }
    assert!(moved > 0.02 * rounding(precision), "{}: nothing was rounded", precision.name());
}

#[test]
fn planned_poisoned_and_eager_runs_are_bit_identical() {
    let step = step();
    on_each(devices(), |device| {
        for limits in both_classes(device) {
            let plans = CLIPS.into_iter().flat_map(|clip| {
                let (step, limits) = (&step, &limits);
                Precision::ALL.into_iter().map(move |precision| plan(step, precision, clip, limits))
            });
            let gpu = !limits.class.is_cpu();
            let mixed = gpu.then(|| mixed(&with_blocks(6), Precision::Int4, &limits));
            for plan in plans.chain(mixed) {
                let wanted = run(device, &plan, 4, Debug::default());
                let poisoned = run(device, &plan, 4, Debug { poison: true });
                let mut eager = Eager::new(device, &plan, PoolOptions::default()).expect("it opens");
                for at in 0..4 {
                    eager.feed("x", &x(at)).expect("valid");
                    eager.feed("y", &y(at)).expect("valid");
                    eager.step().expect("it runs");
                }
                for (name, wanted) in &wanted {
                    assert_same_bits(&format!("{name}, poisoned"), wanted, &poisoned[name]);
                    let eager = eager.parameter(name).expect("there");
                    assert_same_bits(&format!("{name}, eager"), wanted, &eager);
                }
            }
        }
    });
}

/// Bytes saved for the backward pass, as a fraction of those in 32 bits. Indices of maxima are bytes in both.
#[test]
fn activations_are_saved_in_half_the_bytes() {
    let limits = Limits::named("discrete").expect("a preset");
    for (name, batch) in [("mlp", 128), ("cnn", 128), ("resnet18", 32), ("resnet50", 32), ("densenet121", 16)]
    {
        let step = Model::named(name, 0).expect("a model").train_step(batch).expect("valid");
        let options = |precision| PlanOptions { precision, ..PlanOptions::default() };
        let wide = step.plan(&options(Precision::F32), &limits).expect("planned");
        for precision in HALVES {
            let plan = step.plan(&options(precision), &limits).expect("planned");
            let share = kept_bytes(&plan) as f64 / kept_bytes(&wide) as f64;
            assert!(share <= 0.51, "{name} keeps {share:.3} of its bytes as {}", precision.name());
            // The peak of so small a network is decided by one gradient, or by the pieces of a product, which in 32
            // bits are placed over the saved tensors, in 16 bits next to them.
            let beside = if matches!(name, "mlp" | "cnn") { kept_bytes(&plan) } else { 0 };
            assert!(plan.peak_bytes() <= wide.peak_bytes() + beside, "{name}: {}", precision.name());
            let ops = |plan: &Plan| {
                // Whether a scalar is saved at the peak depends on the order of operations.
                let large = |kept: &&Kept| kept.bytes > 8192;
                kept(plan)
                    .iter()
                    .filter(large)
                    .map(|kept| (kept.op, kept.tensors))
                    .collect::<BTreeMap<_, _>>()
            };
            assert_eq!(ops(&plan), ops(&wide), "{name}: what is kept has its operation's name");
        }
    }
}

/// Of images nearly everything is saved in codes, and a bit for each ReLU; of transformers all but the operands of attention.
#[test]
fn activations_of_8_and_4_bits_are_saved_in_less_than_half_the_bytes() {
    let limits = Limits::named("nvidia").expect("a preset");
    let shares = [
        ("resnet18", 32, [0.36, 0.21]),
        ("resnet50", 32, [0.42, 0.23]),
        ("mobilenet-v2", 32, [0.27, 0.15]),
        ("densenet121", 16, [0.28, 0.15]),
        ("bert-base", 8, [0.37, 0.29]),
    ];
    for (name, batch, most) in shares {
        let step = Model::named(name, 0).expect("a model").train_step(batch).expect("valid");
        let plan = |precision| {
            let options = PlanOptions { precision, ..PlanOptions::default() };
            step.plan(&options, &limits).expect("planned")
        };
        let wide = plan(Precision::F32);
        for (precision, most) in CODES.into_iter().zip(most) {
            let plan = plan(precision);
            let share = kept_bytes(&plan) as f64 / kept_bytes(&wide) as f64;
            println!("{name} keeps {share:.3} of its bytes as {}", precision.name());
            assert!(share <= most, "{name} keeps {share:.3} of its bytes as {}", precision.name());
            assert!(plan.peak_bytes() <= wide.peak_bytes(), "{name}: {}", precision.name());
        }
    }
}
