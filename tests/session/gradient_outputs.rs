//! Gradients and parts of the loss that the host reads, in every kind of plan, compared with central differences.

use std::collections::BTreeMap;

use crate::support::{devices, noise, on_each};
use wgrad::Error;
use wgrad::compile::{Forward, PlanOptions, Recompute, TrainStep};
use wgrad::dtype::{Precision, Rounding, WeightStorage};
use wgrad::exec::{ProgramId, Session};
use wgrad::graph::{Init, LossScale, Params, Tensor, Trace};
use wgrad::limits::Limits;
use wgrad::optim::{Clip, Optimizer, Sgd};
use wgrad::reference::Twin;

const ROWS: usize = 8;
const WIDTH: usize = 6;
const HIDDEN: usize = 160;

/// Registers a table that is trained, one that is frozen, a scalar, and one that the loss does not depend on.
fn params() -> Params {
    let params = Params::new(3);
    params.scope("fc1").add("weight", [WIDTH, HIDDEN], Init::Normal(0.5));
    params.scope("fc2").add("weight", [HIDDEN, WIDTH], Init::Normal(0.3));
    params.add("scale", [], Init::Constant(0.7));
    params.add("unused", [5], Init::Constant(1.0));
    params.freeze("fc2.*").expect("there");
    params
}

/// The loss of `rows` rows, a sum of two parts, with outputs of its parts and of gradients.
fn loss(params: &Params, trace: &Trace, rows: usize) -> Tensor {
    let [w1, w2, scale, unused] = &params.list()[..] else { panic!("four parameters") };
    let x = trace.input("x", [rows, WIDTH]);
    let h = trace.layer("fc1", || x.matmul(&trace.param(w1)).tanh());
    let y = h.matmul(&trace.param(w2)).mul(&trace.param(scale));
    let (fit, size) = ((&y - &x).square().mean(&[]), h.square().mean(&[]).scale(0.1));
    trace.output("fit", &fit);
    trace.output("size", &size);
    for param in [w1, w2, scale, unused] {
        trace.output_gradient(&format!("{}.grad", param.name()), &trace.param(param));
    }
    trace.output_gradient("x.grad", &x);
    trace.output_gradient("h.grad", &h);
    trace.output_gradient_norm("norm");
    fit.add(&size)
}

/// A rate of 0 keeps all parameters as they are.
fn still() -> PlanOptions {
    let optimizer: Optimizer = Sgd { lr: 0.0, ..Sgd::default() }.into();
    PlanOptions { optimizer, ..PlanOptions::default() }
}

fn x() -> Vec<f32> {
    noise(1, ROWS * WIDTH, -1.0, 1.0)
}

/// Returns all outputs but `h.grad`, computed without differentiation.
fn expected() -> BTreeMap<String, Vec<f64>> {
    let params = params();
    let graph =
        Forward::trace(&params, "loss", |trace| loss(&params, trace, ROWS)).expect("valid").graph().clone();
    let mut twin = Twin::new(&graph);
    let x: Vec<f64> = x().into_iter().map(f64::from).collect();
    let mut run = |changed: Option<(&str, &[f64])>, output: &str| -> f64 {
        twin.set("x", &x).expect("there");
        if let Some((name, data)) = changed {
            twin.set(name, data).expect("there");
        }
        twin.run().expect("it runs");
        twin.output(output).expect("there")[0]
    };
    let mut all: BTreeMap<String, Vec<f64>> =
        ["loss", "fit", "size"].map(|name| (name.to_owned(), vec![run(None, name)])).into();
    let start = params.list().into_iter().map(|param| {
        let start = param.initial(0..u64::MAX).into_iter().map(f64::from).collect();
        (param.name().to_owned(), start)
    });
    for (name, start) in start.chain([("x".to_owned(), x.clone())]).collect::<Vec<(String, Vec<f64>)>>() {
        let slopes = (0..start.len()).map(|i| {
            let mut at = |step: f64| {
                let mut moved = start.clone();
                moved[i] += step;
                run(Some((&name, &moved)), "loss")
            };
            if name == "unused" { 0.0 } else { (at(1e-5) - at(-1e-5)) / 2e-5 }
        });
        all.insert(format!("{name}.grad"), slopes.collect());
        if name != "unused" {
            run(Some((&name, &start)), "loss");
        }
    }
    let trained = ["fc1.weight.grad", "scale.grad"].map(|name| all[name].iter().map(|g| g * g).sum::<f64>());
    all.insert("norm".to_owned(), vec![trained.iter().sum::<f64>().sqrt()]);
    all
}

#[test]
fn outputs_of_every_plan_are_the_gradients() {
    let expected = expected();
    let scaled = Some(LossScale { start: 1024.0, ..LossScale::default() });
    let clip = Clip::Norm(1e-3);
    let variants = [
        ("plain", still(), 1e-4),
        ("unoptimized", PlanOptions { rebuild: false, fuse: false, reuse: false, ..still() }, 1e-4),
        ("clipped", PlanOptions { clip, ..still() }, 1e-4),
        ("scaled", PlanOptions { loss_scale: scaled, ..still() }, 1e-4),
        ("scaled and clipped", PlanOptions { loss_scale: scaled, clip: Clip::Value(1e-3), ..still() }, 1e-4),
        ("in parts", PlanOptions { accumulate: 4, loss_scale: scaled, clip, ..still() }, 1e-4),
        ("recomputed", PlanOptions { recompute: Recompute::Every(1), accumulate: 2, ..still() }, 1e-4),
        ("in 16 bits", PlanOptions { precision: Precision::Bf16, clip, loss_scale: scaled, ..still() }, 0.02),
        ("weights", PlanOptions { weights: WeightStorage::Bf16(Rounding::Nearest), ..still() }, 0.03),
    ];
    on_each(devices(), |device| {
        for (variant, options, within) in &variants {
            let rows = ROWS / options.accumulate as usize;
            let params = params();
            let step = TrainStep::trace(&params, |trace| loss(&params, trace, rows)).expect("valid");
            let plan = step.plan(options, device.limits()).expect("planned");
            let mut session = Session::new(device, &plan).expect("it opens");
            session.feed("x", &x()).expect("valid");
            session.step().expect("it runs");
            for (name, wanted) in &expected {
                let found: Vec<f32> = session.output(ProgramId(0), name).expect("there");
                assert_eq!(found.len(), wanted.len(), "{variant}: {name}");
                let length = wanted.iter().map(|x| x * x).sum::<f64>().sqrt();
                let apart =
                    found.iter().zip(wanted).map(|(a, b)| (f64::from(*a) - b).powi(2)).sum::<f64>().sqrt();
                assert!(apart <= within * length, "{variant}: {name} is {apart} of {length} apart");
            }
            let h: Vec<f32> = session.output(ProgramId(0), "h.grad").expect("there");
            assert!(h.len() == ROWS * HIDDEN && h.iter().any(|g| *g != 0.0), "{variant}");
        }
    });
}

#[test]
fn mistakes_with_gradient_outputs_are_errors() {
    let params = params();
    let step = TrainStep::trace(&params, |trace| {
        trace.output_gradient("y.grad", &trace.labels("y", [4], 3));
        trace.output_gradient_norm("fit");
        loss(&params, trace, 4)
    });
    let text = step.expect_err("two mistakes").to_string();
    assert!(
        text.contains("gradient `y.grad`: integers [4]") && text.contains("`fit` is declared twice"),
        "{text}"
    );
}

/// A forward pass has no gradients; a step that trains nothing has those that are asked for.
#[test]
fn forward_passes_have_none_and_frozen_steps_have_those_of_inputs() {
    let params = params();
    let forward = Forward::trace(&params, "loss", |trace| loss(&params, trace, 4)).expect("valid");
    let plan = forward.plan(&Limits::default()).expect("planned");
    assert_eq!(plan.graph().outputs.len(), 3);
    params.freeze("*").expect("there");
    let step = TrainStep::trace(&params, |trace| loss(&params, trace, ROWS)).expect("valid");
    let options = PlanOptions { loss_scale: Some(LossScale::default()), clip: Clip::Norm(1.0), ..still() };
    let plan = step.plan(&options, &Limits::default()).expect("planned");
    let mut twin = Twin::new(plan.graph());
    twin.set_f32("x", &x()).expect("there");
    twin.set_step(&options.optimizer.scalars(0, 0.0, 0));
    twin.run().expect("it runs");
    assert_eq!(twin.output("norm").expect("there"), [0.0]);
    let (found, expected) = (twin.output("x.grad").expect("there"), &expected()["x.grad"]);
    assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6));
    assert!(matches!(twin.output("z.grad"), Err(Error::Unknown { .. })));
}
