//! Llama and its relatives as in the transformers library: models read from its folders, logits, gradients, training, and
//! files that it can read. `golden/llama.py` made the folders and documents the names.

use std::path::PathBuf;

use crate::support::close::{Near, assert_close};
use crate::support::folder::Folder;
use crate::support::golden::{File, integers, path, read, read_at, wide};
use crate::support::{both_classes, devices, on_each};
use wgrad::Error;
use wgrad::compile::{Forward, PlanOptions};
use wgrad::exec::{Debug, LoadOptions, ProgramId, Rename, Sampling, Session};
use wgrad::graph::Params;
use wgrad::models::{Model, ModelOptions};
use wgrad::optim::{Optimizer, Sgd};

const NAMES: [&str; 6] = ["llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3"];
/// Sequences of the golden values.
const BATCH: usize = 2;

fn open(name: &str) -> (Model, PathBuf, File) {
    let folder = path("llama").join(name);
    let options = ModelOptions { seq: Some(17), ..ModelOptions::default() };
    let model = Model::open(Params::new(0), &folder, &options).expect("a folder");
    (model, folder, read(&format!("llama/{name}.safetensors")))
}

fn load(session: &mut Session, model: &Model, path: &PathBuf) {
    let options = LoadOptions { rename: Rename::By(model.rename()), ..LoadOptions::default() };
    let report = session.load_with(path, &options).expect("it fits");
    assert!(report.is_complete(), "{report}");
}

#[test]
fn logits_of_transformers_folders_match() {
    on_each(devices(), |device| {
        for (name, limits) in
            NAMES.iter().flat_map(|name| both_classes(device).into_iter().map(move |limits| (name, limits)))
        {
            let (model, folder, golden) = open(name);
            let plan = model.forward(BATCH).expect("valid").plan(&limits).expect("it can be planned");
            let mut session = Session::new(device, &plan).expect("it opens");
            load(&mut session, &model, &folder);
            session.feed("x", &integers(&golden["ids"].1)).expect("valid ids");
            session.step().expect("it runs");
            let found: Vec<f32> = session.output(ProgramId(0), "logits").expect("an output");
            assert_close(name, &found, &wide(&golden["logits"].1), Near { rel: 1e-5, abs: 3e-5 });
        }
    });
}

/// The logits after one position are those of all positions, whatever is after it.
#[test]
fn the_next_token_is_predicted_from_those_before_it() {
    let names = |device| ["llama", "gemma2"].map(|name| (device, name));
    for (device, name) in devices().iter().flat_map(names) {
        let (model, folder, golden) = open(name);
        let next = Forward::trace(model.params(), "next", |trace| model.next_logits(trace)).expect("valid");
        let limits = device.limits();
        let plans = [model.forward(1).expect("valid").plan(limits), next.plan(limits)].map(Result::unwrap);
        let mut session = Session::with_plans(device, &plans.iter().collect::<Vec<_>>(), Debug::default())
            .expect("it opens");
        load(&mut session, &model, &folder);
        let mut ids = integers(&golden["ids"].1)[..17].to_vec();
        session.feed_to(ProgramId(0), "x", &ids).expect("valid ids");
        session.run(ProgramId(0)).expect("it runs");
        let all: Vec<f32> = session.output(ProgramId(0), "logits").expect("an output");
        ids[6..].fill(0);
        session.feed_to(ProgramId(1), "x", &ids).expect("valid ids");
        session.feed_to(ProgramId(1), "at", &[5u32]).expect("a position");
        session.run(ProgramId(1)).expect("it runs");
        let one: Vec<f32> = session.output(ProgramId(1), "next").expect("an output");
        let row = &all[5 * model.classes..6 * model.classes];
        assert_close("next", &one, &wide(row), Near { rel: 1e-5, abs: 1e-5 });
        // The most likely token of the last positions of a text that is longer than the window.
        let greedy = Sampling { temperature: 0.0, ..Sampling::default() };
        let text: Vec<u32> = [7, 7, 7].into_iter().chain(integers(&golden["ids"].1)[..17].to_vec()).collect();
        let token = session.next_token(ProgramId(1), &text, &greedy).expect("a token") as usize;
        let last = &all[16 * model.classes..];
        assert!(last.iter().all(|x| *x <= last[token] + 1e-5), "{token}");
        let error = session.next_token(ProgramId(1), &[], &greedy).unwrap_err();
        assert!(matches!(error, Error::Setting { .. }), "{error}");
        let error = session.next_token(ProgramId(0), &[1], &greedy).unwrap_err();
        assert!(matches!(error, Error::Unknown { .. }), "{error}");
    }
    let model = Model::named("bert-base", 0).expect("known");
    let error = Forward::trace(model.params(), "next", |trace| model.next_logits(trace)).unwrap_err();
    assert!(error.to_string().contains("`bert-base` does not predict the next token"), "{error}");
}

/// Opens a training session on the weights of a folder.
fn training(device: &wgrad::device::Device, name: &str, optimizer: Optimizer) -> (Session, Model, File) {
    let (model, folder, golden) = open(name);
    let options = PlanOptions { optimizer, ..PlanOptions::default() };
    let step = model.train_step(BATCH).expect("valid");
    let plan = step.plan(&options, device.limits()).expect("it can be planned");
    let mut session = Session::new(device, &plan).expect("it opens");
    load(&mut session, &model, &folder);
    for (input, values) in [("x", "ids"), ("y", "labels")] {
        session.feed(input, &integers(&golden[values].1)).expect("valid indices");
    }
    (session, model, golden)
}

#[test]
fn loss_and_gradients_match_transformers() {
    on_each(devices(), |device| {
        for name in NAMES {
            // The momentum after one step is the gradient.
            let optimizer = Sgd { lr: 0.0, momentum: 0.5, ..Sgd::default() };
            let (mut session, _, golden) = training(device, name, optimizer.into());
            session.step().expect("it runs");
            let loss = session.loss().expect("a finite loss");
            assert_close("loss", &[loss], &wide(&golden["loss"].1), Near { rel: 3e-6, abs: 0.0 });
            let mut gradients = 0;
            for (entry, (_, expected)) in &golden {
                let Some(parameter) = entry.strip_prefix("grad/") else { continue };
                let found = session.parameter(&format!("{parameter}.momentum_buffer")).expect("state");
                let what = format!("{name}: {entry}");
                assert_close(&what, &found, &wide(expected), Near { rel: 1e-4, abs: 2e-5 });
                gradients += 1;
            }
            assert!(gradients >= 10, "{name}: {gradients} gradients");
        }
    });
}

#[test]
fn losses_of_five_steps_match_transformers() {
    on_each(devices(), |device| {
        for name in NAMES {
            let sgd = Sgd { lr: 0.1, ..Sgd::default() };
            let (mut session, _, golden) = training(device, name, sgd.into());
            let losses: Vec<f32> = (0..6)
                .map(|_| {
                    session.step().expect("it runs");
                    session.loss().expect("a finite loss")
                })
                .collect();
            assert_close(name, &losses, &wide(&golden["losses"].1), Near { rel: 1e-4, abs: 1e-5 });
        }
    });
}

/// The names in a saved file are those of transformers: `golden/llama.py --check` loads it there.
#[test]
fn saved_files_have_the_tensors_of_transformers() {
    let device = &devices()[0];
    let folder_of_test = Folder::new("llama");
    let target = folder_of_test.join("saved.safetensors");
    for name in ["llama", "qwen3", "gemma2"] {
        let (model, folder, _) = open(name);
        let plan = model.forward(1).expect("valid").plan(device.limits()).expect("it can be planned");
        let mut session = Session::new(device, &plan).expect("it opens");
        load(&mut session, &model, &folder);
        session.save(&target).expect("saved");
        let saved = read_at(&target);
        assert_eq!(saved.len(), model.params().list().len(), "{name}");
        if name == "llama" {
            for part in ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"] {
                for (tensor, values) in read_at(&folder.join(part)) {
                    assert_eq!(saved[&tensor], values, "{tensor}");
                }
            }
        }
    }
}

#[test]
fn folders_that_do_not_fit_are_errors() {
    let device = &devices()[0];
    let folder = Folder::new("llama-folder");
    let message = |error: Error| error.to_string();
    let opened = || Model::open(Params::new(0), &*folder, &ModelOptions::default()).map(drop);
    assert!(message(opened().unwrap_err()).contains("config.json"));
    let theirs = path("llama/llama");
    for file in ["config.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors"] {
        std::fs::copy(theirs.join(file), folder.join(file)).expect("copied");
    }
    let model = Model::open(Params::new(0), &*folder, &ModelOptions::default()).expect("a folder");
    let plan = model.forward(1).expect("valid").plan(device.limits()).expect("it can be planned");
    let mut session = Session::new(device, &plan).expect("it opens");
    let missing = message(session.load(&*folder).unwrap_err());
    assert!(missing.contains("model-00002-of-00002.safetensors"), "{missing}");
    let part = |n: u32| format!("model-0000{n}-of-00002.safetensors");
    std::fs::copy(theirs.join(part(1)), folder.join(part(2))).expect("copied");
    let elsewhere = message(session.load(&*folder).unwrap_err());
    assert!(elsewhere.contains("the index has `lm_head.weight` in this file"), "{elsewhere}");
}
