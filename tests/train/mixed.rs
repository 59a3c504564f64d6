//! Mixed precision with recomputation: the digits and a character-level GPT reach the same quality, with less
//! than 40 % of the bytes that `f32` saves for the backward pass.

use std::sync::Arc;

use crate::support::digits::digits;
use crate::support::{devices, on_each};
use wgrad::compile::{Plan, PlanOptions, Recompute, TrainStep};
use wgrad::data::{Characters, Loader};
use wgrad::device::Device;
use wgrad::dtype::Precision;
use wgrad::exec::Session;
use wgrad::graph::Params;
use wgrad::models::{Gpt, GptConfig, Model, Sequence};
use wgrad::optim::{AdamW, Clip, Schedule};
use wgrad::random;
use wgrad::report::kept_bytes;
use wgrad::train::{TrainOptions, Trainer};

/// Returns `options` unchanged, and with 16-bit activations and recomputed segments of layers.
fn both(options: PlanOptions) -> [PlanOptions; 2] {
    [options, PlanOptions { precision: Precision::F16, recompute: Recompute::Sqrt, ..options }]
}

/// Returns one adapter; other tests check that all adapters compute the same.
fn first() -> &'static [Device] {
    devices().get(..1).unwrap_or_default()
}

fn assert_small(what: &str, [wide, mixed]: &[Plan; 2]) {
    let share = kept_bytes(mixed) as f64 / kept_bytes(wide) as f64;
    println!("{what}: keeps {} of {} bytes, {share:.3}", kept_bytes(mixed), kept_bytes(wide));
    assert!(share < 0.4, "{what}: keeps {share:.3} of the bytes in f32");
}

#[test]
fn digits_reach_the_accuracy_of_f32() {
    let model = Model::named("digits", 0).expect("a model");
    on_each(first(), |device| {
        let optimizer = AdamW { lr: 4e-3, ..AdamW::default() }.into();
        let settings = both(PlanOptions { optimizer, ..PlanOptions::default() });
        let step = model.train_step(32).expect("valid");
        assert_small("digits", &settings.map(|o| step.plan(&o, device.limits()).expect("planned")));
        let [wide, mixed] = settings.map(|plan| {
            let (train, test) = digits().split(0.8, 0);
            let loader = Loader::new(Arc::new(train), 32).expect("a batch").shuffled(0);
            let total = 12 * loader.batches() as u64;
            let schedule = Schedule::Cosine { warmup: total / 20, total, floor: 0.01 };
            let options = TrainOptions { plan, schedule, ..TrainOptions::default() };
            let mut trainer = Trainer::new(device, &model, loader, &options).expect("it opens");
            trainer
                .fit(12, Some(&test), &mut [])
                .expect("it learns")
                .metric
                .map_or(0.0, |metric| metric.value)
        });
        println!("digits: {wide} and {mixed}");
        assert!(wide >= 0.97 && mixed >= 0.97, "{wide} and {mixed}");
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
