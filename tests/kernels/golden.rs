//! Results of PyTorch, reproduced on every adapter. `golden/generate.py` made the files and documents their
//! names.

use std::collections::BTreeMap;

use crate::support::close::{Near, assert_close};
use crate::support::compare::device_gradients;
use crate::support::golden::{integers, read, wide};
use crate::support::{both_classes, devices, on_each};
use wgrad::compile::{Forward, PlanOptions, TrainStep};
use wgrad::exec::{ProgramId, Session};
use wgrad::graph::{Attention, Init, Params, Tensor, Trace};
use wgrad::models::Mlp;
use wgrad::nn::Module;
use wgrad::optim::{
    Adafactor, Adagrad, Adam, Adam4bit, Adam8bit, AdamMini, AdamW, Apollo, Clip, Lion, Muon, NAdam,
    Optimizer, RAdam, RmsProp, Sgd,
};
use wgrad::shape::Shape;

/// Applies the operation of this name to its operands.
fn apply(op: &str, x: &[Tensor], labels: Option<&Tensor>) -> Tensor {
    let first = &x[0];
    let axes = |label: &str| match label {
        "02" => vec![0, 2],
        "1" => vec![1],
        _ => vec![],
    };
    match op {
        "neg" => first.neg(),
        "scale" => first.scale(-1.75),
        "relu" => first.relu(),
        "leaky_relu" => first.leaky_relu(0.01),
        "sigmoid" => first.sigmoid(),
        "tanh" => first.tanh(),
        "gelu" => first.gelu(),
        "gelu_tanh" => first.gelu_tanh(),
        "silu" => first.silu(),
        "exp" => first.exp(),
        "log" => first.log(),
        "sqrt" => first.sqrt(),
        "abs" => first.abs(),
        "clamp" => first.clamp(-0.5, 0.7),
        "softmax" => first.softmax(),
        "log_softmax" => first.log_softmax(),
        "matmul" | "bmm" | "bmm_shared" => first.matmul(&x[1]),
        "matmul_ta" | "bmm_ta" => first.matmul_transposed(&x[1], true, false),
        "matmul_tb" | "bmm_tb" => first.matmul_transposed(&x[1], false, true),
        "matmul_ta_tb" => first.matmul_transposed(&x[1], true, true),
        "transpose" => first.transpose(0, 1),
        "permute_201" => first.permute(&[2, 0, 1]),
        "slice" => first.slice(0, 1..3).slice(2, 2..5),
        "concat_1" => first.concat(&[&x[1], &x[2]], 1),
        "concat_last" => first.concat(&[&x[1]], 1),
        "cross_entropy" => first.cross_entropy(labels.expect("the file has labels")),
        "mse_loss" => first.mse(&x[1]),
        "bce_with_logits" => first.bce_with_logits(&x[1]),
        _ => match op.split_once('_') {
            Some(("sum", label)) => first.sum(&axes(label)),
            Some(("mean", label)) => first.mean(&axes(label)),
            Some(("max", label)) => first.max(&axes(label)),
            Some(("add", _)) => first.add(&x[1]),
            Some(("sub", _)) => first.sub(&x[1]),
            Some(("mul", _)) => first.mul(&x[1]),
            Some(("div", _)) => first.div(&x[1]),
            _ => panic!("the file has an operation `{op}` that this test does not know"),
        },
    }
}

#[test]
fn operations_and_gradients_match_pytorch() {
    let file = read("ops.safetensors");
    let names: Vec<&str> = file.keys().filter_map(|key| key.strip_suffix("/y")).collect();
    assert!(names.len() >= 50, "only {} operations in the file", names.len());
    for op in names {
        let tensor = |key: &str| file.get(&format!("{op}/{key}"));
        let shape = |dims: &[usize]| Shape::try_new(dims).expect("at most six dimensions");
        let inputs: Vec<&str> =
            ["x", "a", "b", "c"].into_iter().filter(|key| tensor(key).is_some()).collect();
        let labels: BTreeMap<&str, Vec<u32>> =
            tensor("labels").map(|(_, data)| ("labels", integers(data))).into_iter().collect();
        let params = Params::new(0);
        let registered: Vec<_> = inputs
            .iter()
            .map(|key| {
                let (dims, data) = tensor(key).expect("filtered above");
                params.add(key, shape(dims), Init::Data(data.as_slice().into()))
            })
            .collect();
        let (dy_dims, dy) = tensor("dy").expect("every operation has weights");
        let weights = params.add("dy", shape(dy_dims), Init::Data(dy.as_slice().into()));
        let step = TrainStep::trace(&params, |trace| {
            let x: Vec<Tensor> = registered.iter().map(|param| trace.param(param)).collect();
            let classes = x[0].shape().last() as u32;
            let labels = labels.get("labels").map(|data| trace.labels("labels", [data.len()], classes));
            let y = apply(op, &x, labels.as_ref());
            trace.output("y", &y);
            y.mul(&trace.param(&weights)).sum(&[])
        });
        let step = step.unwrap_or_else(|e| panic!("{op}: {e}"));
        // A gradient may be a small difference of terms as large as the weights.
        let near = Near { rel: 4e-6, abs: 2e-6 };
        on_each(devices(), |device| {
            for limits in both_classes(device) {
                let (_, gradients) = device_gradients(device, &step, &limits, &labels);
                for (name, found) in gradients {
                    let key = name.strip_suffix(".momentum_buffer").expect("momentum's state");
                    let expected = match key {
                        // The gradient of the weights is the result itself.
                        "dy" => &tensor("y").expect("every operation has a result").1,
                        key => &tensor(&format!("d{key}")).expect("every input has a gradient").1,
                    };
                    assert_close(&format!("{op}: gradient of {key}"), &found, &wide(expected), near);
                }
            }
        });
    }
}

/// Cases of `tests/golden/attention.py`: fused and unfused, from three tensors and, where possible and without a
/// window, from one packed tensor.
#[test]
fn attention_and_gradients_match_pytorch() {
    let file = read("attention.safetensors");
    let names: Vec<&str> = file.keys().filter_map(|key| key.strip_suffix("/y")).collect();
    assert!(names.len() >= 20, "only {} cases in the file", names.len());
    for case in names {
        let tensor = |key: &str| &file[&format!("{case}/{key}")];
        let scale = (case == "full_scaled").then_some(0.9);
        // The number that follows `window` in the name.
        let window = case.split("window").nth(1).map(|rest| {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().expect("a window")
        });
        let (causal, alibi) = (case.starts_with("causal"), case.contains("alibi"));
        let options = Attention { causal, scale, window, alibi, dropout: 0.0, softcap: None, offset: 0 };
        let square = tensor("q").0[1] == tensor("k").0[1];
        let plain = window.is_none() && !alibi;
        for way in
            ["fused", "unfused", "packed"].into_iter().filter(|way| square && plain || *way != "packed")
        {
            let params = Params::new(0);
            let [q, k, v, dy] = ["q", "k", "v", "dy"].map(|key| {
                let (dims, data) = tensor(key);
                let shape = Shape::try_new(dims).expect("four dimensions");
                params.add(key, shape, Init::Data(data.as_slice().into()))
            });
            let step = TrainStep::trace(&params, |trace| {
                let [q, k, v, dy] = [&q, &k, &v, &dy].map(|param| trace.param(param));
                let y = match way {
                    "fused" => q.attention(&k, &v, &options),
                    "unfused" => q.attention_unfused(&k, &v, &options),
                    _ => q.concat(&[&k, &v], 2).self_attention(q.dim(2), k.dim(2), &options),
                };
                y.mul(&dy).sum(&[])
            });
            let step = step.unwrap_or_else(|e| panic!("{case}: {e}"));
            // Scores of `causal_large` reach 20: their rounding errors affect each weight.
            let near = Near { rel: 2e-5, abs: if case == "causal_large" { 2e-5 } else { 6e-6 } };
            on_each(devices(), |device| {
                for limits in both_classes(device) {
                    let (_, gradients) = device_gradients(device, &step, &limits, &BTreeMap::new());
                    assert_eq!(gradients.len(), 4);
                    for (name, found) in gradients {
                        let key = name.strip_suffix(".momentum_buffer").expect("momentum's state");
                        let key = if key == "dy" { "y".to_owned() } else { format!("d{key}") };
                        let what = format!("{case}, {way} ({}): {key}", limits.name);
                        assert_close(&what, &found, &wide(&tensor(&key).1), near);
                    }
                }
            });
        }
    }
}

fn runs() -> Vec<(&'static str, Optimizer, Clip)> {
    let sgd = |lr: f32| Sgd { lr, ..Sgd::default() };
    let momentum = Sgd { momentum: 0.9, weight_decay: 0.01, ..sgd(0.05) };
    let adamw = AdamW { lr: 0.01, weight_decay: 0.1, ..AdamW::default() };
    vec![
        ("sgd", sgd(0.1).into(), Clip::Off),
        ("momentum", momentum.into(), Clip::Off),
        ("nesterov", Sgd { nesterov: true, ..momentum }.into(), Clip::Off),
        ("adam", Adam { lr: 0.01, weight_decay: 0.01, ..Adam::default() }.into(), Clip::Off),
        ("adamw", adamw.into(), Clip::Off),
        ("adamw_clip", adamw.into(), Clip::Norm(0.1)),
        ("sgd_clip", sgd(0.5).into(), Clip::Norm(0.1)),
        ("sgd_clip_value", sgd(0.5).into(), Clip::Value(0.02)),
    ]
}

/// Returns the network of the file: parameters under PyTorch's names, as `Mlp` registers them.
fn network() -> (Params, Mlp) {
    let params = Params::new(0);
    let mlp = Mlp::new(&params, &[7, 12, 5]);
    (params, mlp)
}

fn loss(mlp: &Mlp, trace: &Trace) -> Tensor {
    let x = trace.input("x", [9, 7]);
    mlp.forward(&x).cross_entropy(&trace.labels("labels", [9], 5))
}

#[test]
fn five_steps_of_every_optimizer_match_pytorch() {
    let file = read("mlp_train.safetensors");
    let stored: Vec<&str> = file.keys().filter_map(|key| key.strip_suffix("/loss")).collect();
    let mut known: Vec<&str> = runs().iter().map(|(name, ..)| *name).collect();
    known.sort_unstable();
    assert_eq!(stored, known, "runs in the file and in this test");
    let (params, mlp) = network();
    let step = TrainStep::trace(&params, |trace| loss(&mlp, trace)).expect("valid");
    let names: Vec<String> = params.list().iter().map(|p| p.name().to_owned()).collect();
    let labels = integers(&file["labels"].1);
    on_each(devices(), |device| {
        for limits in both_classes(device) {
            for (run, optimizer, clip) in runs() {
                let options = PlanOptions { optimizer, clip, ..PlanOptions::default() };
                let plan = step.plan(&options, &limits).expect("it can be planned");
                let mut session = Session::new(device, &plan).expect("it opens");
                for name in &names {
                    session.set_parameter(name, &file[&format!("init/{name}")].1).expect("same shapes");
                }
                session.feed("x", &file["x"].1).expect("same shape");
                session.feed("labels", &labels).expect("same shape");
                let near = Near { rel: 2e-5, abs: 2e-6 };
                let mut losses = Vec::new();
                for _ in 0..5 {
                    session.step().expect("it runs");
                    losses.push(session.loss().expect("a finite loss"));
                }
                assert_close(
                    &format!("{run}: losses"),
                    &losses,
                    &wide(&file[&format!("{run}/loss")].1),
                    near,
                );
                for name in &names {
                    let expected = wide(&file[&format!("{run}/final/{name}")].1);
                    let found = session.parameter(name).expect("there");
                    assert_close(&format!("{run}: {name} after 5 steps"), &found, &expected, near);
                }
            }
        }
    });
}

#[test]
fn logits_before_the_first_step_match_pytorch() {
    let file = read("mlp_train.safetensors");
    let (params, mlp) = network();
    let forward =
        Forward::trace(&params, "logits", |trace| mlp.forward(&trace.input("x", [9, 7]))).expect("valid");
    on_each(devices(), |device| {
        let mut session =
            Session::new(device, &forward.plan(device.limits()).expect("planned")).expect("it opens");
        for param in params.list() {
            session
                .set_parameter(param.name(), &file[&format!("init/{}", param.name())].1)
                .expect("same shapes");
        }
        session.feed("x", &file["x"].1).expect("same shape");
        session.step().expect("it runs");
        let logits: Vec<f32> = session.output(ProgramId(0), "logits").expect("an output");
        assert_close("logits", &logits, &wide(&file["logits"].1), Near { rel: 2e-6, abs: 1e-6 });
    });
}

#[test]
fn steps_of_optimizers_match_golden_values() {
    let (lr, weight_decay) = (0.01, 0.1);
    let (adam, nadam, radam) = (Adam::default(), NAdam::default(), RAdam::default());
    let (betas, amsgrad, decoupled) = ((0.8, 0.9), true, true);
    let momentum = RmsProp { lr, alpha: 0.9, momentum: 0.9, weight_decay, ..RmsProp::default() };
    let adagrad = Adagrad { lr: 0.1, ..Adagrad::default() };
    let optimizers: [(&str, Optimizer); 12] = [
        ("Adam/amsgrad", Adam { lr, betas, weight_decay, amsgrad, ..adam }.into()),
        ("AdamW/amsgrad", AdamW { lr, betas, weight_decay, amsgrad, ..AdamW::default() }.into()),
        ("NAdam/plain", NAdam { lr, ..nadam }.into()),
        ("NAdam/coupled", NAdam { lr, weight_decay, momentum_decay: 0.5, ..nadam }.into()),
        ("NAdam/decoupled", NAdam { lr, weight_decay, decoupled, ..nadam }.into()),
        ("RAdam/plain", RAdam { lr, ..radam }.into()),
        ("RAdam/coupled", RAdam { lr, betas: (0.8, 0.99), weight_decay, ..radam }.into()),
        ("RAdam/decoupled", RAdam { lr, weight_decay, decoupled, ..radam }.into()),
        ("RMSprop/plain", RmsProp { lr, ..RmsProp::default() }.into()),
        ("RMSprop/momentum", momentum.into()),
        ("Adagrad/plain", adagrad.into()),
        ("Adagrad/decay", Adagrad { lr_decay: 0.5, weight_decay, ..adagrad }.into()),
    ];
    match_golden_steps("optimizers.safetensors", &BTreeMap::from(optimizers));
}

#[test]
fn steps_of_optimizers_with_little_state_match_golden_values() {
    let adafactor = Adafactor { lr: 0.05, weight_decay: 0.1, ..Adafactor::default() };
    let mini = AdamMini { lr: 0.01, betas: (0.9, 0.95), weight_decay: 0.1, ..AdamMini::default() };
    let muon = Muon { lr: 0.02, weight_decay: 0.1, ..Muon::default() };
    let apollo =
        Apollo { lr: 0.01, betas: (0.9, 0.95), weight_decay: 0.1, rank: 3, refresh: 3, ..Apollo::default() };
    let mini_of_apollo = Apollo { rank: 1, whole: true, scale: 2.0, ..apollo };
    let optimizers: [(&str, Optimizer); 18] = [
        ("apollo/wide", apollo.into()),
        ("apollo/tall", apollo.into()),
        ("apollo/kernel", apollo.into()),
        ("apollo_mini/tall", mini_of_apollo.into()),
        ("adam_mini/vector", mini.into()),
        ("adam_mini/matrix", mini.into()),
        ("adam_mini/kernel", mini.into()),
        ("muon/wide", muon.into()),
        ("muon/tall", muon.into()),
        ("muon/kernel", muon.into()),
        ("muon_rms/tall", Muon { nesterov: false, match_rms: true, ..muon }.into()),
        ("muon_bf16/wide", muon.into()),
        ("adafactor/vector", adafactor.into()),
        ("adafactor/matrix", adafactor.into()),
        ("adafactor/kernel", adafactor.into()),
        ("lion/vector", Lion { lr: 0.01, betas: (0.9, 0.99), weight_decay: 0.1 }.into()),
        ("adam8bit/vector", Adam8bit { lr: 0.01, weight_decay: 0.1, ..Adam8bit::default() }.into()),
        ("adam4bit/vector", Adam4bit { lr: 0.01, weight_decay: 0.1, ..Adam4bit::default() }.into()),
    ];
    match_golden_steps("lean.safetensors", &BTreeMap::from(optimizers));
}

/// The files give each weight its own gradients: the loss is `Σ w g`. `optimizers` are by run.
fn match_golden_steps(file: &str, optimizers: &BTreeMap<&str, Optimizer>) {
    let file = read(file);
    let runs = file.keys().filter_map(|key| key.strip_suffix("/init"));
    assert!(runs.eq(optimizers.keys().copied()), "other runs");
    for (&run, &optimizer) in optimizers {
        let (dims, init) = &file[&format!("{run}/init")];
        let (shape, n) = (Shape::try_new(dims).expect("at most six dimensions"), init.len());
        let params = Params::new(0);
        let w = params.add("w", shape, Init::Data(init.as_slice().into()));
        let step = TrainStep::trace(&params, |trace| trace.param(&w).mul(&trace.input("g", shape)).sum(&[]));
        let step = step.expect("valid");
        let (gradients, wanted) = (&file[&format!("{run}/g")].1, &file[&format!("{run}/final")].1);
        on_each(devices(), |device| {
            for limits in both_classes(device) {
                let options = PlanOptions { optimizer, ..PlanOptions::default() };
                let plan = step.plan(&options, &limits).expect("it can be planned");
                let mut session = Session::new(device, &plan).expect("it opens");
                for g in gradients.chunks(n) {
                    session.feed("g", g).expect("same shape");
                    session.step().expect("it runs");
                }
                let found = session.parameter("w").expect("there");
                if !matches!(optimizer, Optimizer::Adam8bit(_) | Optimizer::Adam4bit(_)) {
                    // PyTorch's own steps of Newton and Schulz have eight bits; each step is 0.02 times their result.
                    let abs = if run.starts_with("muon_bf16") { 2e-3 } else { 2e-6 };
                    assert_close(run, &found, &wide(wanted), Near { rel: 2e-5, abs });
                    continue;
                }
                // A moment halfway between two codes may round either way in f32. This is rare, and the codes
                // are a small step apart.
                let apart = |(a, b): (&f32, &f32)| f64::from((a - b).abs());
                let far = found
                    .iter()
                    .zip(wanted)
                    .filter(|pair| apart(*pair) > 2e-6 + 2e-5 * f64::from(pair.1.abs()));
                let far = far.count();
                assert!(far <= n / 100, "{run}: {far} of {n} weights differ");
                let most = found.iter().zip(wanted).map(apart).fold(0.0, f64::max);
                assert!(most < 2e-3, "{run}: a weight is {most} away");
            }
        });
    }
}
