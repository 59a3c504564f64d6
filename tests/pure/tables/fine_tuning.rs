//! The table of docs/fine-tuning.md.

use wgrad::Bytes;
use wgrad::compile::{Plan, PlanOptions, Recompute};
use wgrad::dtype::{FrozenStorage, Precision};
use wgrad::graph::{Class, LoraConfig, Params};
use wgrad::limits::Limits;
use wgrad::models::{Model, ModelOptions};
use wgrad::optim::Optimizer;

use super::{bytes, check, markdown, strings};

/// A training step of a language model: name, sequences and tokens of each, and the rank and layers of adapters.
pub type Step = (&'static str, [usize; 2], usize, &'static [&'static str]);

const ATTENTION: &[&str] = &["q_proj", "v_proj"];
const STEPS: [Step; 3] = [
    ("llama-3.2-1b", [1, 1024], 16, &["*"]),
    ("llama-3.2-3b", [2, 4096], 8, ATTENTION),
    ("llama-3.1-8b", [2, 2048], 8, ATTENTION),
];

/// A plan of the whole model, or of adapters over a base in this format, with DoRA or not.
pub fn plan(
    (name, [batch, seq], rank, targets): Step,
    adapters: Option<(FrozenStorage, bool)>,
    more: PlanOptions,
) -> Plan {
    let params = Params::new(0);
    if let Some((base, dora)) = adapters {
        let targets = targets.iter().map(|&target| target.to_owned()).collect();
        let lora = LoraConfig { rank, alpha: rank as f32, dropout: 0.0, dora, targets, base: Some(base) };
        params.adapt(&lora).expect("valid");
    }
    let sizes = ModelOptions { seq: Some(seq), ..ModelOptions::default() };
    let model = Model::over(params, name, &sizes).expect("known");
    let optimizer = Optimizer::named("adamw").expect("known");
    let options = PlanOptions { optimizer, precision: Precision::Bf16, ..more };
    let limits = Limits::named("nvidia").expect("a preset");
    model.train_step(batch).expect("valid").plan(&options, &limits).expect("it can be planned")
}

#[test]
fn fine_tuning_table_matches_the_plans() {
    let lora = [FrozenStorage::Bf16, FrozenStorage::Int8, FrozenStorage::Nf4].map(|base| Some((base, false)));
    let kinds = [&[None], &lora[..], &[Some((FrozenStorage::Nf4, true))]].concat();
    let cases = STEPS.into_iter().flat_map(|step| kinds.iter().map(move |kind| (step, *kind)));
    let rows = cases.map(|(step, adapters)| {
        let (name, [batch, seq], rank, targets) = step;
        let layers = if targets == ["*"] { "all linear layers".to_owned() } else { targets.join(", ") };
        let what = match adapters {
            None => "all in f32".to_owned(),
            Some((base, dora)) => {
                let kind = if dora { "DoRA" } else { "LoRA" };
                format!("{kind} r = {rank} of {layers}, base in {}", base.name())
            }
        };
        let [off, every] = [Recompute::Off, Recompute::Every(2)]
            .map(|recompute| plan(step, adapters, PlanOptions { recompute, ..PlanOptions::default() }));
        let parameters = off.class_bytes().into_iter().find(|(class, _)| *class == Class::Parameter);
        vec![
            format!("{name}, {batch} × {seq}"),
            what,
            bytes(parameters.expect("there are some").1),
            bytes(off.footprint().total()),
            bytes(every.footprint().total()),
        ]
    });
    let header = ["model, batch × tokens", "trained", "parameters", "default", "`--recompute every:2`"];
    check("docs/fine-tuning.md", "bytes", &markdown(&strings(&header), rows));
}

#[test]
fn adapters_over_a_model_of_a_billion_parameters_in_4_bits_fit_in_1_4_gb() {
    let budget = Some(Bytes(1_400_000_000));
    let options = PlanOptions { recompute: Recompute::Auto, budget, ..PlanOptions::default() };
    let plan = plan(STEPS[0], Some((FrozenStorage::Nf4, false)), options);
    assert!(plan.footprint().total() <= 1_400_000_000, "{:?}", plan.footprint());
    let [first, second] = [plan.work.time_fraction(), 0.35];
    assert!(first <= second, "{first}");
}
