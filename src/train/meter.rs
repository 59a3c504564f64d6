//! A progress line for long work other than training: planning, opening, loading, benchmarks.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use super::progress::{BAR, REDRAW, minutes};
use crate::progress::Progress;
use crate::time::Instant;

/// Draws a line with a bar and the remaining time on standard error, after one second and only on a terminal.
///
/// ```
/// use wgrad::progress::{task, watch};
/// use wgrad::train::Meter;
/// watch(Meter::new(false).drawing(), || task("epochs", 2).done(1));
/// ```
pub struct Meter {
    since: Instant,
    drawn: Option<Instant>,
    terminal: bool,
    begun: bool,
}

/// Work that finishes sooner draws nothing.
const PATIENCE: Duration = Duration::from_secs(1);

impl Meter {
    /// Creates a meter; `quiet` draws nothing.
    pub fn new(quiet: bool) -> Self {
        let terminal = !quiet && std::io::stderr().is_terminal();
        Self { since: Instant::now(), drawn: None, terminal, begun: false }
    }

    /// Returns the function that [`watch`](crate::progress::watch()) calls.
    pub fn drawing(mut self) -> impl FnMut(&Progress) {
        move |progress| self.draw(progress)
    }

    fn draw(&mut self, progress: &Progress) {
        if !self.begun {
            self.since = Instant::now();
        }
        self.begun = !progress.over;
        if progress.over {
            self.clear();
            return;
        }
        let waited = self.since.elapsed() >= PATIENCE && self.drawn.is_none_or(|at| at.elapsed() >= REDRAW);
        if self.terminal && waited {
            self.drawn = Some(Instant::now());
            // A failure to write a progress line must not stop the work.
            let mut out = std::io::stderr();
            let _ = write!(out, "\r\x1b[2K{}", line(progress, self.since.elapsed()));
            let _ = out.flush();
        }
    }

    fn clear(&mut self) {
        if self.drawn.take().is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[2K");
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Returns the line for work that began `time` ago.
fn line(progress: &Progress, time: Duration) -> String {
    let Progress { what, done, total, share, .. } = *progress;
    let (Some(total), Some(share)) = (total, share) else {
        return format!("{what} {done}  {}", minutes(time));
    };
    let cells = ((BAR as f64 * share) as usize).min(BAR);
    let bar = "━".repeat(cells) + &"·".repeat(BAR - cells);
    let left = Duration::try_from_secs_f64(time.as_secs_f64() * (1.0 - share) / share);
    let eta = left.map_or("–".to_owned(), minutes);
    let counted =
        if total <= MOST_COUNTED { format!("{done}/{total}") } else { format!("{:.0} %", 100.0 * share) };
    format!("{what} {bar} {counted}  eta {eta}")
}

/// Progress towards totals beyond this, such as bytes, is shown in percent.
const MOST_COUNTED: u64 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_shows_the_remaining_time() {
        let progress = |done, total: Option<u64>| Progress {
            what: "bench",
            done,
            total,
            share: total.map(|total| done as f64 / total as f64),
            over: false,
        };
        let text = |done, total, seconds| line(&progress(done, total), Duration::from_secs(seconds));
        assert_eq!(text(10, Some(40), 30), "bench ━━━━━··············· 10/40  eta 1:30");
        assert_eq!(text(0, Some(40), 0), "bench ···················· 0/40  eta –");
        assert_eq!(text(1 << 20, Some(4 << 20), 60), "bench ━━━━━··············· 25 %  eta 3:00");
        assert_eq!(text(7, None, 65), "bench 7  1:05");
    }
}
