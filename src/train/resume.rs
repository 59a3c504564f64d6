//! Notes in a checkpoint on the run that wrote it, so that a run that differs does not continue it unnoticed.

use std::collections::BTreeMap;
use std::path::Path;

use super::early_stopping::Waited;
use crate::compile::PlanOptions;
use crate::data::Loader;
use crate::error::{Error, Result};
use crate::optim::Schedule;

/// Start of the keys of the notes.
const PREFIX: &str = "run.";
/// Key of the best metric so far.
const BEST: &str = "run.best";
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

fn facts(loader: &Loader, options: &PlanOptions, schedule: Schedule) -> Vec<Fact> {
    let fact = |order, name, value| Fact { name, value, order };
    let of = |value: &dyn std::fmt::Debug| format!("{value:?}");
    vec![
        fact(true, "batch", loader.batch().to_string()),
        fact(true, "samples", loader.data().len().to_string()),
        fact(true, "steps per epoch", loader.batches().to_string()),
        fact(true, "shuffle", loader.seed().map_or("off".to_owned(), |seed| format!("seed {seed}"))),
        fact(false, "optimizer", of(&options.optimizer)),
        fact(false, "schedule", of(&schedule)),
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
    schedule: Schedule,
    (best, waited): (Option<f64>, Option<Waited>),
) -> BTreeMap<String, String> {
    let facts = facts(loader, options, schedule).into_iter();
    let mut notes: BTreeMap<_, _> =
        facts.map(|fact| (format!("{PREFIX}{}", fact.name), fact.value)).collect();
    if let Some(best) = best {
        notes.insert(BEST.to_owned(), best.to_string());
    }
    if let Some(Waited { best, epochs }) = waited {
        notes.insert(WAITED[0].to_owned(), best.to_string());
        notes.insert(WAITED[1].to_owned(), epochs.to_string());
    }
    notes
}

/// Returns the best metric of the run that wrote the file, and the state of its early stopping. Logs what differs from it and does not change
/// which samples are drawn.
///
/// # Errors
/// [`Error::Weights`] with what differs in the order of the samples. A file without notes is accepted.
pub(super) fn compare(
    path: &Path,
    notes: &BTreeMap<String, String>,
    loader: &Loader,
    options: &PlanOptions,
    schedule: Schedule,
) -> Result<(Option<f64>, Option<Waited>)> {
    let mut differ = Vec::new();
    for Fact { name, value, order } in facts(loader, options, schedule) {
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
        return Ok((best, waited.zip(epochs).map(|(best, epochs)| Waited { best, epochs })));
    }
    let message = format!(
        "the run that saved it drew other samples:\n  {}\n\
         help: continue with the same data, batch and seed; or load the parameters into a new run by `trainer.session().load(..)` \
         and `set_steps(0)`",
        differ.join("\n  ")
    );
    Err(Error::Weights { path: path.to_owned(), message })
}
