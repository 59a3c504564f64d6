//! Networks from ONNX files: answers of onnxruntime, losses of PyTorch, and files that are damaged.

use wgrad::compile::PlanOptions;
use wgrad::exec::{ProgramId, Session};
use wgrad::graph::Params;
use wgrad::limits::Limits;
use wgrad::onnx::{Dimension, Loss, Network, Sizes};
use wgrad::optim::Sgd;
use wgrad::random;

use crate::support::{devices, golden, on_each};

fn network(name: &str) -> Network {
    Network::read(golden::path(&format!("onnx_{name}.onnx"))).expect("a network")
}

fn batch(batch: usize) -> Sizes {
    Sizes { batch: Some(batch), ..Sizes::default() }
}

#[test]
fn outputs_match_onnxruntime() {
    let file = golden::read("onnx.safetensors");
    on_each(devices(), |device| {
        for (name, rows) in [("convolutions", 4), ("tokens", 2)] {
            let (x, wanted) = (&file[&format!("{name}.x")].1, &file[&format!("{name}.y")].1);
            let forward = network(name).inference(&Params::new(0), &batch(rows)).expect("it fits together");
            let plan = forward.plan(device.limits()).expect("planned");
            let mut session = Session::new(device, &plan).expect("it opens");
            match name {
                "tokens" => session.feed("x", &golden::integers(x)).expect("ids"),
                _ => session.feed("x", x).expect("numbers"),
            }
            session.run(ProgramId(0)).expect("it runs");
            let y = session.output::<f32>(ProgramId(0), "y").expect("an output");
            assert_eq!(y.len(), wanted.len());
            let worst = y.iter().zip(wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(worst < 1e-5, "{name}: {worst}");
        }
    });
}

/// Recurrent layers, rows by index, sequences and pools with dilations; the loss over all of them can be trained.
#[test]
fn single_nodes_match_onnxruntime() {
    let file = golden::read("onnx.safetensors");
    on_each(devices(), |device| {
        let (network, params) = (network("nodes"), Params::new(0));
        let step = network.train_step(&params, &Sizes::default(), |_, outputs| {
            let squares: Vec<_> = outputs.iter().map(|(_, y)| y.square().mean(&[])).collect();
            squares[1..].iter().fold(squares[0].clone(), |sum, square| sum.add(square))
        });
        let options =
            PlanOptions { optimizer: Sgd { lr: 0.02, ..Sgd::default() }.into(), ..PlanOptions::default() };
        let step = step.expect("it fits together").plan(&options, device.limits()).expect("planned");
        let forward = network.inference(&params, &Sizes::default()).expect("it fits together");
        let forward = forward.plan(device.limits()).expect("planned");
        let mut session =
            Session::with_plans(device, &[&step, &forward], wgrad::exec::Debug::default()).expect("it opens");
        for program in [ProgramId(0), ProgramId(1)] {
            session.feed_to(program, "x", &file["nodes.x"].1).expect("numbers");
        }
        session.run(ProgramId(1)).expect("it runs");
        for port in network.outputs() {
            let wanted = &file[&format!("nodes.{}", port.name)].1;
            let y = session.output::<f32>(ProgramId(1), &port.name).expect("an output");
            assert_eq!(y.len(), wanted.len(), "{}", port.name);
            let worst = y.iter().zip(wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(worst < 1e-5, "{}: {worst}", port.name);
        }
        let losses: Vec<f32> =
            (0..5).map(|_| session.step().and_then(|()| session.loss()).expect("finite")).collect();
        assert!(losses.is_sorted_by(|before, after| after < before), "{losses:?}");
    });
}

/// Nodes `Attention` of opset 23; what is not computed is named.
#[test]
fn attention_nodes_match_onnxruntime() {
    let file = golden::read("onnx_attention.safetensors");
    let network = network("attention");
    on_each(devices(), |device| {
        let forward = network.inference(&Params::new(0), &Sizes::default()).expect("it fits together");
        let plan = forward.plan(device.limits()).expect("planned");
        let mut session = Session::new(device, &plan).expect("it opens");
        for name in ["x", "flat"] {
            session.feed(name, &file[name].1).expect("numbers");
        }
        session.run(ProgramId(0)).expect("it runs");
        for name in ["full", "grouped", "biased", "masked", "capped"] {
            let y = session.output::<f32>(ProgramId(0), name).expect("an output");
            let wanted = &file[name].1;
            assert_eq!(y.len(), wanted.len(), "{name}");
            let worst = y.iter().zip(wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(worst < 1e-5, "{name}: {worst}");
        }
    });
    let mut bytes = std::fs::read(golden::path("onnx_attention.onnx")).expect("committed");
    let at = bytes.windows(11).position(|window| window == b"q_num_heads").expect("an attribute");
    bytes[at..at + 11].copy_from_slice(b"q_num_headz");
    let network = Network::from_bytes(&bytes).expect("a network");
    let error = network.inference(&Params::new(0), &Sizes::default()).expect_err("no heads").to_string();
    assert!(error.contains("Attention `masked`") && error.contains("q_num_heads 0"), "{error}");
}

#[test]
fn nodes_with_unsupported_attributes_say_so() {
    let whole = std::fs::read(golden::path("onnx_nodes.onnx")).expect("committed");
    let find = |text: &str, from: usize| {
        let at = whole[from..].windows(text.len()).position(|window| window == text.as_bytes());
        from + at.unwrap_or_else(|| panic!("no `{text}`"))
    };
    for (at, to, wanted) in [
        (find("bidirectional", 0), "bidirectionel", "LSTM `LSTM0`: direction `bidirectionel`"),
        (find("Relu", 0), "Selu", "RNN `RNN3`: activation `Selu`: Sigmoid, Tanh and Relu are computed"),
        (find("add", find("reduction", 0)), "mul", "elements are replaced (\"none\") or added (\"add\")"),
        (find("SequenceAt\n", 0), "SequenceOf", "SequenceOf (1, such as `SequenceAt11`)"),
    ] {
        let mut bytes = whole.clone();
        bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
        let network = Network::from_bytes(&bytes);
        let error = network.and_then(|network| network.inference(&Params::new(0), &Sizes::default()));
        let error = error.err().unwrap_or_else(|| panic!("`{to}` is accepted")).to_string();
        assert!(error.contains(wanted), "{error}");
    }
}

/// Batch norm is in training mode and its running statistics are updated; they are no trained parameters.
#[test]
fn losses_match_pytorch() {
    let file = golden::read("onnx.safetensors");
    on_each(devices(), |device| {
        let (network, params) = (network("convolutions"), Params::new(0));
        let step = network
            .train_step(&params, &batch(4), |trace, outputs| network.loss(&Loss::default(), trace, outputs));
        let optimizer = Sgd { lr: 0.1, momentum: 0.9, ..Sgd::default() }.into();
        let options = PlanOptions { optimizer, ..PlanOptions::default() };
        let plan = step.expect("it fits together").plan(&options, device.limits()).expect("planned");
        let mut session = Session::new(device, &plan).expect("it opens");
        let before = session.parameter("bn1.running_mean").expect("a buffer");
        for wanted in &file["convolutions.losses"].1 {
            session.feed("x", &file["convolutions.x"].1).expect("numbers");
            session.feed("labels", &golden::integers(&file["convolutions.labels"].1)).expect("labels");
            session.step().expect("it runs");
            let loss = session.loss().expect("finite");
            assert!((loss - wanted).abs() < 1e-4 * wanted.abs().max(1.0), "{loss}, PyTorch has {wanted}");
        }
        assert_ne!(session.parameter("bn1.running_mean").expect("a buffer"), before);
        // Parameters have the names of the file and are shared by its other plans.
        let forward = network.inference(&params, &batch(2)).expect("it fits together");
        let forward = forward.plan(device.limits()).expect("planned");
        Session::with_plans(device, &[&plan, &forward], wgrad::exec::Debug::default()).expect("it opens");
    });
}

#[test]
fn inputs_and_open_dimensions_are_described() {
    let tokens = network("tokens");
    let inputs = tokens.inputs();
    assert_eq!(inputs.len(), 1);
    assert!(inputs[0].integer && inputs[0].below == Some(50), "{inputs:?}");
    assert!(matches!(inputs[0].dims[..], [Dimension::Named(_), Dimension::Fixed(12)]), "{inputs:?}");
    let error = tokens.inference(&Params::new(0), &Sizes::default()).expect_err("no batch").to_string();
    assert!(error.contains("dimension 0 of input `x` is open") && error.contains("`x.0`"), "{error}");
    let error = Network::read("/no/such/file.onnx").expect_err("no file").to_string();
    assert!(error.contains("/no/such/file.onnx"), "{error}");
    let loss = Loss::Output("z".to_owned());
    let step = tokens.train_step(&Params::new(0), &batch(2), |trace, y| tokens.loss(&loss, trace, y));
    let error = step.expect_err("no such output").to_string();
    assert!(error.contains("there is no output `z`; known: y"), "{error}");
}

/// Truncated and changed files are errors or networks, never a panic.
#[test]
fn damaged_files_do_not_panic() {
    let key = random::key(0, "damaged");
    for name in ["convolutions", "tokens", "nodes"] {
        let whole = std::fs::read(golden::path(&format!("onnx_{name}.onnx"))).expect("committed");
        for i in 0..600 {
            let draw = |n: u64, below: usize| (random::bits(key, i * 8 + n) % below as u64) as usize;
            let mut bytes = whole.clone();
            if i % 5 == 0 {
                bytes.truncate(draw(0, whole.len()));
            } else {
                // Half of the changes are in the nodes, which come before the weights or after them.
                for n in 0..1 + i % 3 {
                    let edge = 4096.min(whole.len());
                    let at = match draw(n * 2 + 1, 3) {
                        0 => draw(n * 2, whole.len()),
                        1 => draw(n * 2, edge),
                        _ => whole.len() - 1 - draw(n * 2, edge),
                    };
                    bytes[at] = draw(n + 5, 256) as u8;
                }
            }
            let Ok(network) = Network::from_bytes(&bytes) else { continue };
            let params = Params::new(0);
            let sizes = if network.fixed_batch().is_some() { Sizes::default() } else { batch(2) };
            let step = network
                .train_step(&params, &sizes, |trace, outputs| network.loss(&Loss::default(), trace, outputs));
            if let Ok(step) = step {
                drop(step.plan(&PlanOptions::default(), &Limits::default()));
            }
        }
    }
}
