//! What is known of a run that failed, in two files.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::StepProgress;
use crate::error::{Error, Result};
use crate::exec::{ProgramId, Session};
use crate::json::Json;

/// Steps that are remembered for the report.
const STEPS: usize = 100;

/// The last steps of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Recent(VecDeque<Json>);

impl Recent {
    pub(super) fn note(&mut self, step: u64, progress: &StepProgress) {
        if self.0.len() == STEPS {
            self.0.pop_front();
        }
        self.0.push_back(Json::object([
            ("step", step.into()),
            ("epoch", progress.epoch.into()),
            ("loss", progress.loss.map(f64::from).into()),
            ("samples_per_s", progress.samples_per_s.into()),
        ]));
    }
}

/// The error, the plan's estimate, the session's statistics and the last steps; and the plan as a memory snapshot.
pub(super) struct FailureReport {
    text: Json,
    snapshot: Vec<u8>,
}

impl FailureReport {
    pub(super) fn of(error: &Error, session: &Session, recent: &Recent) -> Self {
        let plan = session.plan(ProgramId(0));
        let text = Json::object([
            ("error", error.to_string().into()),
            ("steps_made", session.steps().into()),
            ("estimate", plan.as_ref().map_or(Json::Null, |plan| plan.estimate().json())),
            ("memory", session.memory_stats().json()),
            ("last_steps", Json::List(recent.0.iter().cloned().collect())),
        ]);
        Self { text, snapshot: plan.map(|plan| plan.dump().pickle()).unwrap_or_default() }
    }

    /// Writes `wgrad-failure-….json` and, beside it, the snapshot as `.pickle`. Returns the first.
    ///
    /// # Errors
    /// [`Error::Data`] with the path that cannot be written.
    pub(super) fn write(&self, folder: &Path) -> Result<PathBuf> {
        let ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        let path = folder.join(format!("wgrad-failure-{ms}-{}.json", std::process::id()));
        let data = |path: &Path, e: &std::io::Error| Error::Data {
            what: path.display().to_string(),
            message: e.to_string(),
        };
        std::fs::create_dir_all(folder).map_err(|e| data(folder, &e))?;
        std::fs::write(&path, format!("{}\n", self.text)).map_err(|e| data(&path, &e))?;
        let snapshot = path.with_extension("pickle");
        std::fs::write(&snapshot, &self.snapshot).map_err(|e| data(&snapshot, &e))?;
        Ok(path)
    }
}
