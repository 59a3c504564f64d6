//! Low-rank adapters as files of PEFT, and merged into the weights that they adapt.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use super::read::File;
use super::{Contents, Destination, LoadOptions, Origin, Stored, failed, read_json};
use crate::error::{Error, Result};
use crate::exec::Session;
use crate::files::Replacement;
use crate::graph::LoraConfig;
use crate::maybe_async;

/// The files of a folder of PEFT, and what the names of tensors begin with there.
const CONFIG: &str = "adapter_config.json";
const TENSORS: &str = "adapter_model.safetensors";
const PREFIX: &str = "base_model.model.";

/// What the path of an adapter's first matrix ends in, after the layer's.
const FIRST: &str = ".lora_A.weight";

/// What DoRA trains besides: here what is added to the lengths of the base's rows, in files of PEFT their sums.
const CHANGE: &str = ".lora_magnitude_change";
const LENGTHS: &str = ".lora_magnitude_vector";

fn name_in_file(name: &str) -> String {
    match name.strip_suffix(CHANGE) {
        Some(layer) => format!("{PREFIX}{layer}{LENGTHS}"),
        None => format!("{PREFIX}{name}"),
    }
}

fn name_of_file(name: &str) -> Option<String> {
    let name = name.strip_prefix(PREFIX).unwrap_or(name);
    Some(match name.strip_suffix(LENGTHS) {
        Some(layer) => format!("{layer}{CHANGE}"),
        None => name.to_owned(),
    })
}

impl LoraConfig {
    /// Reads the rank, alpha, dropout and targets of a folder of PEFT, and whether it is DoRA: for
    /// [`Params::adapt`](crate::graph::Params::adapt), before [`Session::load_adapter`] reads the matrices.
    ///
    /// # Errors
    /// [`Error::Weights`] for a folder that cannot be read, and for targets that are a pattern of PEFT's.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        let path = folder.as_ref().join(CONFIG);
        let config = read_json(&path)?;
        let wrong = |name: &str, expected: &str| {
            failed(&path, &format!("`{name}` is {}, expected {expected}", config[name]))
        };
        let number = |name: &str| config[name].as_f64().ok_or_else(|| wrong(name, "a number"));
        let rank = config["r"].as_u64().ok_or_else(|| wrong("r", "a whole number"))? as usize;
        let targets = match &config["target_modules"] {
            Value::String(all) if all == "all-linear" => vec!["*".to_owned()],
            Value::Array(list) if list.iter().all(Value::is_string) => {
                list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
            }
            _ => return Err(wrong("target_modules", "a list of names, or all-linear")),
        };
        let alpha = number("lora_alpha")? as f32;
        let dora = config["use_dora"].as_bool().unwrap_or(false);
        Ok(Self { rank, alpha, dropout: number("lora_dropout")?, dora, targets, base: None })
    }
}

impl Session {
    /// Writes the adapters ([`Params::adapt`](crate::graph::Params::adapt)) as a folder of PEFT, `adapter_config.json` and
    /// `adapter_model.safetensors`, which `PeftModel.from_pretrained` reads over a base model with the same names. The folder
    /// is made if it does not exist; each file is written whole or not at all, the tensors first. For DoRA the adapted weights are
    /// read from the device, layer by layer.
    ///
    /// # Errors
    /// [`Error::Weights`] if it cannot be written; [`Error::Setting`] without adapters, or with adapters of several configs;
    /// [`Error::NotFinite`].
    #[maybe_async]
    pub async fn save_adapter(&mut self, folder: impl AsRef<Path>) -> Result<()> {
        let folder = folder.as_ref();
        let adapters = self.adapters()?;
        // Of ranks that all have the adapters, the first writes them.
        if self.state_plan.parallel.rank != 0 && !self.is_sharded(false) {
            return Ok(());
        }
        std::fs::create_dir_all(folder).map_err(|e| failed(folder, &e))?;
        let mut all = self.stored(false);
        all.retain(|name, _| adapters.names.contains(name));
        let contents = Contents {
            tensors: all.into_iter().collect(),
            notes: BTreeMap::new(),
            accept_non_finite: false,
            sharded: self.is_sharded(false),
            name_in_file,
            adapters: Some(&adapters),
        };
        self.write_file(Destination::Path(&folder.join(TENSORS), &[]), &contents).await?;
        if self.state_plan.parallel.rank != 0 {
            return Ok(());
        }
        let path = folder.join(CONFIG);
        let written = Replacement::create(&path).and_then(|mut file| {
            let text = serde_json::to_string_pretty(&adapters.config()).map_err(std::io::Error::other)?;
            file.write_all(text.as_bytes())?;
            file.commit()
        });
        written.map_err(|e| failed(&path, &e))
    }

    /// Reads adapters from a folder of PEFT into those of this session; the base stays. So one session can use several
    /// adapters over one base, one after the other. Optimizer state stays as well: it is that of the adapters before.
    ///
    /// # Errors
    /// [`Error::Weights`] for a folder that cannot be read, or whose rank, alpha or tensors are others than this session's;
    /// [`Error::Setting`] without adapters; [`Error::NotFinite`].
    #[maybe_async]
    pub async fn load_adapter(&mut self, folder: impl AsRef<Path>) -> Result<()> {
        let (adapters, folder) = (self.adapters()?, folder.as_ref());
        let path = folder.join(CONFIG);
        let theirs = read_json(&path)?;
        for (name, ours) in adapters.computed() {
            let same = match (&theirs[name], &ours) {
                (Value::Null, Value::Bool(false)) => true,
                (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
                (theirs, ours) => theirs == ours,
            };
            if !same {
                let message = format!("`{name}` is {}, the session's adapters have {ours}", theirs[name]);
                return Err(failed(&path, &message));
            }
        }
        let (tensors, options) = (folder.join(TENSORS), LoadOptions::default());
        let from = Origin::Path(&tensors);
        self.load_file(from, &options, &name_of_file, Some(&adapters.names)).await?;
        for (base, layer) in &adapters.of_base {
            let Some(magnitude) = &layer.magnitude else { continue };
            let lengths = layer.lengths(&self.parameter(base).await?);
            let learnt = self.parameter(magnitude).await?;
            let change: Vec<f32> =
                learnt.iter().zip(lengths).map(|(learnt, length)| learnt - length).collect();
            self.set_parameter(magnitude, &change).await?;
        }
        Ok(())
    }

    /// Returns a parameter or optimizer state as a file has it that is written with these adapters: a weight with its adapter
    /// added, and lengths of rows in place of their changes.
    #[maybe_async]
    pub(super) async fn written(&mut self, name: &str, adapters: Option<&Adapters>) -> Result<Vec<f32>> {
        let mut data = self.parameter(name).await?;
        let Some(adapters) = adapters else { return Ok(data) };
        if let Some(layer) = adapters.of_base.get(name) {
            let a = self.parameter(&layer.a).await?;
            let b = self.parameter(&layer.b).await?;
            let change = match &layer.magnitude {
                Some(magnitude) => Some(self.parameter(magnitude).await?),
                None => None,
            };
            layer.merge(&mut data, &a, &b, change.as_deref());
        }
        let changed = |layer: &Layer| layer.magnitude.as_deref() == Some(name);
        if let Some((base, layer)) = adapters.of_base.iter().find(|(_, layer)| changed(layer)) {
            let lengths = layer.lengths(&self.parameter(base).await?);
            data.iter_mut().zip(lengths).for_each(|(change, length)| *change += length);
        }
        Ok(data)
    }

    /// Takes adapters out of what a file should have, if it has none of their tensors.
    pub(super) fn leave_out_adapters(
        &self,
        tensors: &mut BTreeMap<String, Stored>,
        file: &File<'_>,
        name_of: &dyn Fn(&str) -> Option<String>,
    ) {
        let Ok(Adapters { names, .. }) = self.adapters() else { return };
        let has = |name: &String| name_of(name).is_some_and(|name| names.contains(&name));
        if !file.tensors().keys().any(has) {
            tensors.retain(|name, _| !names.contains(name));
        }
    }

    pub(super) fn adapters(&self) -> Result<Adapters> {
        let params = &self.state_plan.graph().parameters;
        let mut adapters =
            Adapters { config: None, input_first: false, names: BTreeSet::new(), of_base: BTreeMap::new() };
        let matrices = params.iter().filter_map(|param| Some((param, param.adapter()?)));
        for (param, adapter) in matrices {
            let config = adapters.config.get_or_insert_with(|| LoraConfig::clone(&adapter.config));
            if *config != *adapter.config {
                let message = format!(
                    "`{}` is {}, other adapters are {config}: a folder has adapters of one config",
                    param.name(),
                    adapter.config
                );
                return Err(Error::setting("lora", message));
            }
            adapters.input_first |= adapter.input_first;
            adapters.names.insert(param.name().to_owned());
            if let Some(path) = param.name().strip_suffix(FIRST) {
                let layer = Layer {
                    a: param.name().to_owned(),
                    b: format!("{path}.lora_B.weight"),
                    magnitude: config.dora.then(|| format!("{path}{CHANGE}")),
                    rank: config.rank,
                    inputs: param.shape().last(),
                    scale: config.scale(),
                    input_first: adapter.input_first,
                };
                adapters.of_base.insert(adapter.base.clone(), layer);
            }
        }
        match adapters.names.is_empty() {
            true => Err(Error::setting("lora", "the model has no adapters: `Params::adapt` adds them")),
            false => Ok(adapters),
        }
    }
}

/// The adapters of a session.
pub(super) struct Adapters {
    config: Option<LoraConfig>,
    input_first: bool,
    /// Of all parameters.
    pub(super) names: BTreeSet<String>,
    /// By the weight that they adapt.
    of_base: BTreeMap<String, Layer>,
}

/// The adapter of one layer.
struct Layer {
    a: String,
    b: String,
    /// The change of lengths, with DoRA.
    magnitude: Option<String>,
    rank: usize,
    inputs: usize,
    scale: f32,
    input_first: bool,
}

impl Adapters {
    /// The entries of PEFT's config that the step was compiled with.
    fn computed(&self) -> Vec<(&'static str, Value)> {
        let config = self.config.clone().unwrap_or_default();
        vec![
            ("peft_type", json!("LORA")),
            ("r", json!(config.rank)),
            ("lora_alpha", json!(f64::from(config.alpha))),
            ("use_dora", json!(config.dora)),
            ("use_rslora", json!(false)),
        ]
    }

    fn config(&self) -> Value {
        let config = self.config.clone().unwrap_or_default();
        let layers = || self.names.iter().filter_map(|name| name.strip_suffix(FIRST));
        // A pattern is one of this crate: PEFT gets the paths.
        let targets: Vec<&str> = match config.targets.iter().any(|target| target.contains('*')) {
            true => layers().collect(),
            false => config.targets.iter().map(String::as_str).collect(),
        };
        let mut entries = serde_json::Map::new();
        entries.extend(self.computed().into_iter().map(|(name, value)| (name.to_owned(), value)));
        let more = [
            ("lora_dropout", json!(config.dropout)),
            ("target_modules", json!(targets)),
            ("bias", json!("none")),
            ("fan_in_fan_out", json!(self.input_first)),
            ("init_lora_weights", json!(true)),
            ("inference_mode", json!(true)),
            ("modules_to_save", Value::Null),
            ("task_type", json!("CAUSAL_LM")),
            ("base_model_name_or_path", Value::Null),
        ];
        entries.extend(more.map(|(name, value)| (name.to_owned(), value)));
        Value::Object(entries)
    }
}

impl Layer {
    /// Where element `input` of row `output` of a weight is.
    fn at(&self, [output, input]: [usize; 2], outputs: usize) -> usize {
        if self.input_first { input * outputs + output } else { output * self.inputs + input }
    }

    /// Adds `scale B A` to a weight `[out, in]`, or its transpose to one `[in, out]`, and gives its rows the lengths that they
    /// had plus `change [out]`.
    fn merge(&self, weight: &mut [f32], a: &[f32], b: &[f32], change: Option<&[f32]>) {
        let Self { rank, inputs, scale, .. } = *self;
        let outputs = weight.len() / inputs.max(1);
        let lengths = change.map(|_| self.lengths(weight));
        let mut row = vec![0.0f64; inputs];
        for output in 0..outputs {
            row.fill(0.0);
            for r in 0..rank {
                let factor = f64::from(b[output * rank + r]);
                let first = &a[r * inputs..(r + 1) * inputs];
                row.iter_mut().zip(first).for_each(|(sum, x)| *sum += factor * f64::from(*x));
            }
            for (input, sum) in row.iter_mut().enumerate() {
                *sum = f64::from(weight[self.at([output, input], outputs)]) + f64::from(scale) * *sum;
            }
            let factor = match (change, &lengths) {
                (Some(change), Some(lengths)) => {
                    let squares: f64 = row.iter().map(|x| x * x).sum();
                    let length = squares.max(f64::from(f32::MIN_POSITIVE)).sqrt();
                    (f64::from(lengths[output]) + f64::from(change[output])) / length
                }
                _ => 1.0,
            };
            for (input, sum) in row.iter().enumerate() {
                weight[self.at([output, input], outputs)] = (factor * sum) as f32;
            }
        }
    }

    /// The lengths of the rows of a weight, `[out]`.
    fn lengths(&self, weight: &[f32]) -> Vec<f32> {
        let outputs = weight.len() / self.inputs.max(1);
        let squares = |output| {
            let row = (0..self.inputs).map(|input| f64::from(weight[self.at([output, input], outputs)]));
            row.map(|x| x * x).sum::<f64>()
        };
        (0..outputs).map(|output| squares(output).sqrt() as f32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: [f32; 6] = [1.0, 2.0, 3.0, 10.0, 20.0, 30.0];
    const B: [f32; 4] = [1.0, 0.0, 0.0, 2.0];

    fn layer(input_first: bool) -> Layer {
        let names = || String::new();
        Layer { a: names(), b: names(), magnitude: None, rank: 2, inputs: 3, scale: 0.5, input_first }
    }

    #[test]
    fn merging_adds_the_product_either_way_around() {
        let mut weight = [100.0; 6];
        layer(false).merge(&mut weight, &A, &B, None);
        assert_eq!(weight, [100.5, 101.0, 101.5, 110.0, 120.0, 130.0]);
        let mut weight = [100.0; 6];
        layer(true).merge(&mut weight, &A, &B, None);
        assert_eq!(weight, [100.5, 110.0, 101.0, 120.0, 101.5, 130.0]);
    }

    /// Rows of length 3 and 6 get length 4 and 3; a row of zeros stays one.
    #[test]
    fn merging_gives_rows_their_lengths() {
        let weight = [1.0, 2.0, 2.0, 4.0, -4.0, 2.0];
        assert_eq!(layer(false).lengths(&weight), [3.0, 6.0]);
        let transposed = [1.0, 4.0, 2.0, -4.0, 2.0, 2.0];
        assert_eq!(layer(true).lengths(&transposed), [3.0, 6.0]);
        for (input_first, mut weight) in [(false, weight), (true, transposed)] {
            let layer = layer(input_first);
            layer.merge(&mut weight, &A, &B, Some(&[1.0, -3.0]));
            let found = layer.lengths(&weight);
            assert!((found[0] - 4.0).abs() < 1e-6 && (found[1] - 3.0).abs() < 1e-6, "{found:?}");
            assert!((weight[0] / weight[if input_first { 2 } else { 1 }] - 1.5 / 3.0).abs() < 1e-6);
        }
        let mut zeros = [0.0; 6];
        layer(false).merge(&mut zeros, &A, &[0.0; 4], Some(&[0.0; 2]));
        assert_eq!(zeros, [0.0; 6]);
    }
}
