//! Information about devices and runs for the report of a failure.

use std::collections::VecDeque;

use super::StepProgress;
use crate::device::Device;
#[cfg(not(target_family = "wasm"))]
use crate::exec::Eager;
use crate::exec::{ProgramId, Session};
use crate::json::Json;
use crate::report::Failure;

/// Number of the last steps that the report lists.
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

    pub(super) fn json(&self) -> Json {
        Json::List(self.0.iter().cloned().collect())
    }
}

impl Failure {
    /// Adds the device, its budget and the bytes in use on it.
    #[must_use]
    pub fn with_device(self, device: &Device) -> Self {
        let (adapter, driver) = (device.adapter(), device.driver_memory());
        let known = Json::object([
            ("adapter", adapter.name.as_str().into()),
            ("driver", adapter.driver.as_str().into()),
            ("limits_max_buffer", adapter.limits.max_buffer.into()),
            ("limits_max_binding", adapter.limits.max_binding.into()),
            ("budget_bytes", device.budget().map(|budget| budget.0).into()),
            ("used_bytes", device.used_bytes().into()),
            ("driver_allocated_bytes", driver.map(|driver| driver.allocated).into()),
            ("driver_reserved_bytes", driver.map(|driver| driver.reserved).into()),
        ]);
        self.with("device", known)
    }

    /// Adds the first plan of a session, the session's statistics and its device.
    #[must_use]
    pub fn with_session(self, session: &Session) -> Self {
        let with_plan = match session.plan(ProgramId(0)) {
            Ok(plan) => self.with_plan(plan),
            Err(_) => self,
        };
        let with_steps = with_plan.with("steps_made", session.steps());
        with_steps.with("memory", session.memory_stats().json()).with_device(session.device())
    }

    /// Adds the statistics of an eager run, and the last events of its pool as the snapshot.
    #[cfg(not(target_family = "wasm"))]
    #[must_use]
    pub fn with_eager(self, eager: &Eager) -> Self {
        self.with("memory", eager.memory_stats().json()).with_snapshot(&eager.dump())
    }
}
