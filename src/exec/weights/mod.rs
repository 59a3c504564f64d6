//! Parameters as safetensors files.

mod write;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use super::Session;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{LOSS_SCALE, Param};
use crate::plan::Storage;
use crate::progress;

/// How a tensor is stored in a file: its type and dimensions.
type Stored = (Dtype, Vec<usize>);

/// The note with the number of training steps, in files that have the optimizer's state.
const STEPS: &str = "steps";
/// What other programs want to know of a file: tensors are laid out as PyTorch's.
const FORMAT: (&str, &str) = ("format", "pt");

impl Session {
    /// Writes all parameters to a safetensors file, as `f32` however the device holds them; with `optimizer_state` also the optimizer's state and the number of
    /// steps, so that training can go on from there. The file appears whole or not at all.
    ///
    /// # Errors
    /// [`Error::Weights`] if it cannot be written; what was there before stays.
    pub fn save(&mut self, path: impl AsRef<Path>, optimizer_state: bool) -> Result<()> {
        self.save_with_notes(path, optimizer_state, &BTreeMap::new())
    }

    /// [`Session::save`] with texts of your own in the file, for [`read_notes`]: what a program must know to build the
    /// model again. `format` and `steps` are taken.
    ///
    /// # Errors
    /// As [`Session::save`].
    pub fn save_with_notes(
        &mut self,
        path: impl AsRef<Path>,
        optimizer_state: bool,
        notes: &BTreeMap<String, String>,
    ) -> Result<()> {
        let path = path.as_ref();
        let mut notes = notes.clone();
        notes.insert(FORMAT.0.to_owned(), FORMAT.1.to_owned());
        if optimizer_state {
            notes.insert(STEPS.to_owned(), self.steps().to_string());
        }
        let shapes: Vec<_> = self.saved(optimizer_state)?.into_iter().collect();
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let file = std::fs::File::create(&partial).map_err(|e| failed(path, &e))?;
        let mut file = std::io::BufWriter::new(file);
        file.write_all(&write::header(&shapes, &notes)).map_err(|e| failed(path, &e))?;
        let task = progress::task("saving", shapes.iter().map(|(_, stored)| elements(stored)).sum::<u64>());
        let mut saved = 0;
        for (name, stored) in &shapes {
            let data = self.parameter(name)?;
            write::elements(&mut file, bytemuck::cast_slice(&data)).map_err(|e| failed(path, &e))?;
            saved += elements(stored);
            task.done(saved);
        }
        file.into_inner().map_err(|e| failed(path, &e))?;
        std::fs::rename(&partial, path).map_err(|e| failed(path, &e))
    }

    /// Reads parameters, and optimizer state and the number of steps if the file has them. Nothing is changed unless
    /// everything fits. Weights that the device holds in 16 bits are rounded to nearest.
    ///
    /// # Errors
    /// [`Error::Weights`] with every name, shape and type that does not fit.
    pub fn load(&mut self, path: impl AsRef<Path>) -> Result<()> {
        self.load_named(path, |name| Some(name.to_owned()))
    }

    /// [`Session::load`] of a file whose tensors have other names: `name_of` says what the model calls a tensor of the
    /// file, or `None` for one that nobody needs. Two tensors may go by one name if they are equal, such as tied weights.
    ///
    /// # Errors
    /// As [`Session::load`].
    pub fn load_named(
        &mut self,
        path: impl AsRef<Path>,
        name_of: impl Fn(&str) -> Option<String>,
    ) -> Result<()> {
        let path = path.as_ref();
        let bytes = std::fs::read(path).map_err(|e| failed(path, &e))?;
        let file = parse(path, &bytes)?;
        let steps = notes(path, &bytes)?.get(STEPS).map(|steps| steps.parse::<u64>());
        let steps = steps.transpose().map_err(|e| failed(path, &format!("the number of steps: {e}")))?;
        let wanted = self.saved(steps.is_some())?;
        // A checkpoint of a training run serves a session that only evaluates: its state is left alone.
        let evaluates = steps.is_some() && self.keeper.optimizer.is_none();
        let is_state = |name: &str| {
            name == LOSS_SCALE || name.rsplit_once('.').is_some_and(|(param, _)| wanted.contains_key(param))
        };
        let mut problems = Vec::new();
        let named = named(&file, name_of, &mut problems);
        differences(&wanted, &named, |name| evaluates && is_state(name), &mut problems);
        if !problems.is_empty() {
            return Err(failed(path, &format!("does not fit the model:\n  {}", problems.join("\n  "))));
        }
        let task = progress::task("loading", wanted.values().map(elements).sum::<u64>());
        let mut loaded = 0;
        for (name, (_, view)) in named.iter() {
            let Some(stored) = wanted.get(name) else { continue };
            // The file need not be aligned for words.
            self.set_parameter(name, &bytemuck::pod_collect_to_vec::<u8, f32>(view.data()))?;
            loaded += elements(stored);
            task.done(loaded);
        }
        if let Some(steps) = steps {
            self.set_steps(steps);
        }
        Ok(())
    }

    /// Names, types and shapes of what a file holds.
    fn saved(&self, optimizer_state: bool) -> Result<BTreeMap<String, Stored>> {
        let plan = &self.keeper;
        let parameters = &plan.graph().parameters;
        let stored = |storage: &Storage| {
            let value = plan.graph().values.iter().find(|value| value.name == storage.name)?;
            let dtype = if value.dtype == DType::U32 { Dtype::U32 } else { Dtype::F32 };
            Some((dtype, value.shape.dims().to_vec()))
        };
        let parameter = |p: &Param| (p.name().to_owned(), (Dtype::F32, p.shape().dims().to_vec()));
        let mut all: BTreeMap<_, _> = parameters.iter().map(parameter).collect();
        if optimizer_state {
            let states = plan.program.storages.iter().filter(|s| s.lasts()).skip(parameters.len());
            all.extend(states.filter_map(|s| Some((s.name.clone(), stored(s)?))));
        }
        Ok(all)
    }
}

fn elements((_, shape): &Stored) -> u64 {
    shape.iter().map(|&n| n as u64).product()
}

/// The texts that [`Session::save_with_notes`], or another program, left in a safetensors file.
///
/// # Errors
/// [`Error::Weights`] for a file that is missing or damaged.
pub fn read_notes(path: impl AsRef<Path>) -> Result<BTreeMap<String, String>> {
    let path = path.as_ref();
    notes(path, &std::fs::read(path).map_err(|e| failed(path, &e))?)
}

fn notes(path: &Path, bytes: &[u8]) -> Result<BTreeMap<String, String>> {
    let (_, header) =
        SafeTensors::read_metadata(bytes).map_err(|e| failed(path, &format!("damaged: {e}")))?;
    Ok(header.metadata().clone().unwrap_or_default().into_iter().collect())
}

fn parse<'a>(path: &Path, bytes: &'a [u8]) -> Result<SafeTensors<'a>> {
    SafeTensors::deserialize(bytes).map_err(|e| failed(path, &format!("damaged: {e}")))
}

/// A file's tensors by the model's names, each with its name in the file.
type Named<'a> = BTreeMap<String, (String, TensorView<'a>)>;

fn named<'a>(
    file: &SafeTensors<'a>,
    name_of: impl Fn(&str) -> Option<String>,
    problems: &mut Vec<String>,
) -> Named<'a> {
    let mut named = Named::new();
    let mut tensors = file.tensors();
    tensors.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    for (theirs, view) in tensors {
        let Some(ours) = name_of(&theirs) else { continue };
        match named.get(&ours) {
            Some((other, first)) if first.data() != view.data() || first.shape() != view.shape() => {
                problems.push(format!("`{other}` and `{theirs}` differ; in the model both are `{ours}`"));
            }
            Some(_) => {}
            None => drop(named.insert(ours, (theirs, view))),
        }
    }
    named
}

/// Everything that keeps a file from being loaded.
fn differences(
    wanted: &BTreeMap<String, Stored>,
    file: &Named,
    needless: impl Fn(&str) -> bool,
    problems: &mut Vec<String>,
) {
    for (name, (dtype, shape)) in wanted {
        match file.get(name) {
            None => problems.push(format!("`{name}` {shape:?} is missing")),
            Some((theirs, view)) if view.shape() != shape => {
                let mut text =
                    format!("`{theirs}` is {:?} in the file, {shape:?} in the model", view.shape());
                if let ([theirs, a @ ..], [ours, b @ ..]) = (view.shape(), &shape[..])
                    && a == b
                {
                    text += &format!(": {theirs} rows where the model has {ours}");
                }
                problems.push(text);
            }
            Some((theirs, view)) if view.dtype() != *dtype => {
                problems
                    .push(format!("`{theirs}` is {:?} in the file, {dtype:?} in the model", view.dtype()));
            }
            Some(_) => {}
        }
    }
    let strange = file.iter().filter(|(name, _)| !wanted.contains_key(*name) && !needless(name));
    problems.extend(strange.map(|(_, (theirs, _))| format!("`{theirs}` is in the file, not in the model")));
}

fn failed(path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::Weights { path: path.to_owned(), message: error.to_string() }
}
