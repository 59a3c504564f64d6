//! Watching a run: what should not happen is said once, with its numbers, while there is time to act.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::path::PathBuf;
use std::time::Instant;

use super::failure::Recent;
use super::{Callback, Epoch, StepProgress};
use crate::error::{Error, Result};
use crate::exec::Session;
use crate::report::Failure;
use crate::units::Bytes;

/// Something that a [`Monitor`] noticed.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Alert {
    /// More of the budget is in use than the monitor's share.
    NearBudget {
        /// Bytes in use.
        used: u64,
        /// Bytes allowed.
        budget: u64,
    },
    /// What is alive at the end of an epoch grew several times in a row: memory that nobody gives back.
    Growth {
        /// Bytes alive before the first of these epochs ended, and now.
        from: u64,
        /// Bytes alive now.
        to: u64,
        /// Epochs over which it grew.
        epochs: usize,
        /// Names that hold more than then, and by how many bytes, the most first; empty where names are not known.
        grown: Vec<(String, u64)>,
    },
    /// Steps take longer than they did.
    Slow {
        /// Step of the run.
        step: u64,
        /// Median of the last steps, in milliseconds.
        ms: f64,
        /// Median of the run's first steps, in milliseconds.
        usual_ms: f64,
    },
    /// The loss is no number any more.
    NotFinite {
        /// Step of the run.
        step: u64,
    },
    /// The run failed; what is known of it was written.
    Failed {
        /// The error's text.
        error: String,
        /// The report, beside it a snapshot for PyTorch's viewer; `None` if they could not be written.
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
            Self::NotFinite { step } => write!(f, "the loss is no number at step {step}"),
            Self::Failed { error, report: Some(path) } => {
                write!(f, "the run failed: {error}; what is known is in {}", path.display())
            }
            Self::Failed { error, report: None } => write!(f, "the run failed: {error}"),
        }
    }
}

/// When a [`Monitor`] speaks.
#[derive(Clone, Debug, PartialEq)]
pub struct MonitorOptions {
    /// Bytes that may be in use; without it, use is not watched.
    pub budget: Option<Bytes>,
    /// Share of the budget above which it speaks.
    pub share: f64,
    /// Epochs of growth in a row that count as a leak.
    pub epochs: usize,
    /// Steps take longer than usual by this factor.
    pub slower: f64,
    /// Steps whose median is compared, at the run's start (after as many that are not counted) and now.
    pub window: usize,
    /// Where a run that failed, or could not begin, is written down; without it, nowhere.
    pub failures: Option<PathBuf>,
}

impl Default for MonitorOptions {
    /// Over 90 % of the budget, 3 epochs of growth, 1.5 times the usual step, medians of 20 steps; no budget, no folder.
    fn default() -> Self {
        Self { budget: None, share: 0.9, epochs: 3, slower: 1.5, window: 20, failures: None }
    }
}

/// Names shown of what grew.
const NAMES: usize = 5;

/// Warns through `log` and through a function of yours.
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
    /// Bytes by name at the end of the last epochs.
    ends: VecDeque<BTreeMap<String, u64>>,
    clock: StepClock,
    near: bool,
    /// Bytes that others held on the device at the last look.
    others: u64,
    since: Option<Instant>,
    recent: Recent,
}

impl<'a> Monitor<'a> {
    /// A monitor that calls `tell` for each alert.
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

    /// Everything said so far.
    pub fn alerts(&self) -> &[Alert] {
        &self.alerts
    }

    /// What is alive at the end of an epoch, by name, counts as in use: of a pool or an [`Eager`](crate::exec::Eager) run. Allocations of one
    /// name are added up.
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

    /// Bytes in use now: speaks when they pass the share of the budget, and again after they were below it.
    pub fn in_use(&mut self, used: u64) {
        let Some(Bytes(budget)) = self.options.budget else { return };
        let near = used as f64 > self.options.share * budget as f64;
        if near && !self.near {
            self.raise(Alert::NearBudget { used, budget });
        }
        self.near = near;
    }

    /// Milliseconds of a step.
    pub fn step_time(&mut self, step: u64, ms: f64) {
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

    /// The session itself never grows; what the driver holds beside it may.
    fn on_epoch(&mut self, _epoch: &Epoch, session: &mut Session) -> Result<()> {
        // Evaluation and checkpoints are no part of a step.
        self.since = None;
        if let Some(driver) = session.device().driver_memory() {
            let own = session.device_bytes();
            self.others = driver.allocated.saturating_sub(own);
            let names = [("this session", own), ("others on the device", self.others)];
            self.epoch_ends_with(names.map(|(name, bytes)| (name.to_owned(), bytes)).into());
        }
        Ok(())
    }

    fn on_error(&mut self, error: &Error, session: &mut Session) {
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
    /// Steps that compile kernels and warm caches are not counted.
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

    /// The usual time, at the moment when steps become slow.
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
        // Told again only after steps that were clearly fast: times on a busy machine go up and down.
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
