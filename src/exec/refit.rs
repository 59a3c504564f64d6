//! Handling of too little device memory: a session continues with the next plan that fits.

use std::fmt;

use super::{Debug, Session};
use crate::compile::{Footprint, Plan, Planned};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::maybe_async;
use crate::units::Bytes;

/// What to do when the device has too little memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnOom {
    /// The error is returned.
    #[default]
    Fail,
    /// The next cheaper plan that fits what the device can still give replaces the current one. Parameters,
    /// optimizer state and step count are preserved.
    Refit,
}

/// A change of plans, because memory ran out or because it was requested.
#[derive(Clone, Debug, PartialEq)]
pub struct Refit {
    /// The reason, such as the message of an error.
    pub cause: String,
    /// Training steps made before the change.
    pub step: u64,
    /// Bytes that the previous plans needed.
    pub before: u64,
    /// Bytes available to the new plans.
    pub within: u64,
    /// Bytes of the session after the change.
    pub after: u64,
    /// Changes to what was requested: `recompute auto`, `accumulate 2`.
    pub changes: Vec<String>,
    /// Increase of the modelled step time over that of the requested step, as a fraction of the latter.
    pub time_fraction: f64,
    /// Whether results stay bit-identical.
    pub exact: bool,
}

impl fmt::Display for Refit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, before, within, after, .. } = self;
        let changes = if self.changes.is_empty() { "nothing".to_owned() } else { self.changes.join(", ") };
        let time = 100.0 * self.time_fraction;
        let bits = if self.exact { "the same results" } else { "other results" };
        write!(
            f,
            "refit after {step} steps, from {} to {} of {}: {changes}, {time:+.1} % of the time, {bits}",
            Bytes(*before),
            Bytes(*after),
            Bytes(*within)
        )
    }
}

/// Makes the plans of a session within a number of bytes; `None` requests them without changes.
pub type Planner<'a> = dyn FnMut(Option<Bytes>) -> Result<Planned> + 'a;

/// If the driver refuses without reporting what it has, the next attempt uses less by 1/`LESS`.
const LESS: u64 = 10;

impl Session {
    /// Opens a session. With [`OnOom::Refit`], if the device or a budget has no room for the requested plans,
    /// opens it with the next cheaper plans that fit. Returns what was changed, and logs it as a warning
    /// through `log`.
    ///
    /// ```no_run
    /// use wgrad::exec::{Debug, OnOom, Session};
    /// use wgrad::compile::{self, Planned};
    /// use wgrad::{models::Model, prelude::*};
    ///
    /// let device = Device::new()?;
    /// let model = Model::named("resnet50", 0)?;
    /// let options = PlanOptions::default();
    /// let mut planner = |within: Option<Bytes>| match within {
    ///     None => Ok(model.train_step(64)?.plan(&options, device.limits())?.into()),
    ///     Some(bytes) => {
    ///         let fitted = compile::fit(|batch| model.train_step(batch), 64, &options, bytes, device.limits())?;
    ///         Ok(fitted.into())
    ///     }
    /// };
    /// let (mut session, refit) = Session::open(&device, &mut planner, OnOom::Refit, Debug::default())?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Session::with_plans`] and as `planner`; with [`OnOom::Refit`] [`Error::OverBudget`] if nothing
    /// fits.
    #[maybe_async]
    pub async fn open(
        device: &Device,
        planner: &mut Planner<'_>,
        on_oom: OnOom,
        debug: Debug,
    ) -> Result<(Self, Option<Refit>)> {
        let refits = on_oom == OnOom::Refit;
        let mut first: Option<(String, u64)> = None;
        let mut within = None;
        loop {
            let planned = match planner(within.map(Bytes)) {
                Err(Error::OverBudget { needed, budget, .. }) if refits && within.is_none() => {
                    within = Some(budget.min(device.free_bytes().unwrap_or(u64::MAX)));
                    first.get_or_insert((format!("the plan needs {}", Bytes(needed)), needed));
                    continue;
                }
                planned => planned?,
            };
            let plans: Vec<&Plan> = planned.plans.iter().collect();
            match Self::with_plans(device, &plans, debug).await {
                Ok(session) => {
                    let refit = first.map(|(cause, before)| {
                        let after = session.device_bytes();
                        refitted(&cause, 0, [before, within.unwrap_or(after), after], &planned)
                    });
                    return Ok((session, refit));
                }
                Err(error) if refits && error.is_out_of_memory() => {
                    let needed = Footprint::of(&plans).total();
                    within = Some(next_room(device, 0, needed));
                    first.get_or_insert((error.to_string(), needed));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Continues with the next cheaper plans that fit what the device can give, and at most `within`.
    /// Parameters and optimizer state are preserved. If no plan fits, the session is unchanged, unless an
    /// allocation failed on the way: then it can be read, saved and replanned, but not run.
    ///
    /// # Errors
    /// [`Error::OverBudget`] if nothing fits; as [`Session::replan`].
    #[maybe_async]
    pub async fn refit(
        &mut self,
        within: Option<Bytes>,
        cause: &str,
        planner: &mut Planner<'_>,
    ) -> Result<Refit> {
        let before = self.device_bytes();
        let most = within.map_or(u64::MAX, |bytes| bytes.0);
        let mut room = match within {
            Some(bytes) => bytes.0.min(self.within_reach().unwrap_or(u64::MAX)),
            None => next_room(self.device(), before, before).min(most),
        };
        loop {
            let planned = planner(Some(Bytes(room)))?;
            let plans: Vec<&Plan> = planned.plans.iter().collect();
            match self.replan(&plans).await {
                Ok(()) => {
                    let after = self.device_bytes();
                    return Ok(refitted(cause, self.steps(), [before, room, after], &planned));
                }
                Err(error) if error.is_out_of_memory() => {
                    let needed = Footprint::of(&plans).total();
                    room = next_room(self.device(), self.device_bytes(), needed);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the bytes that the device's budget leaves for this session, its own included; `None` without a
    /// budget.
    pub(crate) fn within_reach(&self) -> Option<u64> {
        let others = self.device().used_bytes().saturating_sub(self.device_bytes());
        self.device().budget().map(|budget| budget.0.saturating_sub(others))
    }
}

/// Returns the bytes to try next after `needed` were too many for a session that holds `own`.
fn next_room(device: &Device, own: u64, needed: u64) -> u64 {
    let others = device.used_bytes().saturating_sub(own);
    match device.budget() {
        Some(Bytes(budget)) if budget.saturating_sub(others) < needed => budget.saturating_sub(others),
        _ => needed - needed.div_ceil(LESS),
    }
}

fn refitted(cause: &str, step: u64, [before, within, after]: [u64; 3], planned: &Planned) -> Refit {
    let Planned { changes, time_fraction, exact, .. } = planned;
    let (cause, changes) = (cause.to_owned(), changes.clone());
    let refit =
        Refit { cause, step, before, within, after, changes, time_fraction: *time_fraction, exact: *exact };
    log::warn!("{refit}");
    refit
}
