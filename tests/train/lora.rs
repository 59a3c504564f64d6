//! Low-rank adapters as PEFT has them: its files, logits, gradients and training over a frozen base, and files that it can
//! read. `golden/lora.py` made the values and documents the names.

use std::path::{Path, PathBuf};

use crate::support::close::{Near, assert_close};
use crate::support::folder::Folder;
use crate::support::golden::{File, integers, path, read, read_at, wide};
use crate::support::{both_classes, devices, on_each};
use wgrad::Error;
use wgrad::compile::{Forward, PlanOptions, TrainStep};
use wgrad::device::Device;
use wgrad::dtype::FrozenStorage;
use wgrad::exec::{ProgramId, SaveOptions, Session};
use wgrad::graph::{Init, LoraConfig, Param, Params};
use wgrad::limits::Limits;
use wgrad::models::{Gpt, GptConfig, Model, ModelOptions, Sequence};
use wgrad::nn::Lora;
use wgrad::optim::Sgd;

const NAMES: [&str; 4] = ["llama", "gpt2", "llama-dora", "gpt2-dora"];

/// A model with the adapters of a golden folder, or without any.
struct Adapted {
    params: Params,
    network: Network,
    base: PathBuf,
    classes: u32,
    golden: File,
}

enum Network {
    Llama(Model),
    Gpt(Gpt),
}

fn config(name: &str) -> LoraConfig {
    let llama = name.starts_with("llama");
    let targets: &[&str] = if llama { &["q_proj", "v_proj", "down_proj"] } else { &["c_attn"] };
    let targets = targets.iter().map(|&target| target.to_owned()).collect();
    LoraConfig { rank: 4, alpha: 6.0, dora: name.ends_with("-dora"), targets, ..LoraConfig::default() }
}

impl Adapted {
    fn new(name: &str, lora: Option<&LoraConfig>) -> Self {
        let params = Params::new(0);
        if let Some(lora) = lora {
            params.adapt(lora).expect("valid");
        }
        let golden = read(&format!("lora/{name}.safetensors"));
        if name.starts_with("llama") {
            let base = path("llama/llama");
            let options = ModelOptions { seq: Some(17), ..ModelOptions::default() };
            let model = Model::open(params.clone(), &base, &options).expect("a folder");
            return Self { params, network: Network::Llama(model), base, classes: 53, golden };
        }
        let sizes = GptConfig { vocabulary: 61, context: 24, layers: 2, heads: 2, width: 32, dropout: 0.0 };
        let network = Network::Gpt(Gpt::new(&params, &sizes).expect("valid sizes"));
        Self { params, network, base: path("gpt2_model.safetensors"), classes: 61, golden }
    }

    fn forward(&self) -> Forward {
        let forward = Forward::trace(&self.params, "logits", |trace| {
            let ids = trace.ids("ids", [2, 17], self.classes);
            match &self.network {
                Network::Llama(model) => model.logits(&ids),
                Network::Gpt(gpt) => gpt.logits(&ids),
            }
        });
        forward.expect("valid")
    }

    fn step(&self) -> TrainStep {
        let step = TrainStep::trace(&self.params, |trace| {
            let ids = trace.ids("ids", [2, 17], self.classes);
            let labels = trace.labels("labels", [2 * 17], self.classes);
            match &self.network {
                Network::Llama(model) => model.logits(&ids).reshape([34, 53]).cross_entropy(&labels),
                Network::Gpt(gpt) => gpt.loss(&ids, &labels),
            }
        });
        step.expect("valid")
    }

    fn load(&self, session: &mut Session, file: &Path) {
        let name_of: fn(&str) -> Option<String> = match &self.network {
            Network::Llama(model) => model.rename(),
            Network::Gpt(_) => Gpt::hugging_face_name,
        };
        session.load_named(file, name_of).expect("it fits");
    }

    /// Opens a training session with the base's weights and the golden adapters.
    fn training(&self, device: &Device, name: &str, sgd: Sgd, limits: &Limits) -> Session {
        let options = PlanOptions { optimizer: sgd.into(), ..PlanOptions::default() };
        let plan = self.step().plan(&options, limits).expect("it can be planned");
        let mut session = Session::new(device, &plan).expect("it opens");
        self.load(&mut session, &self.base);
        session.load_adapter(path("lora").join(name)).expect("adapters of the model");
        for input in ["ids", "labels"] {
            session.feed(input, &integers(&self.golden[input].1)).expect("valid indices");
        }
        session
    }

    /// The logits of the golden ids.
    fn logits(&self, session: &mut Session) -> Vec<f32> {
        session.feed("ids", &integers(&self.golden["ids"].1)).expect("valid ids");
        session.step().expect("it runs");
        session.output(ProgramId(0), "logits").expect("an output")
    }
}

fn losses(session: &mut Session, steps: usize) -> Vec<f32> {
    let step = |_| {
        session.step().expect("it runs");
        session.loss().expect("a finite loss")
    };
    (0..steps).map(step).collect()
}

/// A file without the base goes into a session that has it, and leaves it as it is.
#[test]
fn files_without_frozen_parameters_keep_those_of_the_session() {
    on_each(devices(), |device| {
        let lora = LoraConfig { base: Some(FrozenStorage::Nf4), ..config("llama") };
        let adapted = Adapted::new("llama", Some(&lora));
        let sgd = Sgd { lr: 0.1, momentum: 0.5, ..Sgd::default() };
        let mut session = adapted.training(device, "llama", sgd, device.limits());
        let folder = Folder::new("without-frozen");
        let (small, whole) = (folder.join("small.safetensors"), folder.join("whole.safetensors"));
        losses(&mut session, 2);
        let options = SaveOptions { without_frozen: true, ..SaveOptions::training_state() };
        session.save_with(&small, &options).expect("saved");
        session.save_with(&whole, &SaveOptions::training_state()).expect("saved");
        let names = |file: &Path| read_at(file).into_keys().collect::<Vec<_>>();
        assert!(names(&small).iter().all(|name| name.contains(".lora_")), "{:?}", names(&small));
        assert_eq!(names(&whole).len(), names(&small).len() + 21);
        let hash = session.parameters_hash().expect("parameters");
        let after = losses(&mut session, 2);
        let mut other = adapted.training(device, "llama", sgd, device.limits());
        other.load(&small).expect("it fits");
        assert_eq!((other.steps(), other.parameters_hash().expect("parameters")), (2, hash));
        assert_eq!(losses(&mut other, 2), after);
    });
}

#[test]
fn gradients_and_losses_of_adapters_match_peft() {
    on_each(devices(), |device| {
        for (name, limits) in
            NAMES.iter().flat_map(|name| both_classes(device).into_iter().map(move |limits| (name, limits)))
        {
            let adapted = Adapted::new(name, Some(&config(name)));
            let still = Sgd { lr: 0.0, momentum: 0.5, ..Sgd::default() };
            let mut session = adapted.training(device, name, still, &limits);
            session.step().expect("it runs");
            let mut gradients = 0;
            for (entry, (_, expected)) in &adapted.golden {
                let Some(parameter) = entry.strip_prefix("grad/") else { continue };
                let own = parameter.replace("lora_magnitude_vector", "lora_magnitude_change");
                let found = session.parameter(&format!("{own}.momentum_buffer")).expect("state");
                let what = format!("{name}: {entry}");
                assert_close(&what, &found, &wide(expected), Near { rel: 1e-4, abs: 2e-5 });
                gradients += 1;
            }
            let layers = if name.starts_with("llama") { 3 } else { 1 };
            assert_eq!(gradients, layers * if name.ends_with("-dora") { 3 } else { 2 }, "{name}");
            let moving = Sgd { lr: 0.1, ..Sgd::default() };
            let mut session = adapted.training(device, name, moving, &limits);
            let base = |session: &mut Session| {
                let frozen = |param: &Param| (!param.trained()).then(|| param.name().to_owned());
                let names: Vec<String> = adapted.params.list().iter().filter_map(frozen).collect();
                names.iter().map(|name| session.parameter(name).expect("there")).collect::<Vec<_>>()
            };
            let before = base(&mut session);
            let found = losses(&mut session, 6);
            let near = Near { rel: 1e-4, abs: 1e-5 };
            assert_close(name, &found, &wide(&adapted.golden["losses"].1), near);
            assert!(before == base(&mut session), "{name}: the base moved");
        }
    });
}

#[test]
fn adapters_are_read_swapped_written_and_merged() {
    let folder = Folder::new("lora");
    on_each(devices(), |device| {
        for name in NAMES {
            let adapted = Adapted::new(name, Some(&config(name)));
            let plan = adapted.forward().plan(device.limits()).expect("it can be planned");
            let mut session = Session::new(device, &plan).expect("it opens");
            adapted.load(&mut session, &adapted.base);
            let without = adapted.logits(&mut session);
            let read = LoraConfig::open(path("lora").join(name)).expect("a folder");
            assert_eq!((read.rank, read.alpha, read.dora), (4, 6.0, name.ends_with("-dora")));
            let fresh = folder.join(format!("{name}-fresh"));
            session.save_adapter(&fresh).expect("saved");
            session.load_adapter(path("lora").join(name)).expect("adapters of the model");
            let with = adapted.logits(&mut session);
            let near = Near { rel: 1e-5, abs: 3e-5 };
            assert_close(name, &with, &wide(&adapted.golden["logits"].1), near);
            assert_ne!(with, without, "{name}");
            // Read back, the adapters are the same, bit for bit.
            let (saved, merged) = (folder.join(name), folder.join(format!("{name}.safetensors")));
            session.save_adapter(&saved).expect("saved");
            let options = SaveOptions { merged: true, ..SaveOptions::default() };
            session.save_with(&merged, &options).expect("saved");
            session.load_adapter(&fresh).expect("fresh adapters");
            assert_eq!(adapted.logits(&mut session), without, "{name}: B of fresh adapters is 0");
            session.load_adapter(&saved).expect("its own");
            assert_eq!(adapted.logits(&mut session), with, "{name}");
            let plain = Adapted::new(name, None);
            let plan = plain.forward().plan(device.limits()).expect("it can be planned");
            let mut session = Session::new(device, &plan).expect("it opens");
            plain.load(&mut session, &merged);
            assert_close(name, &plain.logits(&mut session), &wide(&adapted.golden["logits"].1), near);
        }
    });
}

/// A frozen base in 16 bits: bytes of the plan are those created, and the loss is near the one in 32 bits.
#[test]
fn frozen_weights_are_stored_in_16_bits_and_adapters_in_32() {
    on_each(devices(), |device| {
        let bases = [
            ("llama", FrozenStorage::Bf16),
            ("gpt2", FrozenStorage::F16),
            ("llama-dora", FrozenStorage::Bf16),
            ("gpt2-dora", FrozenStorage::F16),
        ];
        for (name, base) in bases {
            let lora = LoraConfig { base: Some(base), ..config(name) };
            let adapted = Adapted::new(name, Some(&lora));
            let sgd = Sgd { lr: 0.1, ..Sgd::default() };
            let mut session = adapted.training(device, name, sgd, device.limits());
            let plan = session.plan(ProgramId(0)).expect("its plan").clone();
            let of = |name: &str| {
                let values = &plan.graph().values;
                values.iter().find(|value| value.name == name).map(|value| value.dtype)
            };
            for param in adapted.params.list() {
                let large = param.shape().rank() == 2 && param.shape().numel() >= 1024;
                let wanted = if large && !param.trained() { base } else { FrozenStorage::F32 };
                if let Some(dtype) = of(param.name()) {
                    assert_eq!(dtype, wanted.dtype(), "{name}: {}", param.name());
                }
            }
            let found = losses(&mut session, 6);
            let near = Near { rel: 0.02, abs: 0.02 };
            assert_close(name, &found, &wide(&adapted.golden["losses"].1), near);
        }
    });
}

#[test]
fn adapters_that_do_not_fit_are_errors() {
    let device = &devices()[0];
    let folder = Folder::new("lora-errors");
    let message = |error: Error| error.to_string();
    let opened = |adapted: &Adapted| {
        let plan = adapted.forward().plan(device.limits()).expect("it can be planned");
        Session::new(device, &plan).expect("it opens")
    };
    let mut plain = opened(&Adapted::new("llama", None));
    for error in [
        plain.save_adapter(folder.join("a")),
        plain.load_adapter(path("lora/llama")),
        plain.save_with(folder.join("b"), &SaveOptions { merged: true, ..SaveOptions::default() }),
    ] {
        assert!(message(error.unwrap_err()).contains("no adapters"));
    }
    let mut session = opened(&Adapted::new("llama", Some(&config("llama"))));
    let said = message(session.load_adapter(path("lora/llama-dora")).unwrap_err());
    assert!(said.contains("`use_dora` is true, the session's adapters have false"), "{said}");
    let other = LoraConfig { rank: 8, ..config("llama") };
    let mut session = opened(&Adapted::new("llama", Some(&other)));
    let said = message(session.load_adapter(path("lora/llama")).unwrap_err());
    assert!(said.contains("`r` is 4, the session's adapters have 8"), "{said}");
    let fewer = LoraConfig { targets: vec!["q_proj".to_owned()], ..config("llama") };
    let mut session = opened(&Adapted::new("llama", Some(&fewer)));
    let said = message(session.load_adapter(path("lora/llama")).unwrap_err());
    assert!(said.contains("v_proj.lora_A.weight` is in the file, not in the model"), "{said}");
    let said = message(session.load_adapter(&*folder).unwrap_err());
    assert!(said.contains("adapter_config.json"), "{said}");
    // A target that is no layer's is named when a step is traced, with those that are.
    let params = Params::new(0);
    params.adapt(&LoraConfig { targets: vec!["qkv".to_owned()], ..config("llama") }).expect("valid");
    assert!(message(params.adapt(&config("llama")).unwrap_err()).contains("adapters already"));
    let model = Model::over(params, "llama-tiny", &ModelOptions::default()).expect("known");
    let said = message(model.train_step(1).map(drop).unwrap_err());
    assert!(said.contains("`qkv`") && said.contains("q_proj, up_proj, v_proj"), "{said}");
    let params = Params::new(0);
    let weight = params.add("kernel", [4, 3, 1, 1], Init::Constant(1.0));
    Lora::new(&params, &weight, &LoraConfig::default());
    let said = message(TrainStep::trace(&params, |trace| trace.param(&weight).sum(&[])).unwrap_err());
    assert!(said.contains("adapters of `kernel` [4, 3, 1, 1]: they adapt matrices"), "{said}");
}
