//! Embedding, norms of rows, rotary embedding and cross-entropy in chunks: PyTorch's values, and their plans
//! and sessions.

use std::collections::BTreeMap;

use crate::support;
use crate::support::close::{Near, assert_close};
use crate::support::compare::{device_gradients, kernels};
use crate::support::golden::{File, read};
use crate::support::{both_classes, devices, on_each};
use wgrad::Error;
use wgrad::compile::{Forward, Plan, PlanOptions, TrainStep};
use wgrad::device::Device;
use wgrad::exec::{ProgramId, Session};
use wgrad::graph::{IGNORE, Init, Params, Rope, RopeScaling, Tensor, Trace};
use wgrad::limits::Limits;
use wgrad::nn::{Embedding, LayerNorm, RmsNorm};
use wgrad::optim::{Clip, Optimizer};
use wgrad::shape::Shape;

/// Applies the function of each case of `tests/golden/rows.py`.
fn forward(case: &str, get: &dyn Fn(&str) -> Tensor, indices: Option<&Tensor>) -> Tensor {
    let x = || get("x");
    let indices = || indices.expect("the case has indices");
    match case {
        "embedding" | "embedding_vec4" => get("table").embedding(indices()),
        "tied" => {
            let table = get("table");
            table.embedding(indices()).matmul(&get("w")).tanh().matmul_transposed(&table, false, true)
        }
        "layer_norm" | "layer_norm_vec4" | "layer_norm_long" => {
            x().layer_norm(&get("gamma"), &get("beta"), 1e-5)
        }
        "rms_norm" | "rms_norm_vec4" | "rms_norm_long" => x().rms_norm(&get("gamma"), 1e-6),
        "rotary" | "rotary_packed" => x().rotary(3, 10_000.0),
        "rotary_base" => x().rotary(2, 500_000.0),
        "gelu" => x().gelu(),
        "gelu_tanh" => x().gelu_tanh(),
        "cross_entropy_ignored" | "cross_entropy_vec4" => x().cross_entropy(indices()),
        "linear_cross_entropy" => x().linear_cross_entropy(&get("w"), indices(), 3),
        _ => panic!("no function for `{case}`"),
    }
}

fn check(device: &Device, limits: &Limits, file: &File, case: &str) {
    let tensor = |key: &str| file.get(&format!("{case}/{key}"));
    let shape = |dims: &[usize]| Shape::try_new(dims).expect("at most six dimensions");
    let params = Params::new(0);
    let leaves = ["x", "table", "w", "gamma", "beta", "dy"].into_iter().filter(|key| tensor(key).is_some());
    let registered: BTreeMap<&str, _> = leaves
        .map(|key| {
            let (dims, data) = tensor(key).expect("filtered above");
            (key, params.add(key, shape(dims), Init::Data(data.as_slice().into())))
        })
        .collect();
    let kind = ["ids", "labels"].into_iter().find(|key| tensor(key).is_some());
    let indices: BTreeMap<&str, Vec<u32>> = kind
        .map(|key| {
            let one = |&i: &f32| if i < 0.0 { IGNORE } else { i as u32 };
            (key, tensor(key).expect("found above").1.iter().map(one).collect())
        })
        .into_iter()
        .collect();
    let step = TrainStep::trace(&params, |trace| {
        let get = |key: &str| trace.param(&registered[key]);
        let classes = tensor("w").or(tensor("x")).or(tensor("table")).expect("an operand");
        let indices = kind.map(|key| {
            let dims = shape(&tensor(key).expect("found above").0);
            match (key, case) {
                ("ids", _) => trace.ids(key, dims, get("table").dim(0) as u32),
                (_, "linear_cross_entropy") => trace.labels(key, dims, get("w").dim(0) as u32),
                _ => trace.labels(key, dims, *classes.0.last().expect("two dimensions") as u32),
            }
        });
        forward(case, &get, indices.as_ref()).mul(&get("dy")).sum(&[])
    });
    let step = step.unwrap_or_else(|e| panic!("{case}: {e}"));
    let (_, gradients) = device_gradients(device, &step, limits, &indices);
    assert_eq!(gradients.len(), registered.len());
    for (name, found) in gradients {
        let key = name.strip_suffix(".momentum_buffer").expect("momentum's state");
        // The gradient of the weights `dy` is the result itself.
        let key = if key == "dy" { "y".to_owned() } else { format!("d{key}") };
        let expected = &tensor(&key).expect("every input has a gradient").1;
        let largest = expected.iter().fold(0.0f64, |most, x| most.max(f64::from(x.abs())));
        let wide: Vec<f64> = expected.iter().map(|&x| f64::from(x)).collect();
        assert_close(
            &format!("{case}: {key}"),
            &found,
            &wide,
            Near { rel: 4e-6, abs: 4e-6 * largest.max(0.5) },
        );
    }
}

#[test]
fn values_and_gradients_match_pytorch() {
    let file = read("rows.safetensors");
    let cases: Vec<&str> = file.keys().filter_map(|key| key.strip_suffix("/y")).collect();
    assert!(cases.len() >= 16, "only {} cases in the file", cases.len());
    on_each(devices(), |device| {
        for limits in both_classes(device) {
            cases.iter().for_each(|case| check(device, &limits, &file, case));
        }
    });
}

/// The first and last layers of a language model: tied embedding and output weights, and one layer in
/// between.
fn tied(rows: usize, vocabulary: usize, width: usize, chunks: usize) -> TrainStep {
    let params = Params::new(1);
    TrainStep::trace(&params, |trace| {
        let table = trace.param(&params.add("table", [vocabulary, width], Init::Normal(0.5)));
        let hidden = trace.param(&params.add("hidden", [width, width], Init::fan_in(width)));
        let ids = trace.ids("ids", [rows], vocabulary as u32);
        let labels = trace.labels("labels", [rows], vocabulary as u32);
        table.embedding(&ids).matmul(&hidden).gelu().linear_cross_entropy(&table, &labels, chunks)
    })
    .expect("valid")
}

fn plan(step: &TrainStep, limits: &Limits) -> Plan {
    let options = PlanOptions {
        optimizer: Optimizer::named("momentum").expect("known"),
        clip: Clip::Off,
        ..PlanOptions::default()
    };
    step.plan(&options, limits).expect("planned")
}

#[test]
fn one_chunk_of_logits_is_alive_at_once() {
    let (rows, vocabulary, width) = (2048, 4000, 32);
    let logits = (rows * vocabulary * 4) as u64;
    // Discrete GPUs compute products in pieces, for which they need scratch.
    let limits = Limits::named("swiftshader").expect("a preset");
    for chunks in [1, 2, 4, 8, 16] {
        let plan = plan(&tied(rows, vocabulary, width, chunks), &limits);
        let step = plan.certificate.lower_bound;
        // In addition to the logits: the table's gradient, whole and of a chunk, and the tensors between
        // table and logits.
        let others = (2 * vocabulary * width * 4 + 6 * rows * width * 4) as u64;
        assert!(
            step <= logits / chunks as u64 + others,
            "{chunks} chunks need {step}, a chunk {logits} / {chunks}"
        );
    }
}

#[test]
fn one_chunk_has_the_plan_of_plain_cross_entropy() {
    let limits = Limits::named("discrete").expect("a preset");
    let traced = |chunks: Option<usize>| {
        let params = Params::new(1);
        let step = TrainStep::trace(&params, |trace| {
            let x = trace.param(&params.add("x", [6, 4], Init::Normal(0.5)));
            let w = trace.param(&params.add("w", [5, 4], Init::Normal(0.5)));
            let labels = trace.labels("labels", [6], 5);
            match chunks {
                Some(chunks) => x.linear_cross_entropy(&w, &labels, chunks),
                None => x.matmul_transposed(&w, false, true).cross_entropy(&labels),
            }
        });
        plan(&step.expect("valid"), &limits).hash()
    };
    assert_eq!(traced(Some(1)), traced(None), "the same kernels on the same bytes");
    assert_ne!(traced(Some(2)), traced(None));
}

#[test]
fn tied_weights_have_one_gradient() {
    let limits = Limits::named("discrete").expect("a preset");
    let plan = plan(&tied(64, 4000, 32, 1), &limits);
    let names = kernels(&plan);
    assert!(names.iter().any(|name| name == "embedding_sums_vec4_in_place"));
    let table = 4000 * 32 * 4;
    let whole = plan.program.storages.iter().filter(|s| !s.persistent && s.used_bytes == table).count();
    assert_eq!(whole, 1, "one tensor of the table's size");
}

/// Returns the loss after one step and the bits of all gradients.
fn run(device: &Device, plan: &Plan, feeds: &[(&str, Vec<u32>)]) -> (f32, Vec<Vec<u32>>) {
    let mut session = Session::new(device, plan).expect("it opens");
    for (name, data) in feeds {
        session.feed(name, data).expect("valid");
    }
    session.step().expect("it runs");
    let loss = session.loss().expect("a loss");
    let bits = |data: Vec<f32>| data.into_iter().map(f32::to_bits).collect();
    let states = plan.graph().values.iter().filter(|v| v.name.ends_with(".momentum_buffer"));
    (loss, states.map(|v| bits(session.parameter(&v.name).expect("there"))).collect())
}

#[test]
fn chunks_give_the_same_gradients() {
    let (rows, vocabulary) = (37, 50);
    let feeds = [
        ("ids", support::some_labels(1, rows, vocabulary as u32)),
        ("labels", support::some_labels(2, rows, vocabulary as u32)),
    ];
    on_each(devices(), |device| {
        let of =
            |chunks: usize| run(device, &plan(&tied(rows, vocabulary, 8, chunks), device.limits()), &feeds);
        let (loss, whole) = of(1);
        assert_eq!((loss, &whole), (of(1).0, &of(1).1), "the same bits every time");
        for chunks in [2, 5, 37] {
            let (other, parts) = of(chunks);
            assert!((loss - other).abs() < 1e-5 * loss, "{loss} and {other}");
            for (a, b) in whole.iter().flatten().zip(parts.iter().flatten()) {
                let (a, b) = (f32::from_bits(*a), f32::from_bits(*b));
                assert!((a - b).abs() < 1e-5 * (a.abs() + 0.1), "{chunks} chunks: {a} and {b}");
            }
        }
    });
}

/// Layers of a transformer without attention: results of norms, GELU and SiLU are recomputed.
#[test]
fn recomputed_row_operations_are_bit_identical() {
    let params = Params::new(7);
    let (rows, width) = (21, 20);
    let table = Embedding::new(&params.scope("table"), 30, width);
    let layer = LayerNorm::new(&params.scope("layer"), width);
    let rms = RmsNorm::new(&params.scope("rms"), width);
    let weight = |name: &str, dims: [usize; 2]| params.add(name, dims, Init::fan_in(dims[0]));
    let [up, down, gate, back] =
        [("up", [width, 40]), ("down", [40, width]), ("gate", [width, 40]), ("back", [40, width])]
            .map(|(name, dims)| weight(name, dims));
    let step = TrainStep::trace(&params, |trace| {
        let p = |param| trace.param(param);
        let x = trace.ids("ids", [rows], 30).apply(&table);
        let x = x.add(&x.apply(&layer).matmul(&p(&up)).gelu_tanh().dropout(0.2).matmul(&p(&down)));
        let x = x.add(&x.apply(&rms).matmul(&p(&gate)).silu().matmul(&p(&back)));
        x.matmul_transposed(&p(&table.weight), false, true).cross_entropy(&trace.labels("labels", [rows], 30))
    });
    let step = step.expect("valid");
    let feeds = [("ids", support::some_labels(1, rows, 30)), ("labels", support::some_labels(2, rows, 30))];
    on_each(devices(), |device| {
        let bits = [false, true].map(|rebuild| {
            let options = PlanOptions {
                rebuild,
                optimizer: Optimizer::named("momentum").expect("known"),
                ..PlanOptions::default()
            };
            let plan = step.plan(&options, device.limits()).expect("planned");
            (plan.peak_bytes(), run(device, &plan, &feeds))
        });
        assert_eq!(bits[0].1, bits[1].1);
        assert!(bits[1].0 < bits[0].0, "{} and {} bytes", bits[1].0, bits[0].0);
    });
}

fn says(error: &Error, words: &[&str]) {
    let text = error.to_string();
    words.iter().for_each(|word| assert!(text.contains(word), "`{word}` is missing in: {text}"));
}

#[test]
fn invalid_row_operations_are_errors() {
    let traced = |model: &dyn Fn(&Trace) -> Tensor| {
        Forward::trace(&Params::new(0), "y", model).expect_err("the model has a mistake")
    };
    let x = |t: &Trace, dims: [usize; 2]| t.input("x", dims);
    says(&traced(&|t| x(t, [5, 3]).embedding(&t.ids("ids", [2], 6))), &["ids up to 5", "[5, 3]"]);
    says(&traced(&|t| x(t, [5, 3]).embedding(&t.labels("y", [2], 5))), &["Trace::ids"]);
    says(&traced(&|t| x(t, [5, 3]).embedding(&t.input("ids", [2]))), &["u32", "f32"]);
    says(
        &traced(&|t| t.input("x", [5, 3, 1]).embedding(&t.ids("ids", [2], 5))),
        &["a table [rows, columns]"],
    );
    says(
        &traced(&|t| x(t, [5, 3]).layer_norm(&t.input("g", [5]), &t.input("b", [3]), 1e-5)),
        &["layer_norm", "takes [3]", "got [5]"],
    );
    says(&traced(&|t| x(t, [5, 3]).rms_norm(&t.input("g", [3]), -1.0)), &["eps = -1"]);
    says(&traced(&|t| t.input("x", [1, 2, 3, 5]).rotary(1, 1e4)), &["5 elements are not pairs"]);
    says(&traced(&|t| t.input("x", [1, 2, 3, 4]).rotary(4, 1e4)), &["there are 3"]);
    let half = Rope { base: 1e4, scaling: RopeScaling::Linear { factor: 0.5 } };
    says(&traced(&|t| t.input("x", [1, 2, 3, 4]).rotary(1, half)), &["a scaling by 0.5"]);
    says(&traced(&|t| x(t, [5, 4]).rotary(1, 1e4)), &["[batch, positions, heads, elements]"]);
    says(
        &traced(&|t| x(t, [5, 3]).linear_cross_entropy(&t.input("w", [7, 3]), &t.labels("y", [5], 7), 6)),
        &["6 chunks"],
    );
}

#[test]
fn ids_out_of_range_are_rejected_when_they_are_fed() {
    let forward = Forward::trace(&Params::new(0), "y", |trace| {
        trace.input("table", [5, 3]).embedding(&trace.ids("ids", [2, 2], 5))
    });
    let forward = forward.expect("valid");
    on_each(devices(), |device| {
        let plan = forward.plan(device.limits()).expect("planned");
        let mut session = Session::new(device, &plan).expect("it opens");
        for wrong in [5, IGNORE] {
            let error = session.feed("ids", &[0, 4, wrong, 1]).expect_err("out of range");
            assert!(matches!(error, Error::Input { .. }));
            says(&error, &["ids", "element 2", "5 rows", "0 to 4"]);
        }
        session.feed("ids", &[0u32, 4, 3, 1]).expect("in range");
        session.feed("table", &[1.0f32; 15]).expect("valid");
        session.step().expect("it runs");
        assert_eq!(session.output::<f32>(ProgramId(0), "y").expect("there"), [1.0; 12]);
    });
}
