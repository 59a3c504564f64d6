//! A failure report, written to two files.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::compile::Plan;
use crate::error::{Error, Result};
use crate::files;
use crate::json::Json;
use crate::memory::Dump;

/// An error and the state at the time it occurred, written to files for later analysis.
///
/// ```
/// use wgrad::prelude::*;
/// use wgrad::{models::Model, report::Failure};
/// # fn main() -> wgrad::Result<()> {
/// let (step, limits) = (Model::named("mlp", 0)?.train_step(128)?, Limits::default());
/// let options = PlanOptions { budget: Some(Bytes::mib(1)), ..PlanOptions::default() };
/// if let Err(error) = step.plan(&options, &limits) {
///     let failure = Failure::of(&error).with_plan(&step.plan_over_budget(&options, &limits)?);
///     eprintln!("{error}; what is known is in {}", failure.write(std::env::temp_dir())?.display());
/// }
/// # Ok(())
/// # }
/// ```
///
/// [`Failure::with_device`], [`Failure::with_session`] and [`Failure::with_eager`] add the state of a device.
/// A [`Monitor`](crate::train::Monitor) writes a complete report for a [`Trainer`](crate::train::Trainer).
#[derive(Clone, Debug)]
pub struct Failure {
    entries: Vec<(String, Json)>,
    snapshot: Option<Vec<u8>>,
}

impl Failure {
    /// Creates a report with the message of an error.
    pub fn of(error: &Error) -> Self {
        Self { entries: vec![("error".to_owned(), error.to_string().into())], snapshot: None }
    }

    /// Whether a report helps with an error: errors of memory, of a device or of a loss. Other errors are
    /// mistakes in the request, and their message is complete.
    pub fn helps_with(error: &Error) -> bool {
        matches!(
            error,
            Error::OverBudget { .. }
                | Error::OutOfMemory { .. }
                | Error::TensorTooLarge { .. }
                | Error::Pool(_)
                | Error::DeviceLost(_)
                | Error::Device { .. }
                | Error::LossNotFinite { .. }
                | Error::Check(_)
                | Error::Internal(_)
        )
    }

    /// Adds a plan's memory estimate, and the plan's memory events as the snapshot.
    #[must_use]
    pub fn with_plan(self, plan: &Plan) -> Self {
        self.with("estimate", plan.estimate().json()).with_snapshot(&plan.dump())
    }

    /// Sets the snapshot to a pool's pages, tensors and last events; replaces the snapshot of a plan.
    #[must_use]
    pub fn with_snapshot(self, dump: &Dump) -> Self {
        Self { snapshot: Some(dump.pickle()), ..self }
    }

    /// Adds a named value.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<Json>) -> Self {
        self.entries.push((name.into(), value.into()));
        self
    }

    /// Returns the report as JSON.
    pub fn json(&self) -> Json {
        Json::Object(self.entries.clone())
    }

    /// Writes `wgrad-failure-….json` into a folder, which is created. The snapshot, if there is one, is
    /// written next to it as `.pickle` for <https://pytorch.org/memory_viz>. Returns the path of the JSON
    /// file.
    ///
    /// # Errors
    /// [`Error::Data`] with the path that cannot be written.
    pub fn write(&self, folder: impl AsRef<Path>) -> Result<PathBuf> {
        let folder = folder.as_ref();
        let ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        let path = folder.join(format!("wgrad-failure-{ms}-{}.json", std::process::id()));
        let data = |path: &Path, e: &std::io::Error| Error::Data {
            what: path.display().to_string(),
            message: e.to_string(),
        };
        std::fs::create_dir_all(folder).map_err(|e| data(folder, &e))?;
        files::write(&path, format!("{}\n", self.json()).as_bytes()).map_err(|e| data(&path, &e))?;
        if let Some(bytes) = &self.snapshot {
            let snapshot = path.with_extension("pickle");
            files::write(&snapshot, bytes).map_err(|e| data(&snapshot, &e))?;
        }
        Ok(path)
    }
}
