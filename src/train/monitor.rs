//! Monitoring of a run: raises an alert once for each problem, with its numbers, while there is time to act.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::path::PathBuf;

use super::failure::Recent;
use super::{Callback, Epoch, StepProgress, Trainer};
use crate::error::{Error, Result};
use crate::report::Failure;
use crate::time::Instant;
use crate::units::Bytes;

/// A problem that a [`Monitor`] noticed.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Alert {
    /// More of the budget is in use than [`MonitorOptions::share`].
    NearBudget {
        /// Bytes in use.
        used: u64,
        /// Bytes allowed.
        budget: u64,
    },
    /// The live bytes at the end of an epoch grew several times in a row: memory that is not freed.
    Growth {
        /// Live bytes at the end of the epoch before the first of these.
        from: u64,
        /// Live bytes now.
        to: u64,
        /// Epochs over which it grew.
        epochs: usize,
        /// Names that hold more than before these epochs, and by how many bytes, largest first; empty if
        /// names are not known.
        grown: Vec<(String, u64)>,
    },
    /// Steps take longer than at the start of the run.
    Slow {
        /// Step of the run.
        step: u64,
        /// Median of the last steps, in milliseconds.
        ms: f64,
        /// Median of the run's first steps, in milliseconds.
        usual_ms: f64,
    },
    /// The loss is not finite.
    NotFinite {
        /// Step of the run.
        step: u64,
    },
    /// The run failed; a report was written if the options name a folder.
    Failed {
        /// The error's text.
        error: String,
        /// The report, with a snapshot for PyTorch's viewer next to it; `None` if they were not written.
        report: Option<PathBuf>,
    },
}

impl fmt::Display for Alert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NearBudget { used, budget } => {
                let share = 100.0 * *used as f64 / (*budget).max(1) as f64;
                write!(f, "{} of {} are in use, {share:.0} % of the budget", Bytes(*used), Bytes(*budget))
            }
            Self::Growth { from, to, epochs, grown } => {
                let (a, b) = (Bytes(*from), Bytes(*to));
                write!(
                    f,
                    "memory alive at the end of an epoch grew {epochs} times in a row, from {a} to {b}"
                )?;
                for (i, (name, bytes)) in grown.iter().enumerate() {
                    let start = if i == 0 { "; most by " } else { ", " };
                    write!(f, "{start}`{name}` (+{})", Bytes(*bytes))?;
                }
                Ok(())
            }
            Self::Slow { step, ms, usual_ms } => {
                write!(f, "steps take {ms:.1} ms at step {step}, at first they took {usual_ms:.1} ms")
            }
            Self::NotFinite { step } => write!(f, "the loss is NaN or infinite at step {step}"),
            Self::Failed { error, report: Some(path) } => {
                write!(f, "the run failed: {error}; what is known is in {}", path.display())
            }
            Self::Failed { error, report: None } => write!(f, "the run failed: {error}"),
        }
    }
}

/// When a [`Monitor`] raises alerts.
#[derive(Clone, Debug, PartialEq)]
pub struct MonitorOptions {
    /// Bytes that may be in use; `None` does not monitor them.
    pub budget: Option<Bytes>,
    /// Fraction of the budget above which it raises an alert.
    pub share: f64,
    /// Consecutive epochs of growth that count as a leak.
    pub epochs: usize,
    /// Factor by which steps must take longer than usual.
    pub slower: f64,
    /// Number of steps whose median is compared: the first steps of the run (after a warm-up of as many
    /// steps) and the last ones.
    pub window: usize,
    /// Folder for reports of runs that failed or could not start; `None` writes none.
    pub failures: Option<PathBuf>,
}

impl Default for MonitorOptions {
    /// Over 90 % of the budget, 3 epochs of growth, 1.5 times the usual step, medians of 20 steps; no budget,
    /// no folder.
    fn default() -> Self {
        Self { budget: None, share: 0.9, epochs: 3, slower: 1.5, window: 20, failures: None }
    }
}

/// Maximum number of names in a growth alert.
const NAMES: usize = 5;

/// Raises alerts through `log` and through a function of yours.
///
/// ```
/// use wgrad::train::{Monitor, MonitorOptions};
/// let mut monitor = Monitor::new(MonitorOptions::default(), |alert| println!("{alert}"));
/// for epoch in 0..5u64 {
///     // For an `Eager` run: `monitor.live(eager.live())`.
///     monitor.live([("weights".to_owned(), 1024), ("history".to_owned(), 256 * epoch)]);
/// }
/// assert_eq!(monitor.alerts().len(), 1);
/// ```
pub struct Monitor<'a> {
    options: MonitorOptions,
    tell: Box<dyn FnMut(&Alert) + 'a>,
    alerts: Vec<Alert>,
    /// Live bytes by name at the end of the last epochs.
    ends: VecDeque<BTreeMap<String, u64>>,
    clock: StepClock,
    near: bool,
    /// Bytes that others held on the device at the last check.
    others: u64,
    since: Option<Instant>,
    recent: Recent,
}

impl<'a> Monitor<'a> {
    /// Creates a monitor that calls `tell` for each alert.
    pub fn new(options: MonitorOptions, tell: impl FnMut(&Alert) + 'a) -> Self {
        let clock = StepClock::new(options.window, options.slower);
        Self {
            options,
            tell: Box::new(tell),
            alerts: Vec::new(),
            ends: VecDeque::new(),
            clock,
            near: false,
            others: 0,
            since: None,
            recent: Recent::default(),
        }
    }

    /// Returns all alerts so far.
    pub fn alerts(&self) -> &[Alert] {
        &self.alerts
    }

    /// Reports the live allocations, by name, of a pool or an [`Eager`](crate::exec::Eager) run at the end of
    /// an epoch. Their sum counts as the bytes in use. Allocations of the same name are added up.
    pub fn live(&mut self, blocks: impl IntoIterator<Item = (String, u64)>) {
        let mut end = BTreeMap::new();
        for (name, bytes) in blocks {
            *end.entry(name).or_insert(0) += bytes;
        }
        self.in_use(end.values().sum());
        self.epoch_ends_with(end);
    }

    fn epoch_ends_with(&mut self, end: BTreeMap<String, u64>) {
        let total = |end: &BTreeMap<String, u64>| end.values().sum::<u64>();
        if self.ends.back().is_some_and(|last| total(&end) <= total(last)) {
            self.ends.clear();
        }
        self.ends.push_back(end);
        if self.ends.len() <= self.options.epochs.max(1) {
            return;
        }
        let ends = std::mem::take(&mut self.ends);
        let (Some(first), Some(last)) = (ends.front(), ends.back()) else { return };
        let more = |(name, bytes): (&String, &u64)| {
            let extra = bytes.saturating_sub(first.get(name).copied().unwrap_or(0));
            (extra > 0).then(|| (name.clone(), extra))
        };
        let mut grown: Vec<(String, u64)> = last.iter().filter_map(more).collect();
        grown.sort_by_key(|(name, bytes)| (std::cmp::Reverse(*bytes), name.clone()));
        grown.truncate(NAMES);
        let alert = Alert::Growth { from: total(first), to: total(last), epochs: ends.len() - 1, grown };
        self.ends.extend(ends.back().cloned());
        self.raise(alert);
    }

    /// Reports the bytes in use now. Raises an alert when they exceed the share of the budget, and another
    /// only after they were below it.
    pub(crate) fn in_use(&mut self, used: u64) {
        let Some(Bytes(budget)) = self.options.budget else { return };
        let near = used as f64 > self.options.share * budget as f64;
        if near && !self.near {
            self.raise(Alert::NearBudget { used, budget });
        }
        self.near = near;
    }

    /// Reports the milliseconds of a step.
    pub(crate) fn step_time(&mut self, step: u64, ms: f64) {
        if let Some(usual_ms) = self.clock.note(ms) {
            let ms = median(self.clock.last.iter().copied());
            self.raise(Alert::Slow { step, ms, usual_ms });
        }
    }

    fn failed(&mut self, error: &Error, failure: &Failure) {
        let report = self.options.failures.as_ref().and_then(|folder| {
            let written = failure.write(folder);
            written.map_err(|e| log::error!("the failure could not be written down: {e}")).ok()
        });
        self.raise(Alert::Failed { error: error.to_string(), report });
    }

    fn raise(&mut self, alert: Alert) {
        log::warn!("{alert}");
        (self.tell)(&alert);
        self.alerts.push(alert);
    }
}

impl Callback for Monitor<'_> {
    fn on_step(&mut self, progress: &StepProgress) -> Result<()> {
        let step = progress.epoch * progress.steps as u64 + progress.step as u64;
        self.recent.note(step, progress);
        self.in_use(progress.device_bytes + self.others);
        if let Some(since) = self.since.replace(Instant::now()) {
            self.step_time(step, since.elapsed().as_secs_f64() * 1e3);
        }
        Ok(())
    }

    /// The bytes of the session itself never grow; those of other users of the driver's memory may.
    fn on_epoch(&mut self, _epoch: &Epoch, trainer: &mut Trainer) -> Result<()> {
        let session = trainer.session();
        // Evaluation and checkpoints are not part of a step.
        self.since = None;
        if let Some(driver) = session.device().driver_memory() {
            let own = session.device_bytes();
            self.others = driver.allocated.saturating_sub(own);
            let names = [("this session", own), ("others on the device", self.others)];
            self.epoch_ends_with(names.map(|(name, bytes)| (name.to_owned(), bytes)).into());
        }
        Ok(())
    }

    fn on_error(&mut self, error: &Error, trainer: &mut Trainer) {
        // A requested stop is not a failure.
        if matches!(error, Error::Stopped { .. }) {
            return;
        }
        let session = trainer.session();
        if let Error::LossNotFinite { step, .. } = error {
            self.raise(Alert::NotFinite { step: *step });
        }
        let failure = Failure::of(error).with_session(session).with("last_steps", self.recent.json());
        self.failed(error, &failure);
    }

    fn on_refused(&mut self, error: &Error, known: &Failure) {
        self.failed(error, known);
    }
}

/// Medians of a run's first steps and of the last ones.
struct StepClock {
    window: usize,
    slower: f64,
    /// Warm-up steps skipped so far, which do not count.
    skipped: usize,
    first: Vec<f64>,
    usual: Option<f64>,
    last: VecDeque<f64>,
    slow: bool,
}

impl StepClock {
    fn new(window: usize, slower: f64) -> Self {
        let (first, last) = (Vec::new(), VecDeque::new());
        Self { window: window.max(1), slower, skipped: 0, first, usual: None, last, slow: false }
    }

    /// Records the time of a step. Returns the usual time at the moment when steps become slow.
    fn note(&mut self, ms: f64) -> Option<f64> {
        if self.skipped < self.window {
            self.skipped += 1;
            return None;
        }
        let Some(usual) = self.usual else {
            self.first.push(ms);
            if self.first.len() == self.window {
                self.usual = Some(median(self.first.drain(..)));
            }
            return None;
        };
        self.last.push_back(ms);
        if self.last.len() > self.window {
            self.last.pop_front();
        }
        // Reported again only after steps that were clearly fast: times on a busy machine fluctuate.
        let limit = if self.slow { (1.0 + self.slower) / 2.0 } else { self.slower };
        let slow = self.last.len() == self.window && median(self.last.iter().copied()) > limit * usual;
        let new = slow && !self.slow;
        self.slow = slow;
        new.then_some(usual)
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_steps_are_reported_once_until_fast_ones_follow() {
        let mut monitor = Monitor::new(MonitorOptions { window: 5, ..MonitorOptions::default() }, |_| {});
        let times = [[1000.0; 5], [10.0; 5], [11.0; 5], [30.0; 5], [30.0; 5], [9.0; 5], [31.0; 5]].concat();
        for (step, ms) in (0..).zip(times) {
            monitor.step_time(step, ms);
        }
        let slow: Vec<_> = monitor.alerts().iter().map(ToString::to_string).collect();
        assert_eq!(
            slow,
            [
                "steps take 30.0 ms at step 17, at first they took 10.0 ms",
                "steps take 31.0 ms at step 32, at first they took 10.0 ms"
            ]
        );
    }

    #[test]
    fn steady_growth_is_reported_as_a_leak_and_fluctuation_is_not() {
        let mut monitor = Monitor::new(MonitorOptions::default(), |_| {});
        let end = |kept: u64, batch: u64| {
            [("kept".to_owned(), kept), ("batch".to_owned(), batch), ("kept".to_owned(), 1)]
        };
        for (kept, batch) in [(0, 50), (10, 10), (0, 30), (10, 30), (10, 30)] {
            monitor.live(end(kept, batch));
        }
        assert_eq!(monitor.alerts(), []);
        for kept in [1024, 2048, 4096] {
            monitor.live(end(kept, 30));
        }
        let text = monitor.alerts()[0].to_string();
        let said = "memory alive at the end of an epoch grew 3 times in a row, from 41 B to 4.0 KiB; most by `kept` (+4.0 KiB)";
        assert_eq!((monitor.alerts().len(), text.as_str()), (1, said));
    }

    #[test]
    fn use_above_the_share_is_reported_when_it_begins() {
        let options = MonitorOptions { budget: Some(Bytes(1000)), ..MonitorOptions::default() };
        let mut monitor = Monitor::new(options, |_| {});
        for used in [900, 901, 950, 100, 1000] {
            monitor.in_use(used);
        }
        let used: Vec<_> = monitor
            .alerts()
            .iter()
            .map(|a| matches!(a, Alert::NearBudget { used: 901 | 1000, .. }))
            .collect();
        assert_eq!(used, [true, true]);
    }
}
