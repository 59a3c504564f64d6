//! Weight files of other programs: state dicts as PyTorch writes them, every floating-point type, different
//! names, and files that match only in part. `golden/state_dict.py` made PyTorch's files.
#![cfg(feature = "safetensors")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::support::close::{Near, assert_close, assert_same_bits};
use crate::support::golden::{path, read, wide};
use crate::support::{devices, noise, on_each, some_labels};
use half::{bf16, f16};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use wgrad::Error;
use wgrad::compile::{Forward, Offload, Plan, PlanOptions, TrainStep};
use wgrad::device::Device;
use wgrad::dtype::{DType, Rounding, WeightStorage};
use wgrad::exec::SaveOptions;
use wgrad::exec::{Converted, Debug, Ignored, LoadOptions, LoadReport, ProgramId, Rename, Session};
use wgrad::graph::{Init, Params, Tensor, Window};
use wgrad::nn::{BatchNorm2d, Conv2d, Linear, Module};
use wgrad::optim::{AdamW, Optimizer, Sgd};

/// The network of `golden/state_dict.py`.
struct Net {
    conv: Conv2d,
    bn: BatchNorm2d,
    fc: Linear,
}

impl Net {
    fn new(params: &Params) -> Self {
        let window = Window { stride: [2, 2], padding: [1, 1], ..Window::square(3) };
        Self {
            conv: Conv2d::without_bias(&params.scope("conv"), 3, 8, window),
            bn: BatchNorm2d::new(&params.scope("bn"), 8),
            fc: Linear::new(&params.scope("fc"), 128, 10),
        }
    }
}

impl Module for Net {
    fn forward(&self, x: &Tensor) -> Tensor {
        x.apply(&self.conv).apply(&self.bn).relu().reshape([x.dim(0), 128]).apply(&self.fc)
    }
}

/// Parameters of the network, including running statistics.
const PARAMETERS: [&str; 7] =
    ["bn.bias", "bn.running_mean", "bn.running_var", "bn.weight", "conv.weight", "fc.bias", "fc.weight"];

pub(super) struct Plans {
    pub(super) train: Plan,
    pub(super) evaluate: Plan,
}

/// Returns a step of a network whose state is large enough for the host's memory and for 8 bits; it takes the
/// inputs that [`train`] feeds.
fn large(device: &Device, options: &PlanOptions) -> Plan {
    let params = Params::new(0);
    let layers = [(192, 64), (64, 10)].map(|(i, o)| Linear::new(&params.scope(format!("fc{o}")), i, o));
    let step = TrainStep::trace(&params, |trace| {
        let x = trace.input("x", [4, 3, 8, 8]).reshape([4, 192]);
        x.apply(&layers[0]).relu().apply(&layers[1]).cross_entropy(&trace.labels("y", [4], 10))
    });
    step.expect("valid").plan(options, device.limits()).expect("planned")
}

/// Returns a step of 4 images and an evaluation of 5.
pub(super) fn plans(device: &Device, options: &PlanOptions) -> Plans {
    let params = Params::new(0);
    let net = Net::new(&params);
    let step = TrainStep::trace(&params, |trace| {
        net.forward(&trace.input("x", [4, 3, 8, 8])).cross_entropy(&trace.labels("y", [4], 10))
    });
    let forward = Forward::trace(&params, "logits", |trace| net.forward(&trace.input("x", [5, 3, 8, 8])));
    let limits = device.limits();
    Plans {
        train: step.expect("valid").plan(options, limits).expect("planned"),
        evaluate: forward.expect("valid").plan_with(options.weights, limits).expect("planned"),
    }
}

pub(super) fn adamw() -> PlanOptions {
    PlanOptions { optimizer: AdamW { lr: 0.01, ..AdamW::default() }.into(), ..PlanOptions::default() }
}

pub(super) fn open(device: &Device, plan: &Plan) -> Session {
    Session::new(device, plan).expect("it opens")
}

fn train(session: &mut Session, steps: std::ops::Range<u64>) {
    for at in steps {
        session.feed("x", &noise(at, 4 * 3 * 64, -1.0, 1.0)).expect("valid");
        session.feed("y", &some_labels(at, 4, 10)).expect("valid");
        session.step().expect("it runs");
    }
    session.loss().expect("a finite loss");
}

/// Returns the persistent tensors, by name.
pub(super) fn state(session: &mut Session) -> BTreeMap<String, Vec<f32>> {
    let program = &session.plan(ProgramId(0)).expect("the first").program;
    let names: Vec<String> =
        program.storages.iter().filter(|s| s.is_state()).map(|s| s.name.clone()).collect();
    names.into_iter().map(|n| (n.clone(), session.parameter(&n).expect("there"))).collect()
}

pub(super) fn assert_same(
    what: &str,
    wanted: &BTreeMap<String, Vec<f32>>,
    found: &BTreeMap<String, Vec<f32>>,
) {
    assert_eq!(wanted.keys().collect::<Vec<_>>(), found.keys().collect::<Vec<_>>(), "{what}");
    wanted
        .iter()
        .for_each(|(name, wanted)| assert_same_bits(&format!("{what}: {name}"), wanted, &found[name]));
}

/// A temporary file that is deleted when dropped.
struct Scratch(PathBuf);

type Tensors = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

impl Scratch {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("wgrad-files-{}-{name}.safetensors", std::process::id())))
    }

    fn write(&self, tensors: &Tensors, steps: Option<u64>) {
        let views = tensors.iter().map(|(name, (dtype, shape, bytes))| {
            (name.clone(), TensorView::new(*dtype, shape.clone(), bytes).expect("shape and data agree"))
        });
        let notes = steps.map(|steps| [("steps".to_owned(), steps.to_string())].into());
        std::fs::write(&self.0, safetensors::serialize(views, notes).expect("valid")).expect("written");
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn tensors(path: &Path) -> Tensors {
    let bytes = std::fs::read(path).expect("there");
    let file = SafeTensors::deserialize(&bytes).expect("a safetensors file");
    let one = |(name, view): (String, TensorView)| {
        (name, (view.dtype(), view.shape().to_vec(), view.data().to_vec()))
    };
    file.tensors().into_iter().map(one).collect()
}

fn golden(dtype: &str) -> PathBuf {
    path(&format!("state_dict_{dtype}.safetensors"))
}

fn not_strict() -> LoadOptions {
    LoadOptions { strict: false, ..LoadOptions::default() }
}

pub(super) fn logits(session: &mut Session, id: ProgramId) -> Vec<f32> {
    session.feed_to(id, "x", &read("state_dict.safetensors")["x"].1).expect("valid");
    session.run(id).expect("it runs");
    session.output(id, "logits").expect("an output")
}

/// Compares with what PyTorch computes with the weights of the file in this type.
pub(super) fn assert_logits(found: &[f32], name: &str) {
    let wanted = wide(&read("state_dict.safetensors")[&format!("logits_{name}")].1);
    assert_close(&format!("logits of {name}"), found, &wanted, Near { rel: 0.0, abs: 3e-6 });
}

pub(super) fn refused(outcome: wgrad::Result<LoadReport>, parts: &[&str]) {
    let error = outcome.expect_err("it does not fit");
    assert!(matches!(error, Error::Weights { .. }), "{error:?}");
    parts.iter().for_each(|part| assert!(error.to_string().contains(part), "`{part}` is not in: {error}"));
}

#[test]
fn state_dicts_of_pytorch_load_in_every_type() {
    let ours = Scratch::new("ours");
    on_each(devices(), |device| {
        let plans = plans(device, &adamw());
        for (name, from) in [("f32", "F32"), ("f16", "F16"), ("bf16", "BF16"), ("f64", "F64")] {
            let mut session = Session::with_plans(device, &[&plans.train, &plans.evaluate], Debug::default())
                .expect("it opens");
            let report = session.load_with(golden(name), &LoadOptions::default()).expect("it fits");
            assert!(report.is_complete() && report.loaded == 7 && report.steps.is_none(), "{report}");
            assert_eq!(report.ignored, [("bn.num_batches_tracked".to_owned(), Ignored::BatchCount)]);
            let converted: Vec<_> = report.converted.iter().map(|c| (&*c.name, &*c.from, c.to)).collect();
            let wanted = PARAMETERS.map(|parameter| (parameter, from, DType::F32));
            assert_eq!(converted, if name == "f32" { &[][..] } else { &wanted });
            assert!(report.converted.iter().all(|c| c.overflowed == 0));
            assert_logits(&logits(&mut session, ProgramId(1)), name);
        }
        // The two shorter methods.
        let mut session = open(device, &plans.evaluate);
        session.load(golden("f32")).expect("it fits");
        assert_logits(&logits(&mut session, ProgramId(0)), "f32");
        session.load_named(golden("f64"), |name| Some(name.to_owned())).expect("it fits");

        // A saved file equals PyTorch's, except for the batch count.
        session.load(golden("f32")).expect("it fits");
        session.save(&ours.0).expect("saved");
        let mut theirs = tensors(&golden("f32"));
        theirs.remove("bn.num_batches_tracked").expect("there");
        assert_eq!(tensors(&ours.0), theirs);
    });
}

/// Some numbers of every type, loaded into a weight that is stored in 16 bits, and their nearest values.
#[test]
fn elements_are_rounded_once_to_the_type_of_the_session() {
    let odd = 1.0 + 2f64.powi(-11) + 2f64.powi(-45);
    let numbers =
        [0.1, odd, 1.0 + 2f64.powi(-8) + 2f64.powi(-40), -1e5, 1e39, -0.0, 65_519.0, 1e-8, f64::INFINITY];
    let params = Params::new(0);
    let w = params.add("w", [64, 16], Init::Constant(0.0));
    let step = TrainStep::trace(&params, |trace| trace.param(&w).square().sum(&[])).expect("valid");
    let file = Scratch::new("nearest");
    on_each(devices(), |device| {
        for (from, width) in [(Dtype::F64, 8), (Dtype::F32, 4), (Dtype::F16, 2), (Dtype::BF16, 2)] {
            let one = |x: &f64| match from {
                Dtype::F64 => (x.to_le_bytes().to_vec(), *x),
                Dtype::F32 => ((*x as f32).to_le_bytes().to_vec(), f64::from(*x as f32)),
                Dtype::F16 => (f16::from_f64(*x).to_le_bytes().to_vec(), f16::from_f64(*x).to_f64()),
                _ => (bf16::from_f64(*x).to_le_bytes().to_vec(), bf16::from_f64(*x).to_f64()),
            };
            // The bytes in the file, and their values in f64.
            let (bytes, exact): (Vec<_>, Vec<f64>) = numbers.iter().map(one).unzip();
            let bytes: Vec<u8> = bytes.into_iter().cycle().take(1024).flatten().collect();
            assert_eq!(bytes.len(), 1024 * width);
            file.write(&[("w".to_owned(), (from, vec![64, 16], bytes))].into(), None);
            for (weights, to) in [
                (WeightStorage::F32, DType::F32),
                (WeightStorage::F16(Rounding::Stochastic), DType::F16),
                (WeightStorage::Bf16(Rounding::Nearest), DType::BF16),
            ] {
                let optimizer: Optimizer = Sgd::default().into();
                let options = PlanOptions { optimizer, weights, ..PlanOptions::default() };
                let mut session = open(device, &step.plan(&options, device.limits()).expect("planned"));
                let accept = LoadOptions { accept_non_finite: true, ..LoadOptions::default() };
                let report = session.load_with(&file.0, &accept).expect("it fits");
                let what = format!("{from:?} as {to}");
                let rounded: Vec<f32> = exact.iter().map(|x| nearest(*x, to)).collect();
                let wanted: Vec<f32> = rounded.iter().copied().cycle().take(1024).collect();
                // Unless accepted, the first infinity is an error, which changes nothing.
                let refusal = session.load(&file.0).expect_err("an infinity");
                let first = rounded.iter().position(|x| x.is_infinite()).expect("one") as u64;
                assert!(matches!(refusal, Error::NotFinite { index, .. } if index == first), "{refusal}");
                assert_same_bits(&what, &wanted, &session.parameter("w").expect("there"));
                let infinite = |i: usize| exact[i].is_finite() && rounded[i].is_infinite();
                let overflowed = (0..1024).filter(|i| infinite(i % exact.len())).count() as u64;
                assert_eq!(overflowed > 0, overflows(from, to), "{what}");
                let converted = Converted { name: "w".to_owned(), from: format!("{from:?}"), to, overflowed };
                let same = format!("{from:?}").to_lowercase() == to.name();
                assert_eq!(report.converted, if same { vec![] } else { vec![converted] }, "{what}");
            }
        }
    });
}

/// Whether the numbers of the test above overflow: 1e39 of f64 in every type, 1e5 in `f16`.
fn overflows(from: Dtype, to: DType) -> bool {
    from == Dtype::F64 || (to == DType::F16 && from != Dtype::F16)
}

/// Returns the nearest number of a type by searching all of its numbers; ties go to even.
fn nearest(x: f64, to: DType) -> f32 {
    let number = |bits: u16| match to {
        DType::F16 => f16::from_bits(bits).to_f64(),
        _ => bf16::from_bits(bits).to_f64(),
    };
    if to == DType::F32 {
        return x as f32;
    }
    let infinite = if to == DType::F16 { f16::INFINITY.to_bits() } else { bf16::INFINITY.to_bits() };
    // Infinity is treated as the number that would come after the largest.
    let apart = |bits: u16| {
        let [largest, before] = [1, 2].map(|less| number(infinite - less));
        let y = if bits == infinite { 2.0 * largest - before } else { number(bits) };
        (x.abs().min(2.0 * largest) - y).abs()
    };
    let magnitude = if x.is_infinite() {
        infinite
    } else {
        (0..=infinite)
            .min_by(|a, b| apart(*a).total_cmp(&apart(*b)).then((a % 2).cmp(&(b % 2))))
            .expect("some")
    };
    (number(magnitude) as f32).copysign(x as f32)
}

#[test]
fn rename_rules_map_names_of_other_programs() {
    let file = Scratch::new("prefix");
    let with = |prefix: &str| {
        tensors(&golden("f16"))
            .into_iter()
            .map(|(name, tensor)| (format!("{prefix}{name}"), tensor))
            .collect()
    };
    on_each(devices(), |device| {
        let Plans { evaluate, .. } = plans(device, &adamw());
        let mut session = open(device, &evaluate);
        session.load(golden("f16")).expect("it fits");
        let wanted = state(&mut session);
        file.write(&with("module."), None);
        let mut session = open(device, &evaluate);
        let before = state(&mut session);
        let hint = "`LoadOptions { rename: Rename::prefix([(\"module.\", \"\")]), .. }`";
        let missing = "`fc.weight` [10, 128] is missing, the model holds it as f32";
        let strange = "`module.fc.weight` is in the file, not in the model: F16 [10, 128]";
        refused(
            session.load_with(&file.0, &LoadOptions::default()),
            &[hint, missing, strange, "strict: false"],
        );
        assert_same("refused", &before, &state(&mut session));
        let rename = Rename::prefix([("module.", "")]);
        let options = LoadOptions { rename, ..LoadOptions::default() };
        let report = session.load_with(&file.0, &options).expect("it fits");
        assert!(report.is_complete(), "{report}");
        assert_eq!(report.ignored, [("module.bn.num_batches_tracked".to_owned(), Ignored::BatchCount)]);
        assert_same("without `module.`", &wanted, &state(&mut session));

        // Renamed by a function that leaves some tensors out.
        let rename =
            Rename::By(|name| Some(name.strip_prefix("module.")?.to_owned()).filter(|n| n != "fc.bias"));
        let mut session = open(device, &evaluate);
        let options = LoadOptions { strict: false, rename, ..LoadOptions::default() };
        let report = session.load_with(&file.0, &options).expect("it fits in part");
        assert_eq!((report.loaded, &report.missing[..]), (6, &["fc.bias".to_owned()][..]));
        assert!(report.ignored.contains(&("module.fc.bias".to_owned(), Ignored::LeftOut)), "{report}");
        assert_same_bits("left out", &before["fc.bias"], &session.parameter("fc.bias").expect("there"));
        assert_same_bits("loaded", &wanted["fc.weight"], &session.parameter("fc.weight").expect("there"));
        refused(
            session.load_with(&file.0, &LoadOptions { strict: true, ..options }),
            &["`fc.bias` [10] is missing"],
        );
    });
}

#[test]
fn missing_and_unexpected_tensors_are_reported_if_not_strict() {
    let file = Scratch::new("part");
    on_each(devices(), |device| {
        let Plans { train: plan, .. } = plans(device, &adamw());
        let mut part = tensors(&golden("f32"));
        let bias = part.remove("fc.bias").expect("there");
        part.insert("head.bias".to_owned(), bias);
        file.write(&part, None);
        let mut session = open(device, &plan);
        train(&mut session, 0..1);
        let before = state(&mut session);
        let parts = ["`fc.bias` [10] is missing", "`head.bias` is in the file, not in the model: F32 [10]"];
        refused(session.load_with(&file.0, &LoadOptions::default()), &parts);
        let report = session.load_with(&file.0, &not_strict()).expect("the rest fits");
        assert_eq!(
            (&report.missing[..], &report.unexpected[..]),
            (&["fc.bias".to_owned()][..], &["head.bias".to_owned()][..])
        );
        assert!(!report.is_complete() && report.loaded == 6);
        let text = report.to_string();
        for line in [
            "6 tensors loaded",
            "missing     `fc.bias`",
            "unexpected  `head.bias`",
            "`bn.num_batches_tracked`: counts",
        ] {
            assert!(text.contains(line), "{text}");
        }
        let after = state(&mut session);
        for (name, values) in &after {
            let wanted = match part.get(name) {
                Some((_, _, bytes)) => bytemuck::pod_collect_to_vec::<u8, f32>(bytes),
                None => before[name].clone(),
            };
            assert_same_bits(name, &wanted, values);
        }
        assert_eq!(session.steps(), 1);

        // Shapes and types must match even if `strict` is false.
        part.insert("fc.bias".to_owned(), (Dtype::F32, vec![12], vec![0; 48]));
        part.insert("bn.bias".to_owned(), (Dtype::I64, vec![8], vec![0; 64]));
        part.insert("bn.weight".to_owned(), (Dtype::F8_E4M3, vec![8], vec![0; 8]));
        file.write(&part, None);
        for options in [not_strict(), LoadOptions::default()] {
            refused(
                session.load_with(&file.0, &options),
                &[
                    "`fc.bias` is [12] in the file, [10] in the model: 12 rows where the model has 10",
                    "`bn.bias` is I64 [8] in the file, f32 [8] in the model, to which F16, BF16, F32 and F64 are converted",
                    "`bn.weight` is F8_E4M3 [8] in the file",
                    "help: `Rename::By` a function that gives `None`",
                ],
            );
        }
        assert_same("refused", &after, &state(&mut session));
    });
}

/// Only PyTorch's exact form is ignored: an I64 scalar of this name.
#[test]
fn only_i64_scalar_batch_counts_are_ignored() {
    let file = Scratch::new("counts");
    on_each(devices(), |device| {
        let Plans { evaluate, .. } = plans(device, &adamw());
        let mut session = open(device, &evaluate);
        for (dtype, shape, bytes) in [
            (Dtype::F32, vec![], 4),
            (Dtype::I64, vec![1], 8),
            (Dtype::I32, vec![], 4),
            (Dtype::I64, vec![3], 24),
        ] {
            let mut all = tensors(&golden("f32"));
            all.insert("bn.num_batches_tracked".to_owned(), (dtype, shape, vec![0; bytes]));
            file.write(&all, None);
            refused(
                session.load_with(&file.0, &LoadOptions::default()),
                &["`bn.num_batches_tracked` is in the file"],
            );
            let report = session.load_with(&file.0, &not_strict()).expect("the rest fits");
            assert_eq!(report.unexpected, ["bn.num_batches_tracked"]);
        }
        let mut all = tensors(&golden("f32"));
        let count = all.remove("bn.num_batches_tracked").expect("there");
        all.insert("bn.batches".to_owned(), count);
        file.write(&all, None);
        refused(
            session.load_with(&file.0, &LoadOptions::default()),
            &["`bn.batches` is in the file, not in the model: I64 []"],
        );
    });
}

/// A checkpoint with a name prefix and in another type, loaded into state that is offloaded to the host.
#[test]
fn optimizer_state_is_renamed_and_converted() {
    let (saved, file) = (Scratch::new("saved"), Scratch::new("state"));
    on_each(devices(), |device| {
        let away = PlanOptions { offload: Offload::OPTIMIZER, ..adamw() };
        let [near, away] = [adamw(), away].map(|options| large(device, &options));
        assert!(away.program.offloaded().count() > 0);
        let mut session = open(device, &near);
        train(&mut session, 0..3);
        session.save_with(&saved.0, &SaveOptions::training_state()).expect("saved");
        let wanted = state(&mut session);
        let wider = tensors(&saved.0).into_iter().map(|(name, (_, shape, bytes))| {
            let values = bytemuck::pod_collect_to_vec::<u8, f32>(&bytes);
            let bytes = values.iter().flat_map(|x| f64::from(*x).to_le_bytes()).collect();
            (format!("net.{name}"), (Dtype::F64, shape, bytes))
        });
        file.write(&wider.collect(), Some(3));
        train(&mut session, 3..5);
        let later = state(&mut session);
        for plan in [&near, &away] {
            let mut session = open(device, plan);
            let options = LoadOptions { rename: Rename::prefix([("net.", "")]), ..LoadOptions::default() };
            let report = session.load_with(&file.0, &options).expect("it fits");
            assert!(report.is_complete() && report.converted.len() == report.loaded, "{report}");
            assert_eq!((report.steps, session.steps()), (Some(3), 3));
            assert_same("loaded", &wanted, &state(&mut session));
            train(&mut session, 3..5);
            assert_same("trained on", &later, &state(&mut session));
        }
    });
}

/// Moments of only some parameters would give wrong updates: an optimizer's state is loaded completely, with
/// its step count, or not at all.
#[test]
fn partial_optimizer_state_is_not_loaded() {
    let file = Scratch::new("moments");
    on_each(devices(), |device| {
        let Plans { train: plan, evaluate } = plans(device, &adamw());
        let mut trained = open(device, &plan);
        train(&mut trained, 0..3);
        trained.save_with(&file.0, &SaveOptions::training_state()).expect("saved");
        let wanted = state(&mut trained);
        let mut all = tensors(&file.0);
        all.remove("fc.weight.exp_avg").expect("a moment");
        let moments = all.keys().filter(|name| name.contains(".exp_avg")).count();
        file.write(&all, Some(3));
        let mut session = open(device, &plan);
        refused(
            session.load_with(&file.0, &LoadOptions::default()),
            &["`fc.weight.exp_avg` [10, 128] is missing"],
        );
        let fresh = state(&mut session);
        let report = session.load_with(&file.0, &not_strict()).expect("the parameters fit");
        assert_eq!((report.loaded, report.steps, session.steps()), (7, None, 0));
        assert_eq!(report.missing, ["fc.weight.exp_avg"]);
        assert_eq!(report.ignored.iter().filter(|(_, why)| *why == Ignored::PartOfState).count(), moments);
        for (name, values) in state(&mut session) {
            let from = if PARAMETERS.contains(&&*name) { &wanted } else { &fresh };
            assert_same_bits(&name, &from[&name], &values);
        }

        // State of another optimizer is unexpected. A session without optimizer state continues counting from
        // the file's steps.
        let sgd =
            PlanOptions { optimizer: Sgd { lr: 0.1, ..Sgd::default() }.into(), ..PlanOptions::default() };
        let mut plain = open(device, &plans(device, &sgd).train);
        refused(
            plain.load_with(&file.0, &LoadOptions::default()),
            &["`fc.weight.exp_avg_sq` is in the file"],
        );
        let report = plain.load_with(&file.0, &not_strict()).expect("the parameters fit");
        assert_eq!((report.unexpected.len(), report.steps, plain.steps()), (moments, Some(3), 3));

        // A session that only evaluates needs no optimizer state.
        let mut forward = open(device, &evaluate);
        let report =
            forward.load_with(&file.0, &LoadOptions::default()).expect("parameters are all it needs");
        assert!(report.ignored.len() == moments && report.is_complete(), "{report}");
        assert!(report.ignored.iter().all(|(_, why)| *why == Ignored::OptimizerState));
    });
}

/// Codes of 8-bit Adam are words, not numbers: other types are not converted to them.
#[test]
fn codes_of_8_bit_state_are_not_converted() {
    let file = Scratch::new("codes");
    on_each(devices(), |device| {
        let options = PlanOptions {
            optimizer: Optimizer::named("adam8bit").expect("known"),
            weights: WeightStorage::Bf16(Rounding::Stochastic),
            ..PlanOptions::default()
        };
        let plan = large(device, &options);
        let mut trained = open(device, &plan);
        train(&mut trained, 0..2);
        trained.save_with(&file.0, &SaveOptions::training_state()).expect("saved");
        let mut session = open(device, &plan);
        let report = session.load_with(&file.0, &LoadOptions::default()).expect("it fits");
        let converted: Vec<_> = report.converted.iter().map(|c| (&*c.name, &*c.from, c.to)).collect();
        assert_eq!(converted, [("fc64.weight", "F32", DType::BF16)]);
        assert_same("as saved", &state(&mut trained), &state(&mut session));

        let mut all = tensors(&file.0);
        let codes = all.iter().find(|(_, (dtype, ..))| *dtype == Dtype::U32).expect("codes").0.clone();
        all.get_mut(&codes).expect("there").0 = Dtype::F32;
        file.write(&all, Some(2));
        let what = format!("`{codes}` is F32 ");
        refused(session.load_with(&file.0, &not_strict()), &[&what, "u32", "no other type is converted"]);
    });
}

/// The length of a header may have the first bytes of a pickle: `80 02` is 640.
#[test]
fn headers_of_640_bytes_are_no_pickles() {
    let file = Scratch::new("pickle");
    let good = std::fs::read(golden("f32")).expect("there");
    let end = 8 + u64::from_le_bytes(good[..8].try_into().expect("8 bytes")) as usize;
    let header = std::str::from_utf8(&good[8..end]).expect("text").trim_end();
    let header = header.strip_prefix('{').expect("an object");
    let notes = |pad: usize| format!("{{\"__metadata__\":{{\"pad\":\"{}\"}},{header}", "x".repeat(pad));
    let padded = notes(640 - notes(0).len());
    let bytes = [&640u64.to_le_bytes(), padded.as_bytes(), &good[end..]].concat();
    assert!(bytes.starts_with(b"\x80\x02"));
    std::fs::write(&file.0, bytes).expect("written");
    on_each(devices(), |device| {
        let mut session = open(device, &plans(device, &adamw()).evaluate);
        session.load(&file.0).expect("it fits");
        assert_logits(&logits(&mut session, ProgramId(0)), "f32");
    });
}

#[test]
fn damaged_files_are_refused_before_anything_is_loaded() {
    let file = Scratch::new("damaged");
    on_each(devices(), |device| {
        let mut session = open(device, &plans(device, &adamw()).evaluate);
        let before = state(&mut session);
        let good = std::fs::read(golden("f32")).expect("there");
        let mut long = good.clone();
        long[..8].copy_from_slice(&(1u64 << 60).to_le_bytes());
        let mut text = good.clone();
        text[8] = b'[';
        let shorter = good[..good.len() - 1].to_vec();
        let longer = [&good[..], &[0]].concat();
        for (bytes, part) in [
            (&[][..], "0 bytes are no safetensors file"),
            (&good[..7], "7 bytes are no safetensors file"),
            (&long, "a header of 1152921504606846976 bytes in a file of 67"),
            (&text, "damaged: "),
            (&shorter, "the header describes 67"),
            (&longer, "the header describes 67"),
        ] {
            std::fs::write(&file.0, bytes).expect("written");
            refused(session.load_with(&file.0, &not_strict()), &[part, &file.0.display().to_string()]);
        }
        assert_same("refused", &before, &state(&mut session));
        refused(
            session.load_with(std::env::temp_dir(), &not_strict()),
            &[&std::env::temp_dir().display().to_string()],
        );
    });
}
