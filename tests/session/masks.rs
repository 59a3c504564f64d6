//! Bit masks in place of activations that the backward pass reads only to know where gradients pass: the same
//! gradients, bit for bit, from 1/32 of the bytes.

use std::collections::BTreeMap;

use crate::support::close::assert_same_bits;
use crate::support::{both_classes, devices, noise, on_each, some_labels};
use wgrad::Bytes;
use wgrad::compile::{self, Plan, PlanOptions, Recompute, TrainStep};
use wgrad::device::Device;
use wgrad::dtype::Precision;
use wgrad::exec::{Debug, Eager, Session};
use wgrad::graph::{Params, Window};
use wgrad::limits::Limits;
use wgrad::memory::PoolOptions;
use wgrad::models::Model;
use wgrad::nn::{Conv2d, Linear};
use wgrad::optim::Sgd;
use wgrad::reference::Twin;
use wgrad::report::{kept, kept_bytes};

const SIDE: usize = 9;

/// Averages of functions that can be masked, over odd sizes: only their gradients read their results.
fn step(batch: usize, width: usize) -> TrainStep {
    let params = Params::new(3);
    let window = Window::square(3).padding(1);
    let conv = |name: &str, from| Conv2d::new(&params.scope(name), from, width, window);
    let (first, second, third) = (conv("first", 2), conv("second", width), conv("third", width));
    let last = Linear::new(&params.scope("last"), width, 5);
    let step = TrainStep::trace(&params, |trace| {
        let half = Window::square(2).stride(2);
        let x = trace.input("x", [batch, 2, SIDE, SIDE]).apply(&first).relu().avg_pool2d(half, true);
        let x = x.apply(&second).reshape([batch * width, 4, 4]).leaky_relu(0.1);
        let x = x.reshape([batch, width, 4, 4]).avg_pool2d(half, true);
        let x = x.apply(&third).clamp(-0.1, 0.3).mean(&[2, 3]).reshape([batch, width]);
        x.apply(&last).cross_entropy(&trace.labels("y", [batch], 5))
    });
    step.expect("valid")
}

fn options(bit_masks: bool) -> PlanOptions {
    let optimizer = Sgd { lr: 0.05, momentum: 0.5, ..Sgd::default() }.into();
    PlanOptions { optimizer, bit_masks, ..PlanOptions::default() }
}

fn inputs(plan: &Plan, at: u64) -> (Vec<f32>, Vec<u32>) {
    let labels = plan.graph().inputs().find(|(_, value)| value.name == "y").expect("labels");
    let samples = labels.1.shape.numel() as usize;
    (noise(at, samples * 2 * SIDE * SIDE, -1.0, 1.0), some_labels(at, samples, 5))
}

fn names(plan: &Plan) -> Vec<String> {
    plan.program.storages.iter().filter(|s| s.persistent).map(|s| s.name.clone()).collect()
}

fn run(device: &Device, plan: &Plan, debug: Debug) -> BTreeMap<String, Vec<f32>> {
    let mut session = Session::with_plans(device, &[plan], debug).expect("it opens");
    assert_eq!(session.device_bytes(), plan.footprint().total());
    for at in 0..3 {
        let (x, y) = inputs(plan, at);
        session.feed("x", &x).expect("valid");
        session.feed("y", &y).expect("valid");
        session.step().expect("it runs");
    }
    session.loss().expect("a finite loss");
    names(plan).into_iter().map(|n| (n.clone(), session.parameter(&n).expect("there"))).collect()
}

fn eagerly(device: &Device, plan: &Plan) -> BTreeMap<String, Vec<f32>> {
    let mut eager = Eager::new(device, plan, PoolOptions::default()).expect("it opens");
    for at in 0..3 {
        let (x, y) = inputs(plan, at);
        eager.feed("x", &x).expect("valid");
        eager.feed("y", &y).expect("valid");
        eager.step().expect("it runs");
    }
    names(plan).into_iter().map(|n| (n.clone(), eager.parameter(&n).expect("there"))).collect()
}

fn assert_same(what: &str, a: &BTreeMap<String, Vec<f32>>, b: &BTreeMap<String, Vec<f32>>) {
    a.iter().for_each(|(name, a)| assert_same_bits(&format!("{what}: {name}"), a, &b[name]));
}

fn masks(plan: &Plan) -> usize {
    plan.graph().nodes.iter().filter(|node| node.op.name() == "mask").count()
}

#[test]
fn gradients_with_bit_masks_are_bit_identical() {
    on_each(devices(), |device| {
        for limits in both_classes(device) {
            // 33 · 9 · 4 elements, whose last word is partial, and 32 · 8 · 4, whose words are all full.
            for (batch, width) in [(33, 9), (32, 8)] {
                let step = step(batch, width);
                let plan = |options: &PlanOptions| step.plan_over_budget(options, &limits).expect("planned");
                let wanted = run(device, &plan(&options(false)), Debug::default());
                let masked = plan(&options(true));
                assert_eq!(masks(&masked), 3, "{}", masked.graph());
                assert_same("masked", &wanted, &run(device, &masked, Debug { poison: true }));
                assert_same("eager", &wanted, &eagerly(device, &masked));
                for recompute in [Recompute::Policy, Recompute::Auto] {
                    let budget = Some(Bytes(1));
                    let again = plan(&PlanOptions { recompute, budget, ..options(true) });
                    assert_same(&format!("{recompute:?}"), &wanted, &run(device, &again, Debug::default()));
                }
            }
        }
    });
}

#[test]
fn bit_masks_with_accumulation_or_16_bits_are_bit_identical() {
    let step = step(33, 9);
    on_each(devices(), |device| {
        let plan = |options: &PlanOptions| step.plan(options, device.limits()).expect("planned");
        let parts = |bit_masks| plan(&PlanOptions { accumulate: 2, ..options(bit_masks) });
        assert_eq!(masks(&parts(true)), 6);
        let wanted = run(device, &parts(false), Debug::default());
        assert_same("in parts", &wanted, &run(device, &parts(true), Debug { poison: true }));
        for precision in [Precision::F16, Precision::Bf16] {
            let half = plan(&PlanOptions { precision, ..options(true) });
            assert_eq!(masks(&half), 3);
            let wanted = run(device, &half, Debug::default());
            assert_same("poisoned", &wanted, &run(device, &half, Debug { poison: true }));
            assert_same("eager", &wanted, &eagerly(device, &half));
        }
    });
}

#[test]
fn twin_gives_equal_gradients_with_bit_masks() {
    let limits = Limits::named("lavapipe").expect("a preset");
    let step = step(33, 9);
    let gradients = |bit_masks: bool| {
        let plan = step.plan(&options(bit_masks), &limits).expect("planned");
        let (x, y) = inputs(&plan, 0);
        let mut twin = Twin::new(plan.graph());
        twin.set_f32("x", &x).expect("valid");
        twin.set_u32("y", &y).expect("valid");
        twin.set_step(&plan.optimizer.expect("it trains").scalars(0, 0.05, plan.seed));
        twin.run().expect("it runs");
        names(&plan).iter().map(|name| twin.parameter(name).expect("there").to_vec()).collect::<Vec<_>>()
    };
    assert_eq!(gradients(false), gradients(true));
}

#[test]
fn masks_shrink_saved_bytes_by_32_and_the_lever_reports_it() {
    let limits = Limits::named("discrete").expect("a preset");
    let params = Params::new(0);
    // LeNet-5 with ReLUs: its convolutions and products read only averages of the ReLUs.
    let conv = |name: &str, from, to, window| Conv2d::new(&params.scope(name), from, to, window);
    let first = conv("conv1", 1, 6, Window::square(5).padding(2));
    let second = conv("conv2", 6, 16, Window::square(5));
    let linear = |name: &str, from, to| Linear::new(&params.scope(name), from, to);
    let (third, last) = (linear("fc1", 16 * 25, 120), linear("fc2", 120, 10));
    let half = Window::square(2).stride(2);
    let step = |batch: usize| {
        TrainStep::trace(&params, |trace| {
            let x = trace.input("x", [batch, 1, 28, 28]).apply(&first).relu().avg_pool2d(half, true);
            let x = x.apply(&second).relu().avg_pool2d(half, true).flatten(1);
            x.apply(&third).relu().apply(&last).cross_entropy(&trace.labels("y", [batch], 10))
        })
    };
    let batch = 1024;
    let traced = step(batch).expect("valid");
    let plan = |bit_masks: bool| traced.plan(&options(bit_masks), &limits).expect("planned");
    let (plain, masked) = (plan(false), plan(true));
    let [wide, narrow] = [6 * 28 * 28, 16 * 10 * 10].map(|elements| (batch * elements * 4) as u64);
    // ReLUs are fused into the operation before them. The ReLU of a product is read by the next product.
    let of =
        |plan: &Plan, op: &str| kept(plan).iter().find(|kept| kept.op == op).map_or(0, |kept| kept.bytes);
    let relus = |plan: &Plan| of(plan, "conv2d+relu") + of(plan, "relu");
    assert_eq!((relus(&plain), of(&plain, "mask")), (wide + narrow, 0), "{:?}", kept(&plain));
    assert_eq!((relus(&masked), of(&masked, "mask")), (0, (wide + narrow) / 32), "{:?}", kept(&masked));
    let saved = plain.footprint().total() - masked.footprint().total();
    let named = |levers: Vec<compile::Lever>| levers.into_iter().find(|lever| lever.name == "masks as bits");
    let lever =
        named(compile::levers(step, batch, &options(false), Bytes(1 << 20), &limits).expect("levers"));
    let lever = lever.expect("it saves");
    println!("kept {} and {}, created {saved} less", kept_bytes(&plain), kept_bytes(&masked));
    println!("{} of {}", masked.footprint().total(), plain.footprint().total());
    assert!(lever.exact && lever.saved_bytes == saved && saved > narrow, "{lever:?}, {saved}");
    // Here products read the results of the ReLUs, so masks save nothing.
    let model = Model::named("mlp", 0).expect("a model");
    let levers = compile::levers(|b| model.train_step(b), 128, &options(false), Bytes(1 << 20), &limits);
    assert!(named(levers.expect("levers")).is_none());
}
