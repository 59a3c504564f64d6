//! A progress line for a training run.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use super::{Callback, Epoch, StepProgress, Trainer};
use crate::error::Result;
use crate::time::Instant;
use crate::units::Bytes;

/// Prints progress to standard error: a line that is redrawn on a terminal, plain lines at each epoch
/// elsewhere.
pub struct ProgressLine {
    terminal: bool,
    quiet: bool,
    drawn: Option<Instant>,
    last: Option<StepProgress>,
    /// What is counted, and how many of them a sample has.
    unit: (&'static str, usize),
}

impl Default for ProgressLine {
    fn default() -> Self {
        let terminal = std::io::stderr().is_terminal();
        Self { terminal, quiet: false, drawn: None, last: None, unit: ("samples", 1) }
    }
}

/// Minimum time between two redraws of a terminal line.
pub(super) const REDRAW: Duration = Duration::from_millis(100);
/// Cells of the bar.
pub(super) const BAR: usize = 20;

impl ProgressLine {
    /// Creates a line that prints nothing: for `--quiet`.
    pub fn quiet() -> Self {
        Self { quiet: true, ..Self::default() }
    }

    /// Shows a rate of others than samples: of `unit`, such as `tokens`, of which a sample has `per_sample`.
    #[must_use]
    pub fn counting(self, unit: &'static str, per_sample: usize) -> Self {
        Self { unit: (unit, per_sample), ..self }
    }

    fn figures(&self, progress: &StepProgress) -> String {
        let loss = progress.loss.map_or("–".to_owned(), |loss| format!("{loss:.4}"));
        let metric = progress.metric.map_or(String::new(), |m| format!("  {} {:.4}", m.name, m.value));
        let waiting =
            progress.waiting.map_or(String::new(), |share| format!("  waiting {:.0} %", 100.0 * share));
        let (unit, per_sample) = self.unit;
        format!(
            "loss {loss}{metric}  {:.0} {unit}/s{waiting}  peak {}  eta {}",
            progress.samples_per_s * per_sample as f64,
            Bytes(progress.device_bytes),
            minutes(progress.eta)
        )
    }
}

impl Callback for ProgressLine {
    fn on_start(&mut self, trainer: &mut Trainer) -> Result<()> {
        // Of several ranks, rank 0 prints.
        self.quiet |= trainer.rank() > 0;
        Ok(())
    }

    fn on_step(&mut self, progress: &StepProgress) -> Result<()> {
        if self.quiet {
            return Ok(());
        }
        self.last = Some(*progress);
        if self.terminal && self.drawn.is_none_or(|at| at.elapsed() >= REDRAW) {
            self.drawn = Some(Instant::now());
            let done = BAR * progress.step / progress.steps.max(1);
            let bar = "━".repeat(done) + &"·".repeat(BAR - done);
            say(format_args!("\r\x1b[2K{} {bar} {}", counter(progress), self.figures(progress)));
        }
        Ok(())
    }

    fn on_epoch(&mut self, epoch: &Epoch, _trainer: &mut Trainer) -> Result<()> {
        let Some(last) = self.last else { return Ok(()) };
        let line = StepProgress { loss: Some(epoch.loss), metric: epoch.metric, ..last };
        if self.terminal {
            say(format_args!("\r\x1b[2K"));
        }
        say(format_args!("{} {}\n", counter(&line), self.figures(&line)));
        Ok(())
    }

    fn on_end(&mut self) {
        if self.terminal {
            say(format_args!("\r\x1b[2K"));
        }
    }
}

/// Prints to standard error. A failure to write a progress line must not stop the run.
fn say(text: std::fmt::Arguments<'_>) {
    let mut out = std::io::stderr();
    let _ = out.write_fmt(text).and_then(|()| out.flush());
}

fn counter(progress: &StepProgress) -> String {
    let width = progress.epochs.to_string().len();
    format!("epoch {:>width$}/{}", progress.epoch + 1, progress.epochs)
}

/// Estimates of a year and more are none.
const MOST_SECONDS: u64 = 365 * 24 * 3600;

/// Formats a time as minutes and seconds.
pub(super) fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    // Before the first samples are counted the rate is 0.
    if seconds >= MOST_SECONDS {
        return "–".to_owned();
    }
    format!("{}:{:02}", seconds / 60, seconds % 60)
}
