//! The table of docs/fine-tuning.md.

use wgrad::Bytes;
use wgrad::compile::{Activations, Offload, Plan, PlanOptions, Recompute};
use wgrad::dtype::{FrozenStorage, Precision, Rounding, WeightStorage};
use wgrad::graph::{Class, LoraConfig, Params};
use wgrad::limits::Limits;
use wgrad::models::{Model, ModelOptions};
use wgrad::optim::Optimizer;

use super::{bytes, check, markdown, strings};

/// A training step of a language model: name, sequences and tokens of each, and the rank and layers of adapters.
pub type Step = (&'static str, [usize; 2], usize, &'static [&'static str]);

const STOCHASTIC: WeightStorage = WeightStorage::Bf16(Rounding::Stochastic);
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
    let options = PlanOptions { precision: Precision::Bf16, ..more };
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
        let [off, every] = [Recompute::Off, Recompute::Every(1)]
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
    let header = ["model, batch × tokens", "trained", "parameters", "default", "`--recompute every:1`"];
    check("docs/fine-tuning.md", "bytes", &markdown(&strings(&header), rows));
}

/// Published bytes of torchtune (README of the repository, and its recipes for one device with 24 GB).
const PUBLISHED: [(usize, Option<FrozenStorage>, f64); 6] = [
    (1, None, 17.6),
    (1, Some(FrozenStorage::Bf16), 8.5),
    (1, Some(FrozenStorage::Nf4), 4.6),
    (2, None, 18.9),
    (2, Some(FrozenStorage::Bf16), 16.2),
    (2, Some(FrozenStorage::Nf4), 7.4),
];

#[test]
fn table_beside_published_figures_matches_the_plans() {
    let rows = PUBLISHED.map(|(step, base, published)| {
        let step = STEPS[step];
        let (name, [batch, seq], rank, targets) = step;
        let activations = Activations::All;
        let (weights, offload, recompute) = match (base, name) {
            (Some(_), _) => (WeightStorage::F32, Offload::ACTIVATIONS, Recompute::Off),
            (None, "llama-3.2-3b") => (STOCHASTIC, Offload::ACTIVATIONS, Recompute::Off),
            (None, _) => (STOCHASTIC, Offload { activations, ..Offload::OPTIMIZER }, Recompute::Every(1)),
        };
        let optimizer = Optimizer::named("adam8bit").expect("known");
        let options = PlanOptions { optimizer, weights, offload, recompute, ..PlanOptions::default() };
        let plan = plan(step, base.map(|base| (base, false)), options);
        let what = base.map_or("all, in bf16".to_owned(), |base| {
            format!("LoRA r = {rank} of {}, base in {}", targets.join(", "), base.name())
        });
        let places = if offload.optimizer { "optimizer,activations" } else { "activations" };
        let again = if recompute == Recompute::Off { "" } else { " --recompute every:1" };
        let total = plan.footprint().total();
        assert!((total as f64) < published * f64::from(1 << 30), "{name}, {what}: {}", Bytes(total));
        vec![
            format!("{name}, {batch} × {seq}"),
            what,
            format!("`--offload {places}{again}`"),
            Bytes(total).to_string(),
            format!("{published} GiB"),
            format!("{:.1} %", 100.0 * plan.work.moved_fraction()),
            format!("{:.1} %", 100.0 * plan.work.time_fraction()),
        ]
    });
    let header =
        ["model, batch × tokens", "trained", "options", "wgrad", "torchtune", "moved", "computed again"];
    check("docs/fine-tuning.md", "published", &markdown(&strings(&header), rows));
}

/// Budgets in GB, the tokens of one sequence, and those that Unsloth publishes.
const TOKENS: [(u64, usize, &str); 4] =
    [(8, 25_600, "2,972"), (12, 64_768, "21,848"), (16, 104_960, "40,724"), (24, 202_752, "78,475")];

fn of_tokens(tokens: usize) -> Plan {
    let step = ("llama-3.1-8b", [1, tokens], 32, &["*"][..]);
    let optimizer = Optimizer::named("adam8bit").expect("known");
    let (offload, recompute) = (Offload::ACTIVATIONS, Recompute::Every(1));
    let options = PlanOptions { optimizer, offload, recompute, ..PlanOptions::default() };
    plan(step, Some((FrozenStorage::Nf4, false)), options)
}

#[test]
#[ignore = "plans for half a minute; scripts/tables.sh runs it"]
fn table_of_tokens_matches_the_plans() {
    let rows = TOKENS.map(|(gb, tokens, published)| {
        let plan = of_tokens(tokens);
        let footprint = plan.footprint();
        assert!(footprint.total() <= gb * 1_000_000_000, "{tokens}: {}", Bytes(footprint.total()));
        let text = tokens.to_string();
        let (thousands, rest) = text.split_at(text.len() - 3);
        let tokens = format!("{thousands},{rest}");
        let away = bytes(footprint.host);
        let again = format!("{:.1} %", 100.0 * plan.work.time_fraction());
        vec![format!("{gb} GB"), tokens, bytes(footprint.total()), away, again, published.to_owned()]
    });
    let header = ["budget", "tokens", "created", "in host memory", "computed again", "Unsloth's tokens"];
    check("docs/fine-tuning.md", "tokens", &markdown(&strings(&header), rows));
}

#[test]
fn adapters_of_the_first_row_of_tokens_fit() {
    let (gb, tokens, _) = TOKENS[0];
    assert!(of_tokens(tokens).footprint().total() <= gb * 1_000_000_000);
}

#[test]
fn adapters_over_a_model_of_a_billion_parameters_fit_in_1_4_gb_in_4_bits_and_in_2_7_in_16() {
    let both = Offload { optimizer: true, ..Offload::ACTIVATIONS };
    for (storage, budget, offload) in
        [(FrozenStorage::Nf4, 1_400_000_000, Offload::OFF), (FrozenStorage::Bf16, 2_700_000_000, both)]
    {
        let (recompute, within) = (Recompute::Auto, Some(Bytes(budget)));
        let options = PlanOptions { recompute, budget: within, offload, ..PlanOptions::default() };
        let plan = plan(STEPS[0], Some((storage, false)), options);
        assert!(plan.footprint().total() <= budget, "{:?}", plan.footprint());
        let more = plan.work.time_fraction() + plan.work.moved_fraction();
        assert!(more <= 0.35, "{more}");
    }
}
