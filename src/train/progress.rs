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
    drawn: Option<Instant>,
    last: Option<StepProgress>,
}

impl Default for ProgressLine {
    fn default() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), drawn: None, last: None }
    }
}

/// A terminal line is redrawn no more often than this.
const REDRAW: Duration = Duration::from_millis(100);
/// Cells of the bar.
const BAR: usize = 20;

impl Callback for ProgressLine {
    fn on_step(&mut self, progress: &StepProgress) -> Result<()> {
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
    let seconds = progress.eta.as_secs();
    format!(
        "loss {loss}{accuracy}  {:.0} samples/s  peak {}  eta {}:{:02}",
        progress.samples_per_s,
        Bytes(progress.device_bytes),
        seconds / 60,
        seconds % 60
    )
}
