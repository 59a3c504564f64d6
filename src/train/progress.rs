//! One line that says where a run stands.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use super::{Callback, Epoch, StepProgress};
use crate::error::Result;
use crate::exec::Session;
use crate::units::Bytes;

/// Prints progress to standard error: a line that is rewritten on a terminal, plain lines at each epoch elsewhere.
pub struct ProgressLine {
    terminal: bool,
    quiet: bool,
    drawn: Option<Instant>,
    last: Option<StepProgress>,
}

impl Default for ProgressLine {
    fn default() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), quiet: false, drawn: None, last: None }
    }
}

/// A terminal line is redrawn no more often than this.
const REDRAW: Duration = Duration::from_millis(100);
/// Cells of the bar.
const BAR: usize = 20;

impl ProgressLine {
    /// Prints nothing but what a caller prints: for `--quiet`.
    pub fn quiet() -> Self {
        Self { quiet: true, ..Self::default() }
    }
}

impl Callback for ProgressLine {
    fn on_step(&mut self, progress: &StepProgress) -> Result<()> {
        if self.quiet {
            return Ok(());
        }
        self.last = Some(*progress);
        if self.terminal && self.drawn.is_none_or(|at| at.elapsed() >= REDRAW) {
            self.drawn = Some(Instant::now());
            let done = BAR * progress.step / progress.steps.max(1);
            let bar = "━".repeat(done) + &"·".repeat(BAR - done);
            eprint!("\r\x1b[2K{} {bar} {}", counter(progress), figures(progress));
            // A progress line that cannot be written is no reason to stop.
            let _ = std::io::stderr().flush();
        }
        Ok(())
    }

    fn on_epoch(&mut self, epoch: &Epoch, _session: &mut Session) -> Result<()> {
        let Some(last) = self.last else { return Ok(()) };
        let line = StepProgress { loss: Some(epoch.loss), accuracy: epoch.accuracy, ..last };
        if self.terminal {
            eprint!("\r\x1b[2K");
        }
        eprintln!("{} {}", counter(&line), figures(&line));
        Ok(())
    }

    fn on_end(&mut self) {
        if self.terminal {
            eprint!("\r\x1b[2K");
        }
    }
}

fn counter(progress: &StepProgress) -> String {
    let width = progress.epochs.to_string().len();
    format!("epoch {:>width$}/{}", progress.epoch + 1, progress.epochs)
}

fn figures(progress: &StepProgress) -> String {
    let loss = progress.loss.map_or("–".to_owned(), |loss| format!("{loss:.4}"));
    let accuracy = progress.accuracy.map_or(String::new(), |share| format!("  acc {:.1} %", share * 100.0));
    format!(
        "loss {loss}{accuracy}  {:.0} samples/s  peak {}  eta {}",
        progress.samples_per_s,
        Bytes(progress.device_bytes),
        minutes(progress.eta)
    )
}

fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

/// A line with a bar and the time left for work that is counted: steps, files, networks. It appears after a second, on a
/// terminal alone.
pub struct Meter {
    what: String,
    total: u64,
    since: Instant,
    drawn: Option<Instant>,
    terminal: bool,
}

/// Work that is done sooner draws nothing.
const PATIENCE: Duration = Duration::from_secs(1);

impl Meter {
    /// A meter of `total` units of work; `quiet` draws nothing.
    pub fn new(what: impl Into<String>, total: u64, quiet: bool) -> Self {
        let terminal = !quiet && std::io::stderr().is_terminal();
        Self { what: what.into(), total: total.max(1), since: Instant::now(), drawn: None, terminal }
    }

    /// So many units are done.
    pub fn done(&mut self, units: u64) {
        let waited = self.since.elapsed() >= PATIENCE && self.drawn.is_none_or(|at| at.elapsed() >= REDRAW);
        if self.terminal && waited {
            self.drawn = Some(Instant::now());
            eprint!("\r\x1b[2K{}", self.line(units, self.since.elapsed()));
            // A progress line that cannot be written is no reason to stop.
            let _ = std::io::stderr().flush();
        }
    }

    /// The line after `units` of work took `time`.
    fn line(&self, units: u64, time: Duration) -> String {
        let units = units.min(self.total);
        let cells = (BAR as u64 * units / self.total) as usize;
        let bar = "━".repeat(cells) + &"·".repeat(BAR - cells);
        let left = time.as_secs_f64() * (self.total - units) as f64 / units.max(1) as f64;
        let left = Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX);
        let eta = if units == 0 { "–".to_owned() } else { minutes(left) };
        format!("{} {bar} {units}/{}  eta {eta}", self.what, self.total)
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if self.drawn.is_some() {
            eprint!("\r\x1b[2K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meter_tells_the_time_left() {
        let meter = Meter::new("bench", 40, true);
        assert_eq!(meter.line(10, Duration::from_secs(30)), "bench ━━━━━··············· 10/40  eta 1:30");
        assert_eq!(meter.line(0, Duration::ZERO), "bench ···················· 0/40  eta –");
        assert!(Meter::new("nothing", 0, true).line(5, Duration::ZERO).ends_with("1/1  eta 0:00"));
    }
}
