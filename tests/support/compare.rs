//! A graph with many results, run on a device and on the twin.

use std::collections::BTreeMap;

use wgrad::compile::{Forward, Plan, PlanOptions, TrainStep};
use wgrad::device::Device;
use wgrad::exec::{ProgramId, Session};
use wgrad::graph::{Params, Tensor, Trace};
use wgrad::limits::Limits;
use wgrad::optim::Sgd;
use wgrad::reference::Twin;
use wgrad::shape::Shape;

use super::close::{Near, ULP, assert_close, assert_same_bits, assert_within};

/// How the error of a result is bounded.
enum Bound {
    Near(Near),
    /// By the twin's value of another output, which is the same computation on magnitudes.
    Magnitudes {
        factor: f64,
    },
    /// By a function of the elements of one input.
    Of {
        input: String,
        bound: fn(f64, f64) -> f64,
    },
}

/// Inputs and expected results of one graph.
#[derive(Default)]
pub struct Batch {
    floats: BTreeMap<String, Vec<f32>>,
    labels: BTreeMap<String, Vec<u32>>,
    results: Vec<(String, Bound)>,
}

impl Batch {
    /// Adds an input that is fed `data`.
    pub fn input(&mut self, trace: &Trace, shape: impl Into<Shape>, data: Vec<f32>) -> Tensor {
        let name = format!("in{}", self.floats.len() + self.labels.len());
        let tensor = trace.input(&name, shape);
        self.floats.insert(name, data);
        tensor
    }

    /// Adds an input of class indices.
    pub fn labels(&mut self, trace: &Trace, shape: impl Into<Shape>, classes: u32, data: Vec<u32>) -> Tensor {
        let name = format!("in{}", self.floats.len() + self.labels.len());
        let tensor = trace.labels(&name, shape, classes);
        self.labels.insert(name, data);
        tensor
    }

    /// Adds an input of row numbers.
    pub fn ids(&mut self, trace: &Trace, shape: impl Into<Shape>, rows: u32, data: Vec<u32>) -> Tensor {
        let name = format!("in{}", self.floats.len() + self.labels.len());
        let tensor = trace.ids(&name, shape, rows);
        self.labels.insert(name, data);
        tensor
    }

    fn result(&mut self, name: &str, tensor: &Tensor, bound: Bound) {
        let name = format!("{name}#{}", self.results.len());
        // Outputs may have any rank from 0 to 6; only the names must differ.
        tensor.trace().output(&name, tensor);
        self.results.push((name, bound));
    }

    /// Expects the twin's values within `near`.
    pub fn expect(&mut self, name: &str, tensor: &Tensor, near: Near) {
        self.result(name, tensor, Bound::Near(near));
    }

    /// Expects the twin's values within `bound(x, y)` of the element `x` of an input and the true result `y`.
    pub fn expect_of(&mut self, name: &str, tensor: &Tensor, input: &Tensor, bound: fn(f64, f64) -> f64) {
        let input = input.trace().name_of(input.id().expect("a valid input"));
        self.result(name, tensor, Bound::Of { input, bound });
    }

    /// Expects a sum of `k` products within `4 ε √k` of the same sum over magnitudes (kernels' error bound).
    pub fn expect_sum(&mut self, name: &str, tensor: &Tensor, magnitudes: &Tensor, k: usize) {
        let factor = 4.0 * ULP * (k as f64).sqrt();
        self.result(name, tensor, Bound::Magnitudes { factor });
        let loose = Near { rel: 8.0 * ULP * (k as f64).sqrt(), abs: 0.0 };
        self.expect(&format!("{name}'s magnitudes"), magnitudes, loose);
    }

    /// Keeps an input alive to the end and checks that nothing wrote over it.
    pub fn keep(&mut self, input: &Tensor) {
        self.expect("kept input", input, super::close::EXACT);
    }
}

/// Runs a graph of many results on `device`, planned for `limits` without fusion, and on the twin. Returns
/// the plan.
#[track_caller]
pub fn compare(device: &Device, limits: &Limits, build: impl FnOnce(&Trace, &mut Batch)) -> Plan {
    let (forward, batch) = traced(build);
    let plan = forward.plan_unfused(limits).expect("the test's graph can be planned");
    run(device, &plan, &batch);
    plan
}

/// Like [`compare`], but with fusion, which must give the same bits.
#[track_caller]
pub fn compare_fused(device: &Device, limits: &Limits, build: impl FnOnce(&Trace, &mut Batch)) -> Plan {
    let (forward, batch) = traced(build);
    let apart = forward.plan_unfused(limits).expect("the test's graph can be planned");
    let plan = forward.plan(limits).expect("the test's graph can be planned");
    let wanted = run(device, &apart, &batch);
    for ((name, wanted), (_, found)) in wanted.iter().zip(run(device, &plan, &batch)) {
        assert_same_bits(name, wanted, &found);
    }
    plan
}

#[track_caller]
fn traced(build: impl FnOnce(&Trace, &mut Batch)) -> (Forward, Batch) {
    let mut batch = Batch::default();
    let forward = Forward::trace(&Params::new(1), "unused", |trace| {
        build(trace, &mut batch);
        trace.input("unused input", [1]).scale(1.0)
    });
    batch.floats.insert("unused input".to_owned(), vec![0.0]);
    (forward.expect("the test's graph is valid"), batch)
}

/// Runs a plan on the device and on the twin, and returns the device's results once they are near enough.
#[track_caller]
fn run(device: &Device, plan: &Plan, batch: &Batch) -> Vec<(String, Vec<f32>)> {
    let mut results = Vec::new();
    let mut session = Session::new(device, plan).expect("a session opens");
    session.set_accept_non_finite(true);
    let mut twin = Twin::new(plan.graph());
    for (name, data) in &batch.floats {
        session.feed(name, data).expect("a valid input");
        twin.set_f32(name, data).expect("a valid input");
    }
    for (name, data) in &batch.labels {
        session.feed(name, data).expect("valid labels");
        twin.set_u32(name, data).expect("valid labels");
    }
    session.step().expect("the plan runs");
    twin.run().expect("the twin runs");
    for (i, (name, bound)) in batch.results.iter().enumerate() {
        let actual: Vec<f32> = session.output(ProgramId(0), name).expect("a declared output");
        let expected = twin.output(name).expect("a declared output");
        match bound {
            Bound::Near(near) => assert_close(name, &actual, expected, *near),
            Bound::Magnitudes { factor } => {
                let magnitudes = twin.output(&batch.results[i + 1].0).expect("declared with the result");
                assert_within(name, &actual, expected, |i| factor * magnitudes[i]);
            }
            Bound::Of { input, bound } => {
                let x = &batch.floats[input];
                assert_within(name, &actual, expected, |i| bound(f64::from(x[i % x.len()]), expected[i]));
            }
        }
        results.push((name.clone(), actual));
    }
    results
}

/// Returns the names of the kernels that a plan launches.
pub fn kernels(plan: &Plan) -> Vec<String> {
    plan.program.launches.iter().map(|(launch, _)| launch.kernel.name.to_string()).collect()
}

/// Returns the exact gradients of a model's loss on a device: a momentum buffer after one step is the
/// gradient.
pub fn device_gradients(
    device: &Device,
    step: &TrainStep,
    limits: &Limits,
    labels: &BTreeMap<&str, Vec<u32>>,
) -> (Plan, Vec<(String, Vec<f32>)>) {
    let optimizer = Sgd { lr: 0.0, momentum: 0.5, ..Sgd::default() }.into();
    let options = PlanOptions { optimizer, ..PlanOptions::default() };
    let plan = step.plan(&options, limits).expect("the test's graph can be planned");
    let gradients = gradients_of(device, &plan, labels);
    (plan, gradients)
}

/// Returns the gradients of a plan whose optimizer has momentum.
pub fn gradients_of(
    device: &Device,
    plan: &Plan,
    labels: &BTreeMap<&str, Vec<u32>>,
) -> Vec<(String, Vec<f32>)> {
    let mut session = Session::new(device, plan).expect("a session opens");
    session.set_accept_non_finite(true);
    for (name, data) in labels {
        session.feed(name, data).expect("valid labels");
    }
    let loss = session.step().and_then(|()| session.loss());
    let states: Vec<String> = plan
        .program
        .storages
        .iter()
        .map(|s| s.name.clone())
        .filter(|n| n.ends_with(".momentum_buffer"))
        .collect();
    let read = |name: String| {
        let data = session.parameter(&name).expect("optimizer state");
        (name, data)
    };
    let gradients: Vec<(String, Vec<f32>)> = states.into_iter().map(read).collect();
    // Where a test feeds NaN, the gradients have it as well.
    let fed_nan = gradients.iter().any(|(_, data)| data.iter().any(|x| x.is_nan()));
    assert!(loss.is_ok() || fed_nan && matches!(loss, Err(wgrad::Error::LossNotFinite { .. })), "{loss:?}");
    gradients
}

/// Returns the twin's gradients of the same plan.
pub fn twin_gradients(plan: &Plan, labels: &BTreeMap<&str, Vec<u32>>) -> BTreeMap<String, Vec<f64>> {
    let mut twin = Twin::new(plan.graph());
    for (name, data) in labels {
        twin.set_u32(name, data).expect("valid labels");
    }
    let optimizer = plan.optimizer.expect("a training plan");
    twin.set_step(&optimizer.scalars(0, 0.0, plan.seed));
    twin.run().expect("the twin runs");
    let states = plan.graph().values.iter().filter(|v| v.name.ends_with(".momentum_buffer"));
    states.map(|v| (v.name.clone(), twin.parameter(&v.name).expect("there").to_vec())).collect()
}
