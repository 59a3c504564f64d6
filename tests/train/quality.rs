//! What training reaches: the digits with every optimizer, precision and storage of weights, and a
//! character-level GPT in mixed precision with recomputation. On one adapter: other tests check that all adapters
//! compute the same.

use std::sync::Arc;

use crate::support::digits::digits;
use crate::support::{devices, on_each};
use wgrad::compile::{Plan, PlanOptions, Recompute, TrainStep};
use wgrad::data::{Characters, Loader};
use wgrad::device::Device;
use wgrad::dtype::{Precision, Rounding, WeightStorage};
use wgrad::exec::Session;
use wgrad::graph::Params;
use wgrad::models::{Gpt, GptConfig, Model, Sequence};
use wgrad::optim::{AdamW, Apollo, Clip, Optimizer, Schedule};
use wgrad::random;
use wgrad::report::kept_bytes;
use wgrad::train::{TrainOptions, Trainer};

fn first() -> &'static [Device] {
    devices().get(..1).unwrap_or_default()
}

/// Returns `options` unchanged, and with 16-bit activations and recomputed segments of layers.
fn both(options: PlanOptions) -> [PlanOptions; 2] {
    [options, PlanOptions { precision: Precision::F16, recompute: Recompute::Sqrt, ..options }]
}

/// Mixed precision with recomputation keeps less than 40 % of the bytes that `f32` keeps for the backward pass.
fn assert_small(what: &str, [wide, mixed]: &[Plan; 2]) {
    let share = kept_bytes(mixed) as f64 / kept_bytes(wide) as f64;
    println!("{what}: keeps {} of {} bytes, {share:.3}", kept_bytes(mixed), kept_bytes(wide));
    assert!(share < 0.4, "{what}: keeps {share:.3} of the bytes in f32");
}

fn adamw(lr: f32) -> PlanOptions {
    PlanOptions { optimizer: AdamW { lr, ..AdamW::default() }.into(), ..PlanOptions::default() }
}

/// Trains for twelve passes over four fifths of the digits, and returns the accuracy on the others.
fn accuracy(device: &Device, plan: PlanOptions) -> f64 {
    let (train, test) = digits().split(0.8, 0);
    let loader = Loader::new(Arc::new(train), 32).expect("a batch").shuffled(0);
    let model = Model::named("digits", 0).expect("a model");
    let total = 12 * loader.batches() as u64;
    let schedule = Schedule::Cosine { warmup: total / 20, total, floor: 0.01 };
    let options = TrainOptions { plan, schedule, ..TrainOptions::default() };
    let mut trainer = Trainer::new(device, &model, loader, &options).expect("it opens");
    let epoch = trainer.fit(12, Some(&test), &mut []).expect("it learns");
    epoch.metric.expect("test data").value
}

#[test]
fn digits_reach_97_percent_with_every_optimizer_and_precision() {
    let named = |name: &str, rate: f32| PlanOptions {
        optimizer: Optimizer::named(name).expect("known").with_learning_rate(rate),
        ..PlanOptions::default()
    };
    let [wide, mixed] = both(adamw(4e-3));
    // The layers are small.
    let apollo = Apollo { lr: 2e-2, rank: 8, ..Apollo::default() };
    let settings = [
        ("adamw", wide),
        ("lion", named("lion", 1e-3)),
        ("adafactor", named("adafactor", 5e-2)),
        ("adam8bit", named("adam8bit", 4e-3)),
        ("adam4bit", named("adam4bit", 4e-3)),
        ("adam-mini", named("adam-mini", 4e-3)),
        ("muon", named("muon", 2e-2)),
        ("apollo", PlanOptions { optimizer: apollo.into(), ..PlanOptions::default() }),
        ("apollo-mini", named("apollo-mini", 1e-2)),
        ("f16", PlanOptions { precision: Precision::F16, ..wide }),
        ("bf16", PlanOptions { precision: Precision::Bf16, ..wide }),
        ("int8", PlanOptions { precision: Precision::Int8, ..wide }),
        ("int4", PlanOptions { precision: Precision::Int4, ..wide }),
        ("f16, recomputed", mixed),
    ];
    on_each(first(), |device| {
        let step = Model::named("digits", 0).expect("a model").train_step(32).expect("valid");
        assert_small("digits", &[wide, mixed].map(|o| step.plan(&o, device.limits()).expect("planned")));
        for (what, plan) in settings {
            let accuracy = accuracy(device, plan);
            println!("digits, {what}: {accuracy:.4}");
            assert!(accuracy >= 0.97, "{what}: {accuracy}");
        }
    });
}

/// At a small rate most updates of bfloat16 weights are below half of their last bit: rounded to the nearest they
/// are lost, rounded by chance or with 8 bits more they are not.
#[test]
fn rounded_weights_learn_the_digits() {
    on_each(first(), |device| {
        let learn = |rate: f32| {
            [
                WeightStorage::F32,
                WeightStorage::Bf16(Rounding::Nearest),
                WeightStorage::Bf16(Rounding::Stochastic),
                WeightStorage::Bf24,
            ]
            .map(|weights| accuracy(device, PlanOptions { weights, ..adamw(rate) }))
        };
        let [f32, nearest, chance, more] = learn(4e-3);
        println!("digits, at 0.004: {f32} {nearest} {chance} {more}");
        assert!(f32 >= 0.97 && chance >= 0.97 && more >= 0.97, "{f32} {nearest} {chance} {more}");
        let [f32, nearest, chance, more] = learn(3e-4);
        let numbers =
            format!("{f32} in 32 bits, {nearest} to the nearest, {chance} by chance, {more} in 24 bits");
        println!("digits, {numbers}");
        assert!((more - f32).abs() <= 0.005, "at a small rate: {numbers}");
        assert!(chance >= nearest + 0.02 && chance >= f32 - 0.02, "at a small rate: {numbers}");
    });
}

const BATCH: usize = 4;
const CONTEXT: usize = 48;
const STEPS: u64 = 200;

/// Trains, and returns the nats per character: the mean over the last fifty steps.
fn learn(device: &Device, plan: &Plan, ids: &[u32]) -> f32 {
    let mut session = Session::new(device, plan).expect("it opens");
    session.set_schedule(Schedule::Cosine { warmup: 6, total: STEPS, floor: 0.1 });
    let key = random::key(0, "windows");
    for at in 0..STEPS {
        let starts = (0..BATCH as u64).map(|row| {
            let draw = random::bits(key, at * BATCH as u64 + row);
            (draw % (ids.len() - CONTEXT - 1) as u64) as usize
        });
        let starts: Vec<usize> = starts.collect();
        let window = |shift: usize| -> Vec<u32> {
            starts.iter().flat_map(|&start| ids[start + shift..start + shift + CONTEXT].to_vec()).collect()
        };
        session.feed("x", &window(0)).expect("valid");
        session.feed("y", &window(1)).expect("valid");
        session.step().expect("it runs");
    }
    session.loss().expect("a finite loss");
    let losses = session.losses().expect("finite losses");
    losses.iter().rev().take(50).map(|(_, loss)| loss).sum::<f32>() / 50.0
}

#[test]
fn character_gpt_reaches_the_loss_of_f32() {
    let text = include_str!("../../LICENSE-APACHE");
    let characters = Characters::of(text);
    let all = characters.encode("the text", text).expect("its own characters");
    let params = Params::new(0);
    let vocabulary = characters.len();
    let config = GptConfig { vocabulary, context: CONTEXT, layers: 4, heads: 4, width: 64, dropout: 0.0 };
    let gpt = Gpt::new(&params, &config).expect("valid");
    let step = TrainStep::trace(&params, |trace| {
        let x = trace.ids("x", [BATCH, CONTEXT], vocabulary as u32);
        gpt.loss(&x, &trace.labels("y", [BATCH * CONTEXT], vocabulary as u32))
    });
    let step = step.expect("valid");
    on_each(first(), |device| {
        let optimizer = AdamW { lr: 2e-3, weight_decay: 0.1, ..AdamW::default() }.into();
        let settings = both(PlanOptions { optimizer, clip: Clip::Norm(1.0), ..PlanOptions::default() });
        let plans = settings.map(|options| step.plan(&options, device.limits()).expect("planned"));
        assert_small("gpt", &plans);
        let ids = all.read(0..all.len()).expect("in memory");
        let [wide, mixed] = plans.map(|plan| learn(device, &plan, &ids));
        println!("gpt: {wide:.4} and {mixed:.4} nats per character");
        // A model of character frequencies alone reaches 3.1.
        assert!(wide < 2.7 && mixed < wide + 0.06, "{wide} and {mixed}");
    });
}
