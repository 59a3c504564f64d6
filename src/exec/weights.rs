//! Parameters as safetensors files.

use std::collections::BTreeMap;
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use super::Session;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::LOSS_SCALE;
use crate::plan::Storage;

/// How a tensor is stored in a file: its type and dimensions.
type Stored = (Dtype, Vec<usize>);

impl Session {
    /// Writes all parameters to a safetensors file; with `optimizer_state` also the optimizer's state and the number of
    /// steps, so that training can go on from there. The file appears whole or not at all.
    ///
    /// # Errors
    /// [`Error::Weights`] if it cannot be written; what was there before stays.
    pub fn save(&mut self, path: impl AsRef<Path>, optimizer_state: bool) -> Result<()> {
        let path = path.as_ref();
        let mut tensors = Vec::new();
        for (name, (dtype, shape)) in self.saved(optimizer_state)? {
            let data: Vec<u32> = self.read_parameter(&name)?;
            tensors.push((name, dtype, shape, data));
        }
        let views = tensors.iter().map(|(name, dtype, shape, data)| {
            let view = TensorView::new(*dtype, shape.clone(), bytemuck::cast_slice(data));
            view.map(|view| (name.as_str(), view)).map_err(|e| failed(path, &e))
        });
        let views = views.collect::<Result<Vec<_>>>()?;
        let steps = optimizer_state.then(|| [("steps".to_owned(), self.steps().to_string())].into());
        let bytes = safetensors::serialize(views, steps).map_err(|e| failed(path, &e))?;
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        std::fs::write(&partial, bytes).map_err(|e| failed(path, &e))?;
        std::fs::rename(&partial, path).map_err(|e| failed(path, &e))
    }

    /// Reads parameters, and optimizer state and the number of steps if the file has them. Nothing is changed unless
    /// everything fits.
    ///
    /// # Errors
    /// [`Error::Weights`] with every name, shape and type that does not fit.
    pub fn load(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let bytes = std::fs::read(path).map_err(|e| failed(path, &e))?;
        let file = SafeTensors::deserialize(&bytes).map_err(|e| failed(path, &format!("damaged: {e}")))?;
        let (_, header) = SafeTensors::read_metadata(&bytes).map_err(|e| failed(path, &e))?;
        let steps = header.metadata().as_ref().and_then(|m| m.get("steps")).map(|s| s.parse::<u64>());
        let steps = steps.transpose().map_err(|e| failed(path, &format!("the number of steps: {e}")))?;
        let wanted: BTreeMap<String, Stored> = self.saved(steps.is_some())?.into_iter().collect();
        // A checkpoint of a training run serves a session that only evaluates: its state is left alone.
        let evaluates = steps.is_some() && self.keeper().optimizer.is_none();
        let is_state = |name: &str| {
            name == LOSS_SCALE || name.rsplit_once('.').is_some_and(|(param, _)| wanted.contains_key(param))
        };
        let problems = differences(&wanted, &file, |name| evaluates && is_state(name));
        if !problems.is_empty() {
            return Err(failed(path, &format!("does not fit the model:\n  {}", problems.join("\n  "))));
        }
        for name in wanted.keys() {
            let view = file.tensor(name).map_err(|e| failed(path, &e))?;
            // The file need not be aligned for words.
            self.write_parameter(name, &bytemuck::pod_collect_to_vec::<u8, u32>(view.data()))?;
        }
        if let Some(steps) = steps {
            self.set_steps(steps);
        }
        Ok(())
    }

    /// Names, types and shapes of what a file holds.
    fn saved(&self, optimizer_state: bool) -> Result<Vec<(String, Stored)>> {
        let plan = self.keeper();
        let parameters = &plan.graph().parameters;
        let stored = |storage: &Storage| {
            let value = plan.graph().values.iter().find(|value| value.name == storage.name)?;
            let dtype = if value.dtype == DType::U32 { Dtype::U32 } else { Dtype::F32 };
            Some((dtype, value.shape.dims().to_vec()))
        };
        let mut all: Vec<_> = parameters
            .iter()
            .map(|p| (p.name().to_owned(), (Dtype::F32, p.shape().dims().to_vec())))
            .collect();
        if optimizer_state {
            let states = plan.program.storages.iter().filter(|s| s.persistent).skip(parameters.len());
            all.extend(states.filter_map(|s| Some((s.name.clone(), stored(s)?))));
        }
        Ok(all)
    }
}

/// Everything that keeps a file from being loaded.
fn differences(
    wanted: &BTreeMap<String, Stored>,
    file: &SafeTensors,
    needless: impl Fn(&str) -> bool,
) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, (dtype, shape)) in wanted {
        match file.tensor(name) {
            Err(_) => problems.push(format!("`{name}` {shape:?} is missing")),
            Ok(view) if view.shape() != shape => {
                problems.push(format!("`{name}` is {:?} in the file, {shape:?} in the model", view.shape()));
            }
            Ok(view) if view.dtype() != *dtype => {
                problems.push(format!("`{name}` is {:?} in the file, {dtype:?} in the model", view.dtype()));
            }
            Ok(_) => {}
        }
    }
    let strange = |name: &&str| !wanted.contains_key(*name) && !needless(name);
    let mut extra: Vec<&str> = file.names().into_iter().filter(strange).collect();
    extra.sort_unstable();
    problems.extend(extra.iter().map(|name| format!("`{name}` is in the file, not in the model")));
    problems
}

fn failed(path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::Weights { path: path.to_owned(), message: error.to_string() }
}
