//! Gradients: the twin's against central differences, without a device; every device's against the twin's.

use std::collections::BTreeMap;

use super::left_by_contraction;
use crate::support::cases::{self, Case};
use crate::support::close::assert_within;
use crate::support::compare::{device_gradients, kernels, twin_gradients};
use crate::support::{both_classes, devices, each_case, on_each};
use wgrad::autodiff::differentiate;
use wgrad::compile::TrainStep;
use wgrad::graph::{Graph, Init, Params, StepScalars, Tensor};
use wgrad::reference::Twin;

const SCALARS: StepScalars = StepScalars {
    learning_rate: 0.1,
    bias1: 1.0,
    sqrt_bias2: 1.0,
    step: 3,
    seed_low: 17,
    seed_high: 4,
    unscale: 1.0,
    skip: 0,
    gradient_share: 0.0,
};

fn twin<'a>(case: &Case, graph: &'a Graph) -> Twin<'a> {
    let mut twin = Twin::new(graph);
    twin.set_step(&SCALARS);
    for (name, data) in &case.labels {
        twin.set_u32(name, data).expect("valid labels");
    }
    twin
}

fn loss(case: &Case, changed: Option<(&str, &[f64])>) -> f64 {
    let mut twin = twin(case, case.step.graph());
    if let Some((name, data)) = changed {
        twin.set(name, data).expect("a parameter of the case");
    }
    twin.run().expect("the forward pass runs");
    twin.output("loss").expect("the first output")[0]
}

/// `f'(x) = (8 (f(x+h) - f(x-h)) - (f(x+2h) - f(x-2h))) / 12h`, with an error of order h⁴.
fn difference(case: &Case, name: &str, start: &[f64], i: usize) -> f64 {
    const H: f64 = 1e-4;
    let at = |step: f64| {
        let mut moved = start.to_vec();
        moved[i] += step * H;
        loss(case, Some((name, &moved)))
    };
    (8.0 * (at(1.0) - at(-1.0)) - (at(2.0) - at(-2.0))) / (12.0 * H)
}

#[test]
fn every_backward_rule_matches_central_differences() {
    let mut elements = 0;
    for case in cases::all() {
        let graph = case.step.graph().clone();
        let id = graph.outputs[0].1;
        let (trace, gradients) = differentiate(graph, id).expect("a scalar loss");
        let pairs: Vec<_> = gradients.pairs.iter().map(|(id, g)| (*id, g.id().expect("valid"))).collect();
        drop(gradients);
        let graph = trace.finish().expect("differentiating makes no mistakes");
        // A comparison has no slope, so a parameter that is used only in a comparison has no gradient.
        let without = case.params.list().len() - pairs.len();
        assert!(without == 0 || case.name.starts_with("greater"), "{}: a gradient is missing", case.name);
        let mut twin = twin(&case, &graph);
        twin.run().expect("the differentiated graph runs");
        for (param, gradient) in pairs {
            let name = &graph.value(param).name;
            assert_eq!(graph.value(param).shape, graph.value(gradient).shape, "{}: {name}", case.name);
            let start = twin.value(param).expect("parameters have values").to_vec();
            let found = twin.value(gradient).expect("it ran");
            let largest = found.iter().fold(0.0f64, |most, g| most.max(g.abs()));
            for (i, &found) in found.iter().enumerate() {
                let wanted = difference(&case, name, &start, i);
                let allowed = 1e-6 * (wanted.abs() + 0.1 * largest) + 1e-9;
                assert!(
                    (found - wanted).abs() <= allowed,
                    "{}: gradient {i} of {name} is {found:e}, differences say {wanted:e}",
                    case.name
                );
                elements += 1;
            }
        }
    }
    assert!(elements > 5000, "only {elements} elements were compared");
}

#[test]
fn gradients_of_every_device_match_the_twin() {
    each_case(cases::all(), true, |device, limits, case| {
        let (plan, found) = device_gradients(device, &case.step, limits, &case.labels);
        let wanted = twin_gradients(&plan, &case.labels);
        assert_eq!(found.len(), wanted.len());
        for (name, found) in found {
            let wanted = &wanted[&name];
            let largest = wanted.iter().fold(0.0f64, |most, g| most.max(g.abs()));
            let what = format!("{} ({}): {name}", case.name, limits.name);
            let rest = left_by_contraction(device);
            assert_within(&what, &found, wanted, |i| 2e-5 * wanted[i].abs() + 4e-6 * largest + 1e-7 + rest);
        }
    });
}

/// Returns the twin's gradients of `loss`, by name of the parameter.
fn gradients_of(params: &Params, step: &TrainStep) -> BTreeMap<String, Vec<f64>> {
    let graph = step.graph().clone();
    let id = graph.outputs[0].1;
    let (trace, gradients) = differentiate(graph, id).expect("a scalar loss");
    let pairs: Vec<_> = gradients.pairs.iter().map(|(id, g)| (*id, g.id().expect("valid"))).collect();
    drop(gradients);
    let graph = trace.finish().expect("valid");
    let mut twin = Twin::new(&graph);
    twin.run().expect("it runs");
    assert!(pairs.len() <= params.list().len());
    let named = |(param, g): (_, _)| (graph.value(param).name.clone(), twin.value(g).expect("ran").to_vec());
    pairs.into_iter().map(named).collect()
}

fn data(values: &[f32]) -> Init {
    Init::Data(values.into())
}

/// Where an activation is constant or linear its slope is 0 or 1, even if intermediate values are infinite.
#[test]
fn activation_slopes_far_from_zero_match_the_twin() {
    type Function = fn(&Tensor) -> Tensor;
    let functions: [(&str, Function); 6] = [
        ("gelu", |x| x.gelu()),
        ("gelu_tanh", |x| x.gelu_tanh()),
        ("silu", |x| x.silu()),
        ("sigmoid", |x| x.sigmoid()),
        ("tanh", |x| x.tanh()),
        ("leaky_relu", |x| x.leaky_relu(0.01)),
    ];
    for (name, f) in functions {
        let params = Params::new(0);
        let x = params.add("x", [6], data(&[-1e30, -1e20, -50.0, 50.0, 1e20, 1e30]));
        // Only the slopes matter; the scale keeps the sum of the losses finite.
        let step = TrainStep::trace(&params, |trace| f(&trace.param(&x)).scale(1e-10).sum(&[]));
        let step = step.expect("valid");
        on_each(devices(), |device| {
            for limits in both_classes(device) {
                let (plan, found) = device_gradients(device, &step, &limits, &BTreeMap::new());
                let wanted = &twin_gradients(&plan, &BTreeMap::new())["x.momentum_buffer"];
                assert_within(&format!("{name} ({})", limits.name), &found[0].1, wanted, |_| 1e-16);
            }
        });
    }
}

/// Where the derivative does not exist, the conventions are PyTorch's.
#[test]
fn gradients_at_kinks_and_ties_follow_pytorch() {
    let params = Params::new(0);
    let x = params.add("x", [4], data(&[-1.0, 0.0, 0.5, 1.0]));
    let tied = params.add("tied", [5], data(&[3.0, 1.0, 3.0, 3.0, 2.0]));
    let (a, b) = (params.add("a", [2], data(&[1.0, 2.0])), params.add("b", [2], data(&[1.0, 3.0])));
    let step = TrainStep::trace(&params, |trace| {
        let x = trace.param(&x);
        let kinks = x.relu().add(&x.abs()).add(&x.clamp(0.0, 0.5).scale(10.0)).sum(&[]);
        let ties = trace.param(&tied).max(&[0]).scale(6.0);
        let pairs = trace.param(&a).maximum(&trace.param(&b)).sum(&[]);
        kinks.add(&ties).add(&pairs)
    });
    let gradients = gradients_of(&params, &step.expect("valid"));
    assert_eq!(
        gradients["x"],
        [-1.0, 10.0, 12.0, 2.0],
        "relu and |x| are flat at 0, clamp passes at its ends"
    );
    assert_eq!(gradients["tied"], [2.0, 0.0, 2.0, 2.0, 0.0], "equal maxima share");
    assert_eq!(gradients["a"], [1.0, 0.0], "of two that are equal the first gets it");
    assert_eq!(gradients["b"], [0.0, 1.0]);
}

/// Values that the loss does not depend on have no gradient and add no operations.
#[test]
fn only_what_the_loss_depends_on_is_differentiated() {
    let params = Params::new(0);
    let used = params.add("used", [3], data(&[1.0, 2.0, 3.0]));
    let unused = params.add("unused", [3], data(&[1.0, 2.0, 3.0]));
    let step = TrainStep::trace(&params, |trace| {
        let aside = trace.param(&unused).exp();
        trace.output("aside", &aside);
        trace.param(&used).square().sum(&[])
    });
    let gradients = gradients_of(&params, &step.expect("valid"));
    assert_eq!(gradients.keys().collect::<Vec<_>>(), ["used"]);
    assert_eq!(gradients["used"], [2.0, 4.0, 6.0]);
}

/// The backward pass may not overwrite values that it still needs, however tight the memory.
#[test]
fn gradient_cases_use_in_place_kernels() {
    let limits = wgrad::limits::Limits::named("lavapipe").expect("a preset");
    let mut in_place = 0;
    for case in cases::all() {
        let plan =
            case.step.plan(&wgrad::compile::PlanOptions::default(), &limits).expect("it can be planned");
        in_place += kernels(&plan).iter().filter(|name| name.ends_with("_in_place")).count();
    }
    assert!(
        in_place > 100,
        "only {in_place} kernels run in place: the device tests above would prove little"
    );
}
