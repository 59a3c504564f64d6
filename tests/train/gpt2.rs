//! GPT-2 as in the transformers library: weights in its files, logits, gradients, and files that it can read.
//! `golden/gpt2.py` made the files and documents their names.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::support::close::{Near, assert_close};
use crate::support::golden::{File, integers, path, read, read_at, wide};
use crate::support::{both_classes, devices, on_each};
use safetensors::tensor::{Dtype, TensorView};
use wgrad::Error;
use wgrad::compile::{Forward, PlanOptions, TrainStep};
use wgrad::device::Device;
use wgrad::exec::{ProgramId, Session, read_notes};
use wgrad::graph::{Init, Params};
use wgrad::limits::Limits;
use wgrad::models::{Gpt, GptBlock, GptConfig, Sequence};
use wgrad::nn::Module;
use wgrad::optim::Sgd;

const CONFIG: GptConfig =
    GptConfig { vocabulary: 61, context: 24, layers: 2, heads: 2, width: 32, dropout: 0.0 };
const MODEL: &str = "gpt2_model.safetensors";

fn logits(device: &Device, config: &GptConfig, limits: &Limits) -> Session {
    let params = Params::new(0);
    let gpt = Gpt::new(&params, config).expect("valid sizes");
    let forward = Forward::trace(&params, "logits", |trace| {
        gpt.logits(&trace.ids("ids", [2, 17], config.vocabulary as u32))
    });
    let plan = forward.expect("valid").plan(limits).expect("it can be planned");
    Session::new(device, &plan).expect("it opens")
}

/// A temporary file that is deleted when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("wgrad-gpt2-{}-{name}.safetensors", std::process::id())))
    }

    fn write(&self, tensors: &File) {
        let views = tensors.iter().map(|(name, (shape, data))| {
            let view = TensorView::new(Dtype::F32, shape.clone(), bytemuck::cast_slice(data));
            (name.clone(), view.expect("shape and data agree"))
        });
        let bytes = safetensors::serialize(views, None).expect("valid");
        std::fs::write(&self.0, bytes).expect("written");
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn logits_of_a_transformers_file_match() {
    let golden = read("gpt2.safetensors");
    on_each(devices(), |device| {
        for limits in both_classes(device) {
            let mut session = logits(device, &CONFIG, &limits);
            session.load_named(path(MODEL), Gpt::hugging_face_name).expect("it fits");
            session.feed("ids", &integers(&golden["ids"].1)).expect("valid ids");
            session.step().expect("it runs");
            let found: Vec<f32> = session.output(ProgramId(0), "logits").expect("an output");
            assert_close("logits", &found, &wide(&golden["logits"].1), Near { rel: 0.0, abs: 2e-5 });
        }
    });
}

/// Returns options with which the momentum after one step is the gradient.
fn options() -> PlanOptions {
    PlanOptions {
        optimizer: Sgd { lr: 0.0, momentum: 0.5, ..Sgd::default() }.into(),
        ..PlanOptions::default()
    }
}

#[test]
fn loss_and_gradients_of_the_whole_model_match() {
    let golden = read("gpt2.safetensors");
    let params = Params::new(0);
    let gpt = Gpt::new(&params, &CONFIG).expect("valid sizes");
    let step = TrainStep::trace(&params, |trace| {
        gpt.loss(&trace.ids("ids", [2, 17], 61), &trace.labels("labels", [2 * 17], 61))
    });
    let step = step.expect("valid");
    on_each(devices(), |device| {
        for limits in both_classes(device) {
            let plan = step.plan(&options(), &limits).expect("it can be planned");
            let mut session = Session::new(device, &plan).expect("it opens");
            session.load_named(path(MODEL), Gpt::hugging_face_name).expect("it fits");
            for name in ["ids", "labels"] {
                session.feed(name, &integers(&golden[name].1)).expect("valid indices");
            }
            session.step().expect("it runs");
            let loss = session.loss().expect("a finite loss");
            assert_close("loss", &[loss], &wide(&golden["loss"].1), Near { rel: 3e-6, abs: 0.0 });
            for (name, (_, expected)) in golden.range("grad/".to_owned().."grad0".to_owned()) {
                let parameter = &name["grad/".len()..];
                let found = session.parameter(&format!("{parameter}.momentum_buffer")).expect("state");
                assert_close(name, &found, &wide(expected), Near { rel: 2e-5, abs: 1e-6 });
            }
        }
    });
}

#[test]
fn output_and_gradients_of_a_block_match() {
    let (golden, model) = (read("gpt2.safetensors"), read(MODEL));
    let params = Params::new(0);
    let data = |name: &str| Init::Data(golden[name].1.as_slice().into());
    let x = params.add("x", [2, 17, 32], data("block/x"));
    let dy = params.add("dy", [2, 17, 32], data("block/dy"));
    let block = GptBlock::new(&params.scope("transformer.h.0"), &CONFIG).expect("valid sizes");
    let step = TrainStep::trace(&params, |trace| {
        let y = block.forward(&trace.param(&x));
        trace.output("y", &y);
        y.mul(&trace.param(&dy)).sum(&[])
    });
    let step = step.expect("valid");
    on_each(devices(), |device| {
        for limits in both_classes(device) {
            let plan = step.plan(&options(), &limits).expect("it can be planned");
            let mut session = Session::new(device, &plan).expect("it opens");
            for (name, (_, data)) in model.iter().filter(|(name, _)| name.starts_with("transformer.h.0.")) {
                session.set_parameter(name, data).expect("same names and sizes");
            }
            session.step().expect("it runs");
            let y: Vec<f32> = session.output(ProgramId(0), "y").expect("an output");
            assert_close("y", &y, &wide(&golden["block/y"].1), Near { rel: 5e-6, abs: 5e-6 });
            // Compilers of GPUs contract `a * b + c`: sums of elements up to 10 that cancel lose another digit.
            let near = Near { rel: 2e-5, abs: if device.limits().class.is_cpu() { 2e-5 } else { 1e-4 } };
            let mut gradient = |name: &str, expected: &str| {
                let found = session.parameter(&format!("{name}.momentum_buffer")).expect("state");
                assert_close(expected, &found, &wide(&golden[expected].1), near);
            };
            gradient("x", "block/dx");
            let own = golden.keys().filter_map(|key| key.strip_prefix("block/grad/"));
            assert_eq!(own.clone().count(), 12, "parameters of a block in the file");
            own.for_each(|name| gradient(&format!("transformer.h.0.{name}"), &format!("block/grad/{name}")));
        }
    });
}

#[test]
fn saved_file_has_the_names_shapes_and_values_of_the_loaded_one() {
    let file = Scratch::new("saved");
    on_each(devices(), |device| {
        let mut session = logits(device, &CONFIG, device.limits());
        session.load_named(path(MODEL), Gpt::hugging_face_name).expect("it fits");
        session.save(&file.0).expect("it can be saved");
        let saved = read_at(&file.0);
        assert!(saved == read(MODEL), "{:?}", saved.keys());
        // transformers requires this note before it loads a file.
        let notes = read_notes(&file.0).expect("a safetensors file");
        assert_eq!(notes, BTreeMap::from([("format".to_owned(), "pt".to_owned())]));
        let first = std::fs::read(&file.0).expect("there");
        session.save(&file.0).expect("it can be saved");
        assert!(first == std::fs::read(&file.0).expect("there"), "another file the second time");
    });
}

/// Converts the model to the form of older files: no prefix, additional masks, and the tied weights twice.
fn as_older_files(model: &File) -> File {
    let bare = |name: &str| name.strip_prefix("transformer.").expect("a prefix").to_owned();
    let mut file: File = model.iter().map(|(name, tensor)| (bare(name), tensor.clone())).collect();
    for layer in 0..2 {
        file.insert(format!("h.{layer}.attn.bias"), (vec![1, 1, 24, 24], vec![1.0; 24 * 24]));
        file.insert(format!("h.{layer}.attn.masked_bias"), (vec![], vec![-1e4]));
    }
    file.insert("lm_head.weight".to_owned(), file["wte.weight"].clone());
    file
}

#[test]
fn older_files_load_and_mismatches_are_named() {
    let (model, file) = (read(MODEL), Scratch::new("older"));
    on_each(devices(), |device| {
        let mut session = logits(device, &CONFIG, device.limits());
        let mut older = as_older_files(&model);
        file.write(&older);
        session.load_named(&file.0, Gpt::hugging_face_name).expect("it fits");
        let weight = "transformer.h.1.mlp.c_fc.weight";
        assert_eq!(session.parameter(weight).expect("there"), model[weight].1);

        let mut failed = |older: &File, parts: &[&str]| {
            file.write(older);
            let error = session.load_named(&file.0, Gpt::hugging_face_name).expect_err("it does not fit");
            assert!(matches!(error, Error::Weights { .. }), "{error:?}");
            parts.iter().for_each(|part| assert!(error.to_string().contains(part), "`{part}`: {error}"));
        };
        older.get_mut("lm_head.weight").expect("there").1[5] += 1.0;
        failed(&older, &["`lm_head.weight` and `wte.weight` differ", "both are `transformer.wte.weight`"]);
        older.remove("lm_head.weight");
        older.insert("wpe.weight".to_owned(), (vec![16, 32], vec![0.0; 512]));
        older.insert("h.1.ln_2.bias".to_owned(), (vec![16], vec![0.0; 16]));
        older.remove("ln_f.bias");
        older.insert("h.2.ln_1.bias".to_owned(), (vec![32], vec![0.0; 32]));
        let shapes =
            "`wpe.weight` is [16, 32] in the file, [24, 32] in the model: 16 rows where the model has 24";
        let missing = "`transformer.ln_f.bias` [32] is missing";
        failed(
            &older,
            &[shapes, "`h.1.ln_2.bias` is [16] in the file, [32]", missing, "`h.2.ln_1.bias` is in"],
        );
    });
}

#[test]
fn invalid_sequence_lengths_heads_and_ids_are_errors() {
    let params = Params::new(0);
    let gpt = Gpt::new(&params, &CONFIG).expect("valid sizes");
    let traced = TrainStep::trace(&params, |trace| {
        gpt.loss(&trace.ids("ids", [2, 25], 61), &trace.labels("labels", [50], 61))
    });
    let error = traced.expect_err("too long");
    let Error::Trace(mistakes) = &error else { panic!("{error:?}") };
    assert_eq!(mistakes.len(), 1, "{error}");
    let text = error.to_string();
    assert!(text.contains("25 tokens") && text.contains("24 rows") && text.contains("gpt2.rs"), "{text}");
    let error = Gpt::new(&Params::new(0), &GptConfig { heads: 5, ..CONFIG }).expect_err("32 / 5");
    assert!(
        matches!(&error, Error::Setting { message, .. } if message.contains("5 heads") && message.contains("32")),
        "{error}"
    );
    on_each(devices(), |device| {
        let mut session = logits(device, &CONFIG, device.limits());
        let error = session.feed("ids", &[61u32; 34]).expect_err("61 is no token");
        assert!(matches!(&error, Error::Input { message, .. } if message.contains("61")), "{error}");
    });
}
