//! Notes in a checkpoint on the run that wrote it, so that a run that differs does not continue it unnoticed.

use std::collections::BTreeMap;
use std::path::Path;

use super::ReduceOnPlateau;
use super::early_stopping::Waited;
use super::plateau::Plateau;
use crate::compile::PlanOptions;
use crate::data::Loader;
use crate::error::{Error, Result};
use crate::optim::Schedule;

/// Start of the keys of the notes.
const PREFIX: &str = "run.";
/// Key of the best metric so far.
const BEST: &str = "run.best";
/// Key of the state of [`ReduceOnPlateau`].
const PLATEAU: &str = "run.plateau";

/// What sets the learning rate of a run.
#[derive(Clone)]
pub(super) struct Rates {
    pub schedule: Schedule,
    pub plateau: Option<ReduceOnPlateau>,
}

/// What a run has found out so far.
#[derive(Clone, Copy, Default)]
pub(super) struct Found {
    /// The best metric, kept by a [`Checkpoint`](super::Checkpoint).
    pub best: Option<f64>,
    pub plateau: Plateau,
    pub waited: Option<Waited>,
}
/// Keys of the best value that an [`EarlyStopping`](super::EarlyStopping) knows, and of the epochs since.
const WAITED: [&str; 2] = ["run.stopping best", "run.stopping epochs"];

/// A property of a run.
struct Fact {
    name: &'static str,
    value: String,
    /// Whether it decides which samples a step draws: steps are counted from the start of the run, so with
    /// another value a run would continue at the wrong sample.
    order: bool,
}

fn facts(loader: &Loader, options: &PlanOptions, rates: Rates) -> Vec<Fact> {
    let fact = |order, name, value| Fact { name, value, order };
    let of = |value: &dyn std::fmt::Debug| format!("{value:?}");
    vec![
        fact(true, "batch", loader.batch().to_string()),
        fact(true, "samples", loader.data().len().to_string()),
        fact(true, "steps per epoch", loader.batches().to_string()),
        fact(true, "shuffle", loader.seed().map_or("off".to_owned(), |seed| format!("seed {seed}"))),
        fact(false, "optimizer", of(&options.optimizer)),
        fact(false, "schedule", of(&rates.schedule)),
        fact(false, "reduction on plateaus", of(&rates.plateau)),
        fact(false, "clip", of(&options.clip)),
        fact(false, "precision", options.precision.name().to_owned()),
        fact(false, "weights", of(&options.weights)),
        fact(false, "accumulate", options.accumulate.to_string()),
        fact(false, "loss scale", of(&options.loss_scale)),
        fact(false, "version", env!("CARGO_PKG_VERSION").to_owned()),
    ]
}

/// Returns the notes on a run.
pub(super) fn notes(
    loader: &Loader,
    options: &PlanOptions,
    rates: Rates,
    found: Found,
) -> BTreeMap<String, String> {
    let facts = facts(loader, options, rates).into_iter();
    let mut notes: BTreeMap<_, _> =
        facts.map(|fact| (format!("{PREFIX}{}", fact.name), fact.value)).collect();
    if let Some(best) = found.best {
        notes.insert(BEST.to_owned(), best.to_string());
    }
    if found.plateau != Plateau::default() {
        notes.insert(PLATEAU.to_owned(), found.plateau.note());
    }
    if let Some(Waited { best, epochs }) = found.waited {
        notes.insert(WAITED[0].to_owned(), best.to_string());
        notes.insert(WAITED[1].to_owned(), epochs.to_string());
    }
    notes
}

/// Returns what the run that wrote the file had found out. Logs what differs from it and does not change
/// which samples are drawn.
///
/// # Errors
/// [`Error::Weights`] with what differs in the order of the samples. A file without notes is accepted.
pub(super) fn compare(
    path: &Path,
    notes: &BTreeMap<String, String>,
    loader: &Loader,
    options: &PlanOptions,
    rates: Rates,
) -> Result<Found> {
    let mut differ = Vec::new();
    for Fact { name, value, order } in facts(loader, options, rates) {
        let Some(theirs) = notes.get(&format!("{PREFIX}{name}")).filter(|theirs| **theirs != value) else {
            continue;
        };
        if order {
            differ.push(format!("{name}: {theirs} in the file, {value} here"));
        } else {
            log::warn!("{}: {name} was {theirs}, this run has {value}", path.display());
        }
    }
    if differ.is_empty() {
        let [best, waited] =
            [BEST, WAITED[0]].map(|key| notes.get(key).and_then(|best| best.parse::<f64>().ok()));
        let epochs = notes.get(WAITED[1]).and_then(|epochs| epochs.parse().ok());
        let waited = waited.zip(epochs).map(|(best, epochs)| Waited { best, epochs });
        let plateau = notes.get(PLATEAU).and_then(|note| Plateau::of_note(note)).unwrap_or_default();
        return Ok(Found { best, plateau, waited });
    }
    let message = format!(
        "the run that saved it drew other samples:\n  {}\n\
         help: continue with the same data, batch and seed; or load the parameters into a new run by `trainer.session().load(..)` \
         and `set_steps(0)`",
        differ.join("\n  ")
    );
    Err(Error::Weights { path: path.to_owned(), message })
}
