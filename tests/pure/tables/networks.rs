//! The networks of the tables, and their plans.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use wgrad::Bytes;
use wgrad::compile::{Plan, PlanOptions, Recompute};
use wgrad::limits::{Card, Limits};
use wgrad::models::{Model, ModelOptions};
use wgrad::optim::Optimizer;

use super::grouped;
use crate::support::pytorch::{self, Held};

/// Networks of docs/networks.md, and the budget of their last column.
pub const IMAGES: [(&str, &str); 8] = [
    ("mlp", ""),
    ("cnn", ""),
    ("resnet18", "1.2GB"),
    ("resnet50", "5GB"),
    ("vgg16", "5.5GB"),
    ("mobilenet-v2", "5GB"),
    ("densenet121", "2GB"),
    ("unet", "5GB"),
];

/// Networks of docs/transformers.md, and the budget of their last column.
pub const TRANSFORMERS: [(&str, &str); 5] = [
    ("gpt-nano", "150MB"),
    ("gpt2", "3GB"),
    ("gpt2-medium", "7GB"),
    ("llama-tiny", "600MB"),
    ("bert-base", "4GB"),
];

/// Cards of the tables: of a data centre, a desktop and a laptop.
pub const NAMES_OF_CARDS: [(&str, &str); 3] =
    [("h200", "H200"), ("rtx4090", "RTX 4090"), ("m2-max", "Apple M2 Max")];

pub fn cards() -> [Card; 3] {
    NAMES_OF_CARDS.map(|(name, _)| Card::named(name).expect("listed"))
}

/// Returns the modelled seconds of all dispatches of a plan.
pub fn modelled(plan: &Plan, card: &Card) -> f64 {
    plan.launches(card).expect("lowered before").iter().map(|launch| launch.seconds).sum()
}

/// A network of the tables with its plans.
pub struct Network {
    pub name: &'static str,
    /// PyTorch in eager mode; for transformers with materialised attention scores.
    pub pytorch: Held,
    /// PyTorch with fused attention, without attention dropout.
    pub pytorch_fused: Option<Held>,
    /// `--no-rebuild --no-fuse`
    pub bare: Plan,
    pub default: Plan,
    /// The default plan by each of [`cards`].
    pub on_cards: Vec<Plan>,
    /// `--recompute auto --budget`
    pub fitted: Option<(Bytes, Plan)>,
}

/// Returns the options of `wgrad plan NAME --batch N --optimizer O`.
pub fn options(optimizer: &str) -> PlanOptions {
    let optimizer = Optimizer::named(optimizer).expect("a known optimizer");
    PlanOptions { optimizer, ..PlanOptions::default() }
}

/// The limits that the documents plan for: those of a card whose buffers hold any tensor here.
const LIMITS: &str = "nvidia";

/// Returns the plan of `wgrad plan NAME --batch N --limits nvidia` with these options.
pub fn plan(name: &str, batch: usize, seq: Option<usize>, options: &PlanOptions) -> Plan {
    let model = Model::with_options(name, 0, &ModelOptions { seq, ..ModelOptions::default() });
    let step = model.expect("a known model").train_step(batch).expect("a valid step");
    let limits = Limits::named(LIMITS).expect("a preset");
    step.plan(options, &limits).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Returns the plans of a network, computed once for all tables.
pub fn network(name: &'static str) -> Arc<Network> {
    type Known = BTreeMap<&'static str, Arc<OnceLock<Arc<Network>>>>;
    static KNOWN: Mutex<Known> = Mutex::new(BTreeMap::new());
    let cell = KNOWN.lock().expect("no test panics in it").entry(name).or_default().clone();
    cell.get_or_init(|| Arc::new(planned(name))).clone()
}

fn planned(name: &'static str) -> Network {
    let transformer = TRANSFORMERS.iter().any(|(other, _)| *other == name);
    let held = |attention| pytorch::held(name, attention);
    let pytorch = held(transformer.then_some("materialised"));
    let pytorch_fused = transformer.then(|| held(Some("fused")));
    let trained = Model::named(name, 0).expect("a known model").params().count();
    for of in [Some(&pytorch), pytorch_fused.as_ref()].into_iter().flatten() {
        assert_eq!(of.parameters, trained, "{name}: PyTorch counts another network");
    }
    let Held { batch, seq, .. } = pytorch;
    let standard = options(&pytorch.optimizer);
    let plan = |options: &PlanOptions| plan(name, batch, seq, options);
    let (_, budget) = IMAGES.iter().chain(&TRANSFORMERS).find(|(other, _)| *other == name).expect("known");
    let fitted = (!budget.is_empty()).then(|| {
        let budget: Bytes = budget.parse().expect("a size");
        let auto = PlanOptions { recompute: Recompute::Auto, budget: Some(budget), ..standard };
        (budget, plan(&auto))
    });
    Network {
        name,
        bare: plan(&PlanOptions { rebuild: false, fuse: false, ..standard }),
        default: plan(&standard),
        on_cards: cards().map(|card| plan(&PlanOptions { card, ..standard })).to_vec(),
        fitted,
        pytorch,
        pytorch_fused,
    }
}

impl Network {
    /// Returns `resnet50, 184, momentum` or `gpt2, 8 × 1,024`.
    pub fn title(&self) -> String {
        let Held { batch, seq, optimizer, .. } = &self.pytorch;
        match seq {
            Some(seq) => format!("{}, {batch} × {}", self.name, grouped(*seq)),
            None => format!("{}, {batch}, {optimizer}", self.name),
        }
    }
}
