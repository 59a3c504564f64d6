//! Saving of parameters as safetensors files, and loading of those and of PyTorch's state dicts.

mod adapter;
mod matching;
mod options;
mod read;
mod shards;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;

pub use options::{Converted, Ignored, LoadOptions, LoadReport, Rename};

use super::Session;
use super::feed::finite;
use super::session::DIVERGED;
use super::state_layout::StateLayout;
use crate::compile::{Storage, StorageId};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::Param;
use crate::maybe_async;
use crate::progress;
use adapter::Adapters;
use matching::{Matched, Wanted, matched};
use read::File;
pub(crate) use read::Origin;
pub(crate) use write::Destination;

/// How a session stores a tensor that is saved to files.
struct Stored {
    /// Type in the session.
    dtype: DType,
    /// Type in a file that is written.
    written: DType,
    shape: Vec<usize>,
    /// Whether it is optimizer state and not a parameter.
    state: bool,
    /// Whether it must be finite: a parameter that is not a buffer.
    finite: bool,
    /// Whether it is a parameter that training leaves as it is.
    frozen: bool,
}

impl Stored {
    fn elements(&self) -> u64 {
        self.shape.iter().map(|&n| n as u64).product()
    }

    /// Bytes in a file that is written.
    fn bytes(&self) -> u64 {
        self.elements() * if self.written.is_half() { 2 } else { 4 }
    }
}

/// Key of the note with the number of training steps, in files with optimizer state.
const STEPS: &str = "steps";
/// The largest number of steps that a file may have: every integer up to it is an `f64`.
const MAX_STEPS: u64 = 1 << 53;
const BAD_FILE: &str =
    "use an earlier file; `LoadOptions { accept_non_finite: true, .. }` loads it all the same";
const TOO_LARGE_FOR_FILE: &str = "`SaveOptions::dtype` can be a wider type; files saved before are safe";
const TOO_LARGE: &str =
    "store weights in a wider type; `LoadOptions { accept_non_finite: true, .. }` loads it as infinity";
/// Note in files without frozen parameters.
const WITHOUT_FROZEN: (&str, &str) = ("frozen", "left out");
/// Note that other programs expect in a file: tensors are laid out as PyTorch's.
const FORMAT: (&str, &str) = ("format", "pt");

/// What [`Session::save_with`] writes besides the parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SaveOptions {
    /// Write the optimizer's state and the number of steps, so that training can continue from the file.
    pub optimizer_state: bool,
    /// Notes (metadata strings) of your own, such as what a program must know to build the model again.
    /// [`read_notes`] reads them. The keys `format`, `frozen` and `steps` are reserved, and those that begin with `run.`.
    pub notes: BTreeMap<String, String>,
    /// Element type of the parameters in the file: `F32`, which `None` is, too, `F16` or `BF16`, rounded to nearest, ties to
    /// even. Buffers and optimizer state stay `f32`.
    pub dtype: Option<DType>,
    /// Write `W + (alpha / rank) B A`, with DoRA's lengths of rows, in place of each weight `W` with an adapter
    /// ([`Params::adapt`](crate::graph::Params::adapt)), and no adapters: a file of the base model, for programs that know none.
    /// It has no optimizer state.
    pub merged: bool,
    /// Leave out frozen parameters, such as a language model under its adapters: a session that loads the file keeps its
    /// own, which it has from a file of the model.
    pub without_frozen: bool,
    /// Write parameters that are NaN or infinite, too. Without it they are an error and a previous file stays.
    pub accept_non_finite: bool,
}

impl SaveOptions {
    /// Everything that training needs to continue: optimizer state and the number of steps.
    pub fn training_state() -> Self {
        Self { optimizer_state: true, ..Self::default() }
    }
}

/// What a file will have.
struct Contents<'a> {
    tensors: Vec<(String, Stored)>,
    notes: BTreeMap<String, String>,
    accept_non_finite: bool,
    /// Whether ranks have shares of the tensors.
    sharded: bool,
    /// The name that a tensor has in the file.
    name_in_file: fn(&str) -> String,
    /// The adapters that are added to the weights that they adapt, or written as PEFT's.
    adapters: Option<&'a Adapters>,
}

impl Session {
    /// Writes all parameters to a safetensors file, as `f32` whatever type the device stores; with [`SaveOptions::dtype`] in 16
    /// bits. The write is atomic: after an error or a crash the path has the old file or the new one, whole. A symbolic link is
    /// followed; anything but a regular file is refused.
    ///
    /// # Errors
    /// [`Error::Weights`] if it cannot be written, [`Error::NotFinite`] for parameters that are NaN or
    /// infinite; a previous file stays as it was.
    #[maybe_async]
    pub async fn save(&mut self, path: impl AsRef<Path>) -> Result<()> {
        self.save_with(path, &SaveOptions::default()).await
    }

    /// [`Session::save`] in 16 bits, with adapters added to their weights, with optimizer state, or with notes of your own. If
    /// the state is sharded ([`Shard`](crate::compile::Shard)), all ranks must call it; rank 0 writes the file, which any number of
    /// ranks can load.
    ///
    /// # Errors
    /// As [`Session::save`], also for numbers beyond [`SaveOptions::dtype`]; [`Error::Setting`] for a type of no file, and for
    /// `merged` without adapters or with optimizer state; [`Error::Rank`].
    #[maybe_async]
    pub async fn save_with(&mut self, path: impl AsRef<Path>, options: &SaveOptions) -> Result<()> {
        self.save_to(Destination::Path(path.as_ref(), &[]), options).await
    }

    /// [`Session::save_with`] into host memory: returns the bytes of the file, of which rank 0 has all.
    ///
    /// # Errors
    /// [`Error::NotFinite`]; [`Error::Rank`].
    #[maybe_async]
    pub async fn save_bytes(&mut self, options: &SaveOptions) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.save_to(Destination::Memory(&mut bytes), options).await?;
        Ok(bytes)
    }

    #[maybe_async]
    pub(crate) async fn save_to(&mut self, to: Destination<'_>, options: &SaveOptions) -> Result<()> {
        let SaveOptions { optimizer_state, ref notes, dtype, merged, without_frozen, accept_non_finite } =
            *options;
        let dtype = dtype.unwrap_or(DType::F32);
        if dtype != DType::F32 && !dtype.is_half() {
            return Err(Error::setting(
                "dtype",
                format!("files of parameters in {dtype}: f32, f16 and bf16 are possible"),
            ));
        }
        if merged && optimizer_state {
            return Err(Error::setting(
                "merged",
                "a merged file with optimizer state: it has no adapters to train",
            ));
        }
        let adapters = if merged { Some(self.adapters()?) } else { None };
        let mut notes = notes.clone();
        if optimizer_state {
            notes.insert(STEPS.to_owned(), self.steps().to_string());
        }
        let mut tensors = self.stored(optimizer_state);
        if without_frozen {
            notes.insert(WITHOUT_FROZEN.0.to_owned(), WITHOUT_FROZEN.1.to_owned());
            tensors.retain(|_, stored| !stored.frozen);
        }
        if let Some(adapters) = &adapters {
            tensors.retain(|name, _| !adapters.names.contains(name));
        }
        for stored in tensors.values_mut().filter(|stored| stored.finite) {
            stored.written = dtype;
        }
        let mut tensors: Vec<_> = tensors.into_iter().collect();
        // Every tensor begins at a multiple of its elements' size.
        tensors.sort_by_key(|(_, stored)| stored.written.is_half());
        // Every rank takes part in reading sharded state.
        let sharded = self.is_sharded(optimizer_state);
        let (name_in_file, adapters): (fn(&str) -> String, _) = (str::to_owned, adapters.as_ref());
        let contents = Contents { tensors, notes, accept_non_finite, sharded, name_in_file, adapters };
        self.write_file(to, &contents).await
    }

    /// Writes a file of tensors. If they are sharded, rank 0 writes.
    #[maybe_async]
    async fn write_file(&mut self, to: Destination<'_>, contents: &Contents<'_>) -> Result<()> {
        let Contents { tensors, notes, accept_non_finite, sharded, name_in_file, adapters } = contents;
        let path = &to.path();
        let mut notes = notes.clone();
        notes.insert(FORMAT.0.to_owned(), FORMAT.1.to_owned());
        let mut file = (!sharded || self.state_plan.parallel.rank == 0).then(|| {
            let mut file = to.open().map_err(|e| failed(path, &e))?;
            file.write_all(&write::header(*name_in_file, tensors, &notes)).map_err(|e| failed(path, &e))?;
            Ok(file)
        });
        let task = progress::task("saving", tensors.iter().map(|(_, stored)| stored.elements()).sum::<u64>());
        let mut saved = 0;
        for (name, stored) in tensors {
            let data = self.written(name, *adapters).await?;
            if let Some(Ok(open)) = &mut file {
                let packed;
                let words: &[u32] = if stored.written.is_half() {
                    packed = stored.written.pack(&data);
                    &packed
                } else {
                    bytemuck::cast_slice(&data)
                };
                let checked = || {
                    if !stored.finite || *accept_non_finite {
                        return Ok(());
                    }
                    let what = || format!("{} was not written: parameter `{name}`", path.display());
                    finite(&data, what, DIVERGED)?;
                    if !stored.written.is_half() {
                        return Ok(());
                    }
                    let what = || format!("{} in {}", what(), stored.written);
                    finite(&stored.written.unpack(words, data.len()), what, TOO_LARGE_FOR_FILE)
                };
                let written = checked().and_then(|()| {
                    write::elements(open, words, stored.bytes()).map_err(|e| failed(path, &e))
                });
                match written {
                    Err(error) if *sharded => file = Some(Err(error)),
                    written => written?,
                }
            }
            saved += stored.elements();
            task.done(saved);
        }
        match file {
            Some(file) => file?.commit().map_err(|e| failed(path, &e)),
            None => Ok(()),
        }
    }

    /// Reads parameters, and optimizer state and the number of steps if the file has them. This is
    /// [`Session::load_with`] with default options: names must agree on both sides.
    ///
    /// # Errors
    /// As [`Session::load_with`].
    #[maybe_async]
    pub async fn load(&mut self, path: impl AsRef<Path>) -> Result<()> {
        self.load_with(path, &LoadOptions::default()).await.map(drop)
    }

    /// [`Session::load`] for a file whose tensors have other names: `name_of` maps a name in the file to the
    /// model's name, or to `None` for a tensor that is not needed.
    ///
    /// # Errors
    /// As [`Session::load_with`].
    #[maybe_async]
    pub async fn load_named(
        &mut self,
        path: impl AsRef<Path>,
        name_of: impl Fn(&str) -> Option<String>,
    ) -> Result<()> {
        self.load_file(Origin::Path(path.as_ref()), &LoadOptions::default(), &name_of, None).await.map(drop)
    }

    /// Reads a safetensors file of this crate, of PyTorch or of Hugging Face, or a state dict that `torch.save` has
    /// written since PyTorch 1.6 (`.pt`, `.pth`, `.bin`), and reports what it did. What kind of file it is, its first
    /// bytes say.
    ///
    /// - Tensors are matched by name, after [`LoadOptions::rename`]. Two tensors of the file may map to the
    ///   same name if they are equal, such as tied weights. Shapes must agree.
    /// - F16, BF16, F32 and F64 are converted to the session's type, `f32` or 16 bits, rounded to nearest,
    ///   ties to even.
    /// - A tensor that the model does not have is ignored if the last part of its name is
    ///   `num_batches_tracked` and it is an `i64` scalar: PyTorch's batch norms count batches there.
    /// - Adapters ([`Params::adapt`](crate::graph::Params::adapt)) stay as they are if the file has none of their tensors: it is
    ///   one of the base.
    /// - Frozen parameters stay as they are if the file was saved without them ([`SaveOptions::without_frozen`]).
    /// - Optimizer state is expected if the file has the number of steps, which [`Session::save`] writes with
    ///   it. A session that only evaluates ignores it. With [`LoadOptions::strict`] off, optimizer state that
    ///   is incomplete in the file is not loaded, nor is the number of steps.
    ///
    /// Nothing in a file is executed: a pickle that imports anything but PyTorch's storages and tensors is refused.
    /// The state dict may lie in a dict under `state_dict`, `model_state_dict`, `model` or `module`.
    ///
    /// The file is read tensor by tensor: host memory holds no more than one of them, and for a view with strides what
    /// lies between its elements in the file. Names, shapes and types
    /// are checked before the first tensor is loaded, so a file that does not match changes nothing. If a
    /// read fails later or the device is lost, the tensors loaded until then stay.
    ///
    /// # Errors
    /// [`Error::Weights`] with every name, shape and type that does not match, and how to resolve it; or for
    /// a file that is missing or damaged. [`Error::NotFinite`] for parameters that are NaN or infinite, or would
    /// be in the type in which the session stores them, before the first tensor is loaded.
    #[maybe_async]
    pub async fn load_with(&mut self, path: impl AsRef<Path>, options: &LoadOptions) -> Result<LoadReport> {
        self.load_from(Origin::Path(path.as_ref()), options).await
    }

    /// [`Session::load_with`] from the contents of a file in host memory; `name` is its name, for errors.
    ///
    /// # Errors
    /// As [`Session::load_with`].
    #[maybe_async]
    pub async fn load_bytes(
        &mut self,
        name: &str,
        bytes: &[u8],
        options: &LoadOptions,
    ) -> Result<LoadReport> {
        self.load_from(Origin::Memory(Path::new(name), bytes), options).await
    }

    #[maybe_async]
    pub(crate) async fn load_from(&mut self, from: Origin<'_>, options: &LoadOptions) -> Result<LoadReport> {
        self.load_file(from, options, &|name| options.rename.apply(name), None).await
    }

    #[maybe_async]
    async fn load_file(
        &mut self,
        from: Origin<'_>,
        options: &LoadOptions,
        name_of: &dyn Fn(&str) -> Option<String>,
        only: Option<&BTreeSet<String>>,
    ) -> Result<LoadReport> {
        let (mut file, path) = (File::open(from)?, from.path());
        let steps = file.notes().get(STEPS).map(|steps| steps.parse::<u64>());
        let steps = steps.transpose().map_err(|e| failed(path, &format!("the number of steps: {e}")))?;
        let mut tensors = self.stored(steps.is_some());
        match only {
            Some(only) => tensors.retain(|name, _| only.contains(name)),
            None => self.leave_out_adapters(&mut tensors, &file, name_of),
        }
        if file.notes().get(WITHOUT_FROZEN.0).is_some_and(|note| note == WITHOUT_FROZEN.1) {
            tensors.retain(|_, stored| !stored.frozen);
        }
        let evaluates = steps.is_some() && self.state_plan.optimizer.is_none();
        if let Some(steps) = steps.filter(|steps| *steps > MAX_STEPS) {
            return Err(failed(path, &format!("{steps} steps, more than a run can make ({MAX_STEPS})")));
        }
        let wanted = Wanted { tensors, evaluates, strict: options.strict, name_of };
        let Matched { tensors, mut report } = matched(&mut file, &wanted)?;
        let mut in_order: Vec<_> = tensors.into_iter().collect();
        let stored = |name: &str| &wanted.tensors[name];
        // State comes after parameters: setting one resets its correction.
        in_order.sort_by_key(|(name, entry)| (stored(name).state, entry.start));
        if !options.accept_non_finite {
            for (name, info) in in_order.iter().filter(|(name, _)| stored(name).finite) {
                let held = stored(name).dtype;
                if let Some((index, number, value)) = file.non_finite(info, held)? {
                    let what = format!("{}: parameter `{name}`", path.display());
                    let (what, help) = match number.is_finite() {
                        true => (format!("{what}, {number} as {held}"), TOO_LARGE),
                        false => (what, BAD_FILE),
                    };
                    return Err(Error::NotFinite { what, index, value, help });
                }
            }
        }
        let task =
            progress::task("loading", in_order.iter().map(|(name, _)| stored(name).elements()).sum::<u64>());
        let mut loaded = 0;
        for (name, info) in in_order {
            let Stored { dtype: to, .. } = *stored(&name);
            let (data, overflowed) = file.elements(&info, to)?;
            self.set_parameter(&name, &data).await?;
            loaded += stored(&name).elements();
            task.done(loaded);
            report.loaded += 1;
            let from = format!("{:?}", info.dtype);
            if from.to_lowercase() != to.name() {
                report.converted.push(Converted { name, from, to, overflowed });
            }
        }
        if let Some(steps) = steps.filter(|_| !report.missing.iter().any(|name| stored(name).state)) {
            self.set_steps(steps);
            report.steps = Some(steps);
        }
        Ok(report)
    }

    /// Returns the tensors that files hold of this session, by name.
    fn stored(&self, optimizer_state: bool) -> BTreeMap<String, Stored> {
        let plan = &self.state_plan;
        let graph = plan.graph();
        let one = |(i, storage): (usize, &Storage)| {
            let dtype = StateLayout::of(plan, StorageId(i as u32)).dtype;
            let parameter = graph.parameters.get(i);
            if parameter.is_some_and(Param::is_cache) {
                return None;
            }
            let shape = match parameter {
                Some(parameter) => parameter.shape(),
                None => {
                    let value = graph.values.iter().find(|value| value.name == storage.name)?;
                    value.part_of.map_or(value.shape, |part| part.whole)
                }
            };
            let state = parameter.is_none();
            let finite = parameter.is_some_and(|param| !param.is_buffer());
            let frozen = parameter.is_some_and(|param| !param.is_buffer() && !param.trained());
            let shape = shape.dims().to_vec();
            let written = if dtype == DType::U32 { DType::U32 } else { DType::F32 };
            Some((storage.name.clone(), Stored { dtype, written, shape, state, finite, frozen }))
        };
        // Parameters are the first storages, in the order of registration.
        let count = if optimizer_state { usize::MAX } else { graph.parameters.len() };
        let lasting = plan.program.storages.iter().enumerate().filter(|(_, storage)| storage.is_state());
        lasting.take(count).filter_map(one).collect()
    }
}

/// Returns the notes (metadata strings) that [`Session::save_with`], or another program, wrote to a
/// safetensors file.
///
/// # Errors
/// [`Error::Weights`] for a file that is missing or damaged.
pub fn read_notes(path: impl AsRef<Path>) -> Result<BTreeMap<String, String>> {
    notes_of(Origin::Path(path.as_ref()))
}

/// [`read_notes`] from the contents of a file in host memory; `name` is its name, for errors.
///
/// # Errors
/// As [`read_notes`].
pub fn read_notes_of(name: &str, bytes: &[u8]) -> Result<BTreeMap<String, String>> {
    notes_of(Origin::Memory(Path::new(name), bytes))
}

/// [`read_notes`] of a file, wherever it is.
pub(crate) fn notes_of(from: Origin<'_>) -> Result<BTreeMap<String, String>> {
    Ok(File::open(from)?.notes())
}

fn read_json(path: &Path) -> Result<serde_json::Value> {
    let text = std::fs::read(path).map_err(|e| failed(path, &e))?;
    serde_json::from_slice(&text).map_err(|e| failed(path, &format!("damaged: {e}")))
}

fn failed(path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::Weights { path: path.to_owned(), message: error.to_string() }
}
