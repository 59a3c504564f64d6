//! Whole steps of resnet50 and gpt2 at their full size: planned and eager agree. Minutes on a software adapter, so
//! they are run by hand: `cargo test --release --features full --test session full_size -- --ignored --nocapture`.

use std::time::Instant;

use crate::support::{devices, noise, some_labels};
use wgrad::compile::{Plan, PlanOptions};
use wgrad::device::Device;
use wgrad::exec::{Eager, ProgramId, Session};
use wgrad::graph::Indices;
use wgrad::memory::PoolOptions;
use wgrad::models::{Model, ModelOptions};
use wgrad::{Bytes, random};

/// Returns the inputs by name: numbers, or indices below those that there are.
fn inputs(plan: &Plan) -> Vec<(String, Vec<f32>, Vec<u32>)> {
    let fed = plan.graph().inputs().filter(|(_, value)| ["x", "y"].contains(&&*value.name));
    let one = |value: &wgrad::graph::Value| {
        let n = value.shape.numel() as usize;
        match value.indices {
            Some(Indices::Labels(below) | Indices::Ids(below)) => (Vec::new(), some_labels(7, n, below)),
            None => (noise(7, n, 0.0, 1.0), Vec::new()),
        }
    };
    fed.map(|(_, value)| (value.name.clone(), one(value))).map(|(name, (x, y))| (name, x, y)).collect()
}

/// Returns a hash of the bits.
fn digest(words: &[f32]) -> u64 {
    words.iter().fold(0, |hash, word| random::mix(hash ^ u64::from(word.to_bits())))
}

fn compare(device: &Device, name: &str, batch: usize, options: &ModelOptions) {
    let step = Model::with_options(name, 0, options).expect("a model").train_step(batch).expect("valid");
    let plan = step.plan(&PlanOptions::default(), device.limits()).expect("it fits");
    let names: Vec<String> = plan.graph().parameters.iter().map(|param| param.name().to_string()).collect();
    let inputs = inputs(&plan);
    let start = Instant::now();
    let (planned, loss, bytes) = {
        let mut session = Session::new(device, &plan).expect("it opens");
        for (name, x, y) in &inputs {
            match y.is_empty() {
                true => session.feed(name, x).expect("fed"),
                false => session.feed(name, y).expect("fed"),
            }
        }
        session.run(ProgramId(0)).expect("it runs");
        let loss = session.loss().expect("a loss");
        let all: Vec<u64> =
            names.iter().map(|name| digest(&session.parameter(name).expect("there"))).collect();
        (all, loss, session.device_bytes())
    };
    let (between, dispatches) = (start.elapsed(), plan.program.launches.len());
    let mut eager = Eager::new(device, &plan, PoolOptions::default()).expect("it opens");
    for (name, x, y) in &inputs {
        match y.is_empty() {
            true => eager.feed(name, x).expect("fed"),
            false => eager.feed(name, y).expect("fed"),
        }
    }
    eager.step().expect("it runs");
    let output = &plan.graph().outputs[0].0;
    assert_eq!(eager.output::<f32>(output).expect("a loss")[0].to_bits(), loss.to_bits(), "{name}: the loss");
    for (name, digested) in names.iter().zip(&planned) {
        assert_eq!(digest(&eager.parameter(name).expect("there")), *digested, "{name}: the parameter {name}");
    }
    let (adapter, eager) = (&device.adapter().name, start.elapsed() - between);
    eprintln!(
        "{name} · {batch} · {adapter}: loss {loss}, {} created, {dispatches} dispatches, planned {between:.1?}, eager {eager:.1?}",
        Bytes(bytes)
    );
}

/// On the adapters whose bindings hold the largest tensors: gpt2's embedding table has 147 MiB.
#[test]
#[ignore = "takes minutes"]
fn gpt2_and_resnet50_run_at_full_size() {
    let mut large = devices().iter().filter(|device| device.limits().max_binding >= 1 << 30).peekable();
    assert!(large.peek().is_some(), "no adapter here has bindings of 1 GiB");
    for device in large {
        compare(device, "resnet50", 8, &ModelOptions { image: Some([224; 2]), ..ModelOptions::default() });
        compare(device, "gpt2", 1, &ModelOptions { seq: Some(256), ..ModelOptions::default() });
    }
}
