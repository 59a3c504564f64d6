//! No launch of eight training steps leaves a large GPU idle: figures of plans, modelled on an H200
//! (`benches/launches/launches.py`).

use wgrad::compile::PlanOptions;
use wgrad::dtype::Precision;
use wgrad::graph::LossScale;
use wgrad::limits::{Card, Limits};
use wgrad::models::{Model, ModelOptions};
use wgrad::optim::Optimizer;

type Row = (&'static str, usize, Option<usize>, [usize; 2]);

/// Network, batch, tokens, and the most dispatches in f32, and in f16 with a loss scale.
const NETWORKS: [Row; 8] = [
    ("gpt2", 8, Some(1024), [785, 950]),
    ("gpt2-medium", 4, Some(1024), [1220, 1560]),
    ("llama-tiny", 32, Some(256), [590, 760]),
    ("bert-base", 32, Some(128), [615, 785]),
    ("resnet50", 64, None, [590, 715]),
    ("vgg16", 64, None, [146, 185]),
    ("mobilenet-v2", 64, None, [575, 665]),
    ("unet", 8, None, [345, 405]),
];

/// The largest share of the modelled time in launches with fewer workgroups than an H200 has units.
const BELOW_ONE_WAVE: f64 = 0.03;

/// Share of the step's arithmetic or bytes from which a launch counts as large.
const LARGE: u64 = 100;

#[test]
fn no_large_launch_leaves_units_idle() {
    let (limits, card) = (Limits::named("nvidia").expect("a preset"), Card::named("h200").expect("a card"));
    for (name, batch, seq, most) in NETWORKS {
        let sizes = ModelOptions { seq, ..ModelOptions::default() };
        let step = Model::with_options(name, 0, &sizes).expect("known").train_step(batch).expect("valid");
        let optimizer = Optimizer::named(if seq.is_some() { "adamw" } else { "momentum" }).expect("known");
        for (half, most) in [false, true].into_iter().zip(most) {
            let precision = if half { Precision::F16 } else { Precision::F32 };
            let loss_scale = half.then(LossScale::default);
            let options = PlanOptions { optimizer, precision, loss_scale, ..PlanOptions::default() };
            let launches = step.plan(&options, &limits).expect("planned").launches(&card).expect("lowered");
            let what = format!("{name} {}", precision.name());
            let flops: u64 = launches.iter().map(|launch| launch.job.flops).sum();
            let bytes: u64 = launches.iter().map(|launch| launch.job.bytes).sum();
            let seconds: f64 = launches.iter().map(|launch| launch.seconds).sum();
            for launch in &launches {
                let large = launch.job.flops > flops / LARGE || launch.job.bytes > bytes / LARGE;
                assert!(!large || launch.job.workgroups >= 2 * u64::from(card.units), "{what}: {launch:?}");
            }
            let low: f64 =
                launches.iter().filter(|launch| launch.waves < 1.0).map(|launch| launch.seconds).sum();
            assert!(
                low <= BELOW_ONE_WAVE * seconds,
                "{what}: {low} s of {seconds} in launches below one wave"
            );
            assert!(launches.len() <= most, "{what}: {} dispatches", launches.len());
        }
    }
}
