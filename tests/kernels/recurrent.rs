//! Recurrent layers with states against PyTorch: `tests/golden/recurrent.py` has a case of each name.

use std::collections::BTreeMap;

use super::everywhere;
use crate::support::close::{Near, assert_close};
use crate::support::golden::{File, read, wide};
use wgrad::autodiff::differentiate;
use wgrad::compile::{PlanOptions, TrainStep};
use wgrad::exec::Session;
use wgrad::graph::{Init, Op, Params, Tensor};
use wgrad::limits::Limits;
use wgrad::nn::{Cell, Recurrent, RecurrentConfig, States};
use wgrad::optim::Sgd;
use wgrad::reference::Twin;
use wgrad::shape::Shape;

fn cases() -> [(&'static str, RecurrentConfig); 6] {
    let plain = RecurrentConfig::default();
    let deep = RecurrentConfig { layers: 2, bidirectional: true, ..plain };
    [
        ("lstm", deep),
        ("lstm_short", RecurrentConfig { bias: false, ..plain }),
        ("gru", RecurrentConfig { cell: Cell::Gru, ..deep }),
        ("gru_no_bias", RecurrentConfig { cell: Cell::Gru, bias: false, ..plain }),
        ("rnn", RecurrentConfig { cell: Cell::Rnn, bidirectional: true, ..plain }),
        ("rnn_relu", RecurrentConfig { cell: Cell::ReluRnn, layers: 2, ..plain }),
    ]
}

/// All cases in one step; the elements of the weights of layers by parameter.
fn step(file: &File) -> (TrainStep, BTreeMap<String, Vec<f32>>) {
    let params = Params::new(0);
    let mut weights = BTreeMap::new();
    let step = TrainStep::trace(&params, |trace| {
        let mut terms: Vec<Tensor> = Vec::new();
        for (name, config) in cases() {
            let own = params.scope(name);
            let given = |key: &str| {
                let (dims, data) = file.get(&format!("{name}/{key}"))?;
                let shape = Shape::try_new(dims).expect("few dimensions");
                Some(trace.param(&own.add(key, shape, Init::Data(data.as_slice().into()))))
            };
            let [x, hidden] = ["x", "h"].map(|key| given(key).expect("in the file"));
            let from = States { hidden, memory: given("c") };
            let size = from.hidden.dim(2);
            let (y, end) = Recurrent::new(&own, x.dim(2), size, config).run(&x, Some(&from));
            let mut results = vec![("y", y), ("hn", end.hidden)];
            results.extend(end.memory.map(|memory| ("cn", memory)));
            for (key, result) in results {
                let d = given(&format!("d{key}")).expect("in the file");
                assert_eq!(result.shape(), d.shape(), "{name}: {key}");
                terms.push(result.mul(&d).sum(&[]));
            }
        }
        terms.into_iter().reduce(|sum, term| sum.add(&term)).expect("cases")
    });
    for param in params.list() {
        let key = param.name().replacen('.', "/", 1);
        weights.insert(param.name().to_owned(), file[&key].1.clone());
    }
    (step.unwrap_or_else(|e| panic!("{e}")), weights)
}

/// What PyTorch has as the gradient of a parameter: that of the weights of a result is the result.
fn expected<'a>(file: &'a File, parameter: &str) -> &'a [f32] {
    let (case, name) = parameter.split_once('.').expect("a case");
    let key = match name {
        "dy" | "dhn" | "dcn" => format!("{case}/{}", &name[1..]),
        _ => format!("{case}/d/{name}"),
    };
    &file.get(&key).unwrap_or_else(|| panic!("{key} is not in the file")).1
}

#[test]
fn layers_with_states_match_pytorch() {
    let file = read("recurrent.safetensors");
    let (step, weights) = step(&file);
    let graph = step.graph().clone();
    let loss = graph.outputs[0].1;
    let (trace, gradients) = differentiate(graph, loss).expect("a scalar loss");
    let graph = trace.finish().expect("valid");
    let mut twin = Twin::new(&graph);
    weights.iter().for_each(|(name, data)| twin.set_f32(name, data).expect("a parameter"));
    twin.run().expect("the twin runs");
    assert_eq!(gradients.pairs.len(), weights.len());
    for (parameter, gradient) in &gradients.pairs {
        let name = &graph.value(*parameter).name;
        let found = twin.value(gradient.id().expect("valid")).expect("computed");
        for (i, (found, expected)) in found.iter().zip(expected(&file, name)).enumerate() {
            let error = (found - f64::from(*expected)).abs();
            assert!(error < 1e-6 * (1.0 + found.abs()), "{name} at {i}: {found}, PyTorch has {expected}");
        }
    }
    let optimizer = Sgd { lr: 0.0, momentum: 0.5, ..Sgd::default() }.into();
    let options = PlanOptions { optimizer, ..PlanOptions::default() };
    everywhere(|device, limits| {
        let plan = step.plan(&options, limits).expect("it fits");
        let mut session = Session::new(device, &plan).expect("a session opens");
        weights.iter().for_each(|(name, data)| session.set_parameter(name, data).expect("a parameter"));
        session.step().expect("the plan runs");
        for name in weights.keys() {
            // A momentum buffer after one step is the gradient.
            let found = session.parameter(&format!("{name}.momentum_buffer")).expect("momentum's state");
            let near = Near { rel: 2e-5, abs: 1e-5 };
            assert_close(&format!("gradient of {name}"), &found, &wide(expected(&file, name)), near);
        }
    });
}

/// A longer sequence takes a product and one kernel more for each step and pass; the rest moves parts of sequences.
#[test]
fn each_step_is_a_product_and_one_kernel() {
    let count = |cell: Cell, steps: usize| {
        let params = Params::new(0);
        let config = RecurrentConfig { cell, ..RecurrentConfig::default() };
        let layer = Recurrent::new(&params, 32, 64, config);
        let step = TrainStep::trace(&params, |trace| {
            let x = trace.input("x", [8, steps, 32]);
            layer.run(&x, None).0.mse(&trace.input("t", [8, steps, 64]))
        });
        let plan =
            step.and_then(|step| step.plan(&PlanOptions::default(), &Limits::default())).expect("planned");
        let moves = |op: &Op| matches!(op, Op::Slice { .. } | Op::Concat { .. } | Op::Reshape(_) | Op::Copy);
        plan.graph().nodes.iter().filter(|node| !moves(&node.op)).count()
    };
    for cell in [Cell::Lstm, Cell::Gru, Cell::Rnn] {
        let [short, long] = [10, 20].map(|steps| count(cell, steps));
        let each = match cell {
            // Backwards the gradient of the state has three terms.
            Cell::Gru => 5,
            Cell::Lstm => 4,
            // The product has the activation as an epilogue.
            _ => 3,
        };
        assert!(long - short <= 10 * each, "{cell:?}: {} kernels for 10 steps more", long - short);
    }
}
