//! Matching of a file's tensors to those of a session.

use std::collections::BTreeMap;

use super::options::{Ignored, LoadReport};
use super::read::{Entry, File, converts};
use super::{Stored, failed};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{CORRECTION, LOSS_SCALE};

/// The session's side of a match.
pub(super) struct Wanted<'a> {
    /// The tensors that the file should have, by name.
    pub(super) tensors: BTreeMap<String, Stored>,
    /// Whether the file has optimizer state and the session does not use any.
    pub(super) evaluates: bool,
    /// Whether a name that only one side has is an error.
    pub(super) strict: bool,
    /// Maps the file's name of a tensor to the session's; `None` skips the tensor.
    pub(super) name_of: &'a dyn Fn(&str) -> Option<String>,
}

/// Tensors to load, by the session's names, and the report on the rest of the file.
pub(super) struct Matched {
    pub(super) tensors: BTreeMap<String, Entry>,
    pub(super) report: LoadReport,
}

/// # Errors
/// [`Error::Weights`](crate::Error::Weights) with everything that keeps the file from being loaded.
pub(super) fn matched(file: &mut File<'_>, wanted: &Wanted<'_>) -> Result<Matched> {
    let all = file.tensors();
    let mut report = LoadReport::default();
    let mut problems = Vec::new();
    let mut found: BTreeMap<String, (&str, &Entry)> = BTreeMap::new();
    for (theirs, info) in &all {
        let Some(ours) = (wanted.name_of)(theirs) else {
            report.ignored.push((theirs.clone(), Ignored::LeftOut));
            continue;
        };
        match found.get(&ours) {
            Some((_, first)) if file.equal(first, info)? => {
                report.ignored.push((theirs.clone(), Ignored::Duplicate));
            }
            Some((first, _)) => {
                problems.push(format!("`{first}` and `{theirs}` differ; in the model both are `{ours}`"));
            }
            None if wanted.tensors.contains_key(&ours) => drop(found.insert(ours, (theirs, info))),
            None => match wanted.needless(&ours, info) {
                Some(why) => report.ignored.push((theirs.clone(), why)),
                None => report.unexpected.push(theirs.clone()),
            },
        }
    }
    for (name, stored) in &wanted.tensors {
        match found.get(name) {
            Some((theirs, info)) => problems.extend(difference(theirs, info, stored)),
            // Weights of a file without it start with their 16 bits.
            None if wanted.corrects(name).is_some() => {}
            None => report.missing.push(name.clone()),
        }
    }
    let misfits = problems.len();
    if wanted.strict {
        problems.extend(report.missing.iter().map(|name| {
            let Stored { dtype, shape, .. } = &wanted.tensors[name];
            format!("`{name}` {shape:?} is missing, the model holds it as {dtype}")
        }));
        problems.extend(report.unexpected.iter().map(|theirs| {
            let Entry { dtype, shape, .. } = &all[theirs];
            format!("`{theirs}` is in the file, not in the model: {dtype:?} {shape:?}")
        }));
    }
    if !problems.is_empty() {
        let help = help(&report, wanted.strict && problems.len() > misfits, misfits > 0);
        return Err(failed(
            file.path(),
            &format!("does not fit the model:\n  {}{help}", problems.join("\n  ")),
        ));
    }
    // Moments of only some parameters, or moments without the step count, would make wrong updates.
    let part = report.missing.iter().any(|name| wanted.tensors[name].state);
    let (kept, left): (BTreeMap<_, _>, BTreeMap<_, _>) =
        found.into_iter().partition(|(name, _)| !(part && wanted.tensors[name].state));
    report.ignored.extend(left.into_values().map(|(theirs, _)| (theirs.to_owned(), Ignored::PartOfState)));
    let tensors = kept.into_iter().map(|(name, (_, info))| (name, info.clone())).collect();
    Ok(Matched { tensors, report })
}

impl Wanted<'_> {
    /// Returns the tensor whose 16 bits the optimizer state of this name corrects.
    fn corrects(&self, name: &str) -> Option<&Stored> {
        self.tensors.get(name.strip_suffix(CORRECTION)?.strip_suffix('.')?)
    }

    /// Returns why a tensor that the session does not have is not needed; `None` if the tensor is unexpected.
    fn needless(&self, ours: &str, info: &Entry) -> Option<Ignored> {
        let last = ours.rsplit('.').next();
        let counts = last == Some("num_batches_tracked") && info.dtype == safetensors::Dtype::I64;
        if counts && info.shape.is_empty() {
            return Some(Ignored::BatchCount);
        }
        if !self.evaluates && self.corrects(ours).is_some_and(|weight| !weight.state) {
            return Some(Ignored::Correction);
        }
        let of_a_parameter = ours.rsplit_once('.').is_some_and(|(param, _)| self.tensors.contains_key(param));
        (self.evaluates && (ours == LOSS_SCALE || of_a_parameter)).then_some(Ignored::OptimizerState)
    }
}

/// Returns why a tensor of the file cannot be loaded as the session's; `None` if it can.
fn difference(theirs: &str, info: &Entry, stored: &Stored) -> Option<String> {
    let (dtype, shape) = (info.dtype, &info.shape);
    if *shape != stored.shape {
        let mut text = format!("`{theirs}` is {shape:?} in the file, {:?} in the model", stored.shape);
        if let ([theirs, a @ ..], [ours, b @ ..]) = (&shape[..], &stored.shape[..])
            && a == b
        {
            text += &format!(": {theirs} rows where the model has {ours}");
        }
        return Some(text);
    }
    if converts(dtype, stored.dtype) {
        return None;
    }
    let able = match stored.dtype {
        DType::U32 => "which no other type is converted to",
        _ => "to which F16, BF16, F32 and F64 are converted and nothing else",
    };
    Some(format!(
        "`{theirs}` is {dtype:?} {shape:?} in the file, {} {shape:?} in the model, {able}",
        stored.dtype
    ))
}

/// Returns suggestions: `names` for names that do not match, `tensors` for shapes and types that do not.
fn help(report: &LoadReport, names: bool, tensors: bool) -> String {
    let mut ways = Vec::new();
    if names && let Some((from, to)) = other_prefix(report) {
        ways.push(format!(
            "`LoadOptions {{ rename: Rename::prefix([({from:?}, {to:?})]), .. }}` fits more names"
        ));
    }
    if names {
        ways.push("`LoadOptions { strict: false, .. }` loads what fits and reports the rest".to_owned());
    }
    if tensors {
        let way =
            "`Rename::By` a function that gives `None` for a tensor leaves it out, with `strict: false`";
        ways.push(format!("{way}; or build the model as the file has it"));
    }
    ways.iter().map(|way| format!("\nhelp: {way}")).collect()
}

/// Returns a prefix of names that only the file has and the model's prefix in its place. One of the two is
/// empty.
fn other_prefix(report: &LoadReport) -> Option<(String, String)> {
    let pairs =
        report.unexpected.iter().flat_map(|theirs| report.missing.iter().map(move |ours| (theirs, ours)));
    let whole = |prefix: &&str| prefix.ends_with('.');
    pairs.into_iter().find_map(|(theirs, ours)| {
        let more =
            theirs.strip_suffix(&**ours).filter(whole).map(|prefix| (prefix.to_owned(), String::new()));
        more.or_else(|| Some((String::new(), ours.strip_suffix(&**theirs).filter(whole)?.to_owned())))
    })
}
